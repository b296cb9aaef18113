package main

// sys_log.go owns what we say to people on stderr, and what must never be said: the logger of NFR-5 (log/slog, one
// structured line a message), the redaction of NFR-3, and the words for an error of the operating system.
// The composition root makes the logger once and hands it down; registry_audit.go redacts every text it writes.
// Never writes to stdout, and never lets a recognizable credential through,
// be it in a message, in an attribute or in an error.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// levelTrace is NFR-5's level for raw traffic; slog has none below debug.
const levelTrace = slog.LevelDebug - 4

// newLogger writes lines such as
//
//	atm-agent-mcp: time=… level=warn msg="corrupt record set aside" path=…
//
// each with one call of w.Write. level is a word of --log-level.
func newLogger(w io.Writer, level string) *slog.Logger {
	l := map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo,
		"debug": slog.LevelDebug, "trace": levelTrace}[level]
	return slog.New(slog.NewTextHandler(&prefixWriter{w: w}, &slog.HandlerOptions{Level: l, ReplaceAttr: redactAttr}))
}

// prefixWriter begins each line as everything on stderr begins. The handler
// calls it once a line and under its own lock.
type prefixWriter struct {
	w   io.Writer
	buf []byte
}

func (p *prefixWriter) Write(line []byte) (int, error) {
	p.buf = append(append(p.buf[:0], "atm-agent-mcp: "...), line...)
	if _, err := p.w.Write(p.buf); err != nil {
		return 0, err
	}
	return len(line), nil
}

// redactAttr sees every attribute and the message itself before it is quoted.
func redactAttr(groups []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		if len(groups) > 0 || a.Key != slog.MessageKey {
			if reSecretKey.MatchString(a.Key) && v.String() != "" {
				return slog.String(a.Key, redacted)
			}
		}
		return slog.String(a.Key, redact(v.String()))
	case slog.KindAny:
		switch x := v.Any().(type) {
		case slog.Level:
			if x == levelTrace {
				return slog.String(a.Key, "trace")
			}
			return slog.String(a.Key, strings.ToLower(x.String()))
		case nil:
			return a
		case error:
			return slog.String(a.Key, redact(errorText(x)))
		case []byte:
			return slog.String(a.Key, redact(string(bytes.ToValidUTF8(x, []byte("\ufffd")))))
		default:
			return slog.String(a.Key, redact(fmt.Sprint(x)))
		}
	}
	return a
}

// errorText is an error in words, with what to do about it where the machine has run out of something.
func errorText(err error) string {
	if hint := shortage(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

// shortage says what a full disk or too many open files ask for, "" of any other
// error. inotify's limits have the same errors, and words of their own.
func shortage(err error) string {
	switch {
	case errors.Is(err, errNoWatch):
	case isDiskFull(err):
		return "the disk is full, or your quota of it: free some space, or set ATM_HOME to a directory on another disk"
	case isOutOfFiles(err):
		return "no more files can be opened: raise the limit (ulimit -n) where the MCP client or editor is " +
			"started, or close agents that are not needed"
	}
	return ""
}

// redacted takes a secret's place.
const redacted = "[redacted]"

// The words that make the value beside them a secret. max_tokens, tokenizer
// and token_count are none: the word must end the name.
const secretWords = `(?:password|passwd|passphrase|pwd|secret|token|` +
	`api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|credentials?)`

var (
	reSecretKey = regexp.MustCompile(`(?i)` + secretWords + `$`)

	// A block without its end was cut off: all the rest is key.
	rePrivateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)` +
		`(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)
	reJWT = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){1,4}`)

	// Tokens that tell by their first letters whose they are.
	reToken = regexp.MustCompile(`github_pat_[A-Za-z0-9_]{20,}|gh[pousr]_[A-Za-z0-9]{16,}|glpat-[A-Za-z0-9_-]{16,}|` +
		`xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[0-9]-[A-Za-z0-9-]{8,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|` +
		`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b|npm_[A-Za-z0-9]{30,}|` +
		`hf_[A-Za-z0-9]{30,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|` +
		`SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{20,}`)
	reSK = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{16,}`)

	reAuthHeader = regexp.MustCompile(`(?i)(authorization\\*["']?\s*[:=]\s*\\*["']?` +
		`(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?)([^\s"'\\,;]+)`)
	reBearer = regexp.MustCompile(`(?i)(\bbearer\s+)([A-Za-z0-9._~+/=-]{8,})`)
	reCookie = regexp.MustCompile(`(?i)(\b(?:set-)?cookie\\*["']?\s*:\s*)([^\r\n"']+)`)

	// scheme://user:password@host, and a long user that can only be a token.
	reURLUser = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/:@"'<>]*:[^\s/@"'<>]+|[^\s/:@"'<>]{20,})@`)
	reURLSig  = regexp.MustCompile(`(?i)([?&](?:sig|signature|x-amz-signature|x-goog-signature)=)[^&\s"']+`)

	// key=value, key: value, "key":"value", and the same inside a JSON string, where quotes have backslashes and line
	// ends are \n; a block of YAML begins below its key. == and != compare and give nothing away.
	rePair = regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*` + secretWords +
		`\\*["']?\s*(?::=|=>|[:=：])\s*(?:[|>][+-]?\s+)?(?:\\+[nrt]\s*)*)` +
		`("(?:[^"\\]|\\.)*"?|'[^']*'?|\\+"[^"]*"?|[^\s"',;&|(){}<>=\\][^\s"',;&|(){}<>\\]*)`)
	// "the password is hunter2": only a value with a digit, or prose would go too.
	reProse = regexp.MustCompile(`(?i)(\b(?:password|passwd|passphrase|secret|token|` +
		`(?:api|access|secret)[ _-]?key)\s+(?:is|was)\s*:?\s*)` +
		`("[^"]*"?|'[^']*'?|[^\s"',;]+)`)
	reFlag = regexp.MustCompile(`(?i)(--?(?:[a-z0-9]+-)*` + secretWords + `\s+)("[^"]*"?|'[^']*'?|[^\s"'-][^\s"']*)`)
)

// redact replaces what looks like a credential by [redacted]. What it can't
// tell from ordinary text stays: it is a net, not a proof.
func redact(s string) string {
	if len(s) < 6 {
		return s
	}
	// The checks before the expressions are what keeps ordinary text cheap.
	if strings.Contains(s, "-----BEGIN") {
		s = rePrivateKey.ReplaceAllLiteralString(s, redacted)
	}
	if strings.Contains(s, "eyJ") {
		s = reJWT.ReplaceAllLiteralString(s, redacted)
	}
	if containsAny(s, "_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "xox", "xapp-", "AIza", "ya29.",
		"AKIA", "ASIA", "ABIA", "ACCA", "npm_", "hf_", "k_live_", "k_test_", "SG.", "AGE-SECRET-KEY-1") {
		s = reToken.ReplaceAllLiteralString(s, redacted)
	}
	if strings.Contains(s, "sk-") {
		s = reSK.ReplaceAllStringFunc(s, func(key string) string {
			if strings.ContainsAny(key, "0123456789") {
				return redacted
			}
			return key // sk-toggleable__label is a CSS class
		})
	}
	if strings.Contains(s, "://") {
		s = reURLUser.ReplaceAllString(s, "${1}"+redacted+"@")
		s = reURLSig.ReplaceAllString(s, "${1}"+redacted)
	}
	lower := strings.ToLower(s)
	if strings.Contains(lower, "authorization") {
		s = replaceValue(reAuthHeader, s, anyValue)
	}
	if strings.Contains(lower, "bearer") {
		s = replaceValue(reBearer, s,
			func(v string) bool { return len(v) >= 24 || strings.ContainsAny(v, "0123456789") })
	}
	if strings.Contains(lower, "cookie") {
		s = replaceValue(reCookie, s, anyValue)
	}
	if containsAny(lower, "pass", "pwd", "secret", "token", "key", "credential") {
		s = replaceValue(rePair, s, literalValue)
		s = replaceValue(reFlag, s, literalValue)
		if containsAny(lower, " is", " was") {
			s = replaceValue(reProse, s,
				func(v string) bool { return len(v) >= 6 && strings.ContainsAny(v, "0123456789") })
		}
	}
	return s
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// replaceValue replaces the second group of each match that is a secret, and
// leaves its quotes, so that JSON stays JSON.
func replaceValue(re *regexp.Regexp, s string, secret func(string) bool) string {
	all := re.FindAllStringSubmatchIndex(s, -1)
	if all == nil {
		return s
	}
	var b strings.Builder
	last := 0
	for _, m := range all {
		from, to := m[4], m[5]
		for from < to && (s[from] == '\\' || s[from] == '"' || s[from] == '\'') {
			from++
		}
		for to > from && (s[to-1] == '\\' || s[to-1] == '"' || s[to-1] == '\'') {
			to--
		}
		if from == to || !secret(s[from:to]) {
			continue
		}
		b.WriteString(s[last:from])
		b.WriteString(redacted)
		last = to
	}
	b.WriteString(s[last:])
	return b.String()
}

func anyValue(v string) bool { return v != redacted }

// literalValue is false for what only names or lacks a secret: $TOKEN, <token>, null, a value that is redacted already.
func literalValue(v string) bool {
	switch strings.ToLower(v) {
	case "null", "nil", "none", "true", "false", "undefined", "string", redacted, "[redacted", "bearer", "basic":
		return false
	}
	return v[0] != '$' && v[0] != '<' && v[0] != '%' && strings.Trim(v, "*") != ""
}
