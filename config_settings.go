package main

// The settings: every key of [plugins.atm-agent-mcp] and of a role with its flag and its range, and how a value from a
// file, a variable or a flag becomes the field of config that holds it.
// config.go and config_layers.go go through these tables for each layer. A new key is one row here and one field in
// config; its flag, if it has one, is also a row of serveRows in main_help.go.
// Nothing here reads a file or knows which layer wins.

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	defaultMailMessages = 10   // messages of one mail turn
	defaultMailLength   = 4096 // characters of a message's body in a mail turn
)

var effortRule = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// A rule says which values one key takes. The kind of the value is the type of its field.
type rule struct {
	name  string // the key; its variable is ATM_AGENT_MCP_ and the name in capitals
	alias string // an older name of the key, "" for none
	flag  string // the key's flag without dashes, "" for none

	check    func(string) (string, error) // refuses or normalizes a text; every text has one
	optional bool                         // "" is a value too: none, whatever a lower layer says
	path     bool                         // the text is a file: relative to the configuration file or the working dir
	min, max int64                        // bounds of a number, in unit
	unit     time.Duration                // what a number counts where the field is a duration
}

// A setting is a rule and the field that a value is stored in.
type setting[T any] struct {
	rule
	field func(*T) any // returns a *string, *bool, *int or *time.Duration
}

// The variables' prefixes: ours, and that of the ancestor, codex-mcp, whose names are still read below ours.
const (
	variablePrefix    = "ATM_AGENT_MCP_"
	oldVariablePrefix = "CODEX_MCP_"
)

// names are the key and its older name, if it has one.
func (r rule) names() []string {
	if r.alias == "" {
		return []string{r.name}
	}
	return []string{r.name, r.alias}
}

func (r rule) variable() string { return variablePrefix + strings.ToUpper(r.name) }

// The sandbox modes, each wider than the one before.
const (
	sandboxRead   = "read-only"
	sandboxWrite  = "workspace-write"
	sandboxDanger = "danger-full-access"
)

// sandboxRank orders the modes from 1; 0 is a word that is none of them.
func sandboxRank(word string) int {
	return 1 + slices.Index([]string{sandboxRead, sandboxWrite, sandboxDanger}, word)
}

// approvalRank orders the approval policies from 1, the one that asks most; 0 is a word that is none of them.
func approvalRank(word string) int {
	return 1 + slices.Index([]string{"untrusted", "on-request", "never"}, word)
}

// settings lists the keys of [plugins.atm-agent-mcp] in the order in which they are shown. The tables roles and
// per_thread_auto_mail are read in config_layers.go.
func settings() []setting[config] {
	const day = 24 * 60 * 60
	return []setting[config]{
		{rule{name: "codex_bin", flag: "codex-bin", check: checkProgram}, func(c *config) any { return &c.codexBin }},
		{rule{name: "backend", flag: "backend", check: oneOf("backend", "auto", "app-server", "mcp-server")},
			func(c *config) any { return &c.backend }},
		{rule{name: "identity", alias: "default_identity", flag: "identity", check: checkIdentity},
			func(c *config) any { return &c.identity }},
		{rule{name: "role", flag: "role", optional: true, check: checkLine},
			func(c *config) any { return &c.defaultRole }},
		{rule{name: "model", flag: "model", optional: true, check: checkLine}, func(c *config) any { return &c.model }},
		{rule{name: "fast_model", optional: true, check: checkLine}, func(c *config) any { return &c.fastModel }},
		{rule{name: "fast", flag: "fast"}, func(c *config) any { return &c.fast }},
		{rule{name: "reasoning_effort", optional: true, check: checkEffort}, func(c *config) any { return &c.effort }},
		{rule{name: "sandbox", flag: "sandbox", optional: true, check: normalizeSandbox},
			func(c *config) any { return &c.sandbox }},
		{rule{name: "approval_policy", flag: "approval-policy", optional: true, check: normalizePolicy},
			func(c *config) any { return &c.approvalPolicy }},
		{rule{name: "max_sandbox", optional: true, check: normalizeSandbox},
			func(c *config) any { return &c.maxSandbox }},
		{rule{name: "readonly", flag: "readonly"}, func(c *config) any { return &c.readonly }},
		{rule{name: "base_prompt_file", optional: true, path: true, check: checkLine},
			func(c *config) any { return &c.basePromptFile }},
		{rule{name: "extra_instructions_file", optional: true, path: true, check: checkLine},
			func(c *config) any { return &c.extraInstructionsFile }},
		{rule{name: "subagents", flag: "subagents"}, func(c *config) any { return &c.subagents }},
		{rule{name: "request_timeout_secs", flag: "timeout", min: 1, max: 7 * day, unit: time.Second},
			func(c *config) any { return &c.requestTimeout }},
		{rule{name: "turn_limit_secs", max: 7 * day, unit: time.Second}, func(c *config) any { return &c.turnLimit }},
		{rule{name: "approval_timeout_secs", min: 1, max: 7 * day, unit: time.Second},
			func(c *config) any { return &c.approvalTimeout }},
		{rule{name: "shutdown_grace_secs", max: 300, unit: time.Second},
			func(c *config) any { return &c.shutdownGrace }},
		{rule{name: "max_concurrent_threads", min: 1, max: 1000},
			func(c *config) any { return &c.maxConcurrentThreads }},
		{rule{name: "persist_threads"}, func(c *config) any { return &c.persistThreads }},
		{rule{name: "restart_child", flag: "restart-child"}, func(c *config) any { return &c.restartChild }},
		{rule{name: "forward_events", check: oneOf("choice", "auto", "on", "off")},
			func(c *config) any { return &c.forwardEvents }},
		{rule{name: "max_answer_bytes", min: 1024, max: 32 << 20}, func(c *config) any { return &c.maxAnswerBytes }},
		{rule{name: "log_level", flag: "log-level",
			check: oneOf("log level", "error", "warn", "info", "debug", "trace")},
			func(c *config) any { return &c.logLevel }},
		{rule{name: "log_file", flag: "log-file", optional: true, path: true, check: checkLine},
			func(c *config) any { return &c.logFile }},
		{rule{name: "allow_rules"}, func(c *config) any { return &c.allowRules }},
		{rule{name: "auto_mail"}, func(c *config) any { return &c.autoMail }},
		{rule{name: "max_mail_messages", alias: "max_messages", min: 1, max: 1000},
			func(c *config) any { return &c.maxMailMessages }},
		{rule{name: "max_mail_message_length", alias: "max_message_length", min: 1, max: 1 << 20},
			func(c *config) any { return &c.maxMailMessageLength }},
		{rule{name: "mail_poll_interval_ms", min: 100, max: day * 1000, unit: time.Millisecond},
			func(c *config) any { return &c.mailPollInterval }},
		{rule{name: "idle_timeout_ms", max: 7 * day * 1000, unit: time.Millisecond},
			func(c *config) any { return &c.idleTimeout }},
		{rule{name: "client_identity", optional: true, check: checkIdentity},
			func(c *config) any { return &c.clientIdentity }},
		{rule{name: "acp_mail", check: oneOf("choice", "prompt", "turn")}, func(c *config) any { return &c.acpMail }},
	}
}

// roleSettings lists the keys of [plugins.atm-agent-mcp.roles.<name>].
func roleSettings() []setting[role] {
	return []setting[role]{
		{rule{name: "model", optional: true, check: checkLine}, func(r *role) any { return &r.model }},
		{rule{name: "reasoning_effort", optional: true, check: checkEffort}, func(r *role) any { return &r.effort }},
		{rule{name: "sandbox", optional: true, check: normalizeSandbox}, func(r *role) any { return &r.sandbox }},
		{rule{name: "approval_policy", optional: true, check: normalizePolicy},
			func(r *role) any { return &r.approvalPolicy }},
		{rule{name: "subagents"}, func(r *role) any { return &r.subagents }},
		{rule{name: "auto_mail"}, func(r *role) any { return &r.autoMail }},
	}
}

// settingNames are the keys of [plugins.atm-agent-mcp], with their older names.
func settingNames() (names []string) {
	for _, s := range settings() {
		names = append(names, s.names()...)
	}
	return names
}

// meantKey returns the known key that an unknown word likely means: the key whose flag has that name, else the
// nearest, "" for none.
func meantKey(word string, known []string) string {
	w := foldWord(word)
	if w == "explore" {
		w = "readonly"
	}
	for _, s := range settings() {
		if w != "" && (w == foldWord(s.flag) || w == foldWord(s.name)) && slices.Contains(known, s.name) {
			return s.name
		}
	}
	return nearest(word, known)
}

// find returns the value that a table holds for the rule, under its name or else its older one.
func (r rule) find(t *tomlTable) *tomlValue {
	if v := t.get(r.name); v != nil || r.alias == "" {
		return v
	}
	return t.get(r.alias)
}

// setTOML stores a value of a configuration file in directory base.
func (r rule) setTOML(into any, v *tomlValue, base, home string) error {
	var value any
	switch v.kind {
	case tomlString:
		value = v.str
	case tomlInt:
		value = v.i
	case tomlBool:
		value = v.b
	}
	err := r.set(into, value, base, home)
	if w := (wantsError{}); errors.As(err, &w) {
		return fmt.Errorf("wants %s, not %s", w.want, v.kind)
	}
	return err
}

// setText stores a value of a variable or a flag.
func (r rule) setText(into any, text, base, home string) error {
	var value any = text
	switch into.(type) {
	case *bool:
		switch strings.ToLower(text) {
		case "true", "1", "yes", "on":
			value = true
		case "false", "0", "no", "off":
			value = false
		default:
			return fmt.Errorf("wants true or false, not %q", cutName(text))
		}
	case *int, *time.Duration:
		n, err := strconv.ParseInt(text, 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			n, err = math.MaxInt64, nil
			if text[0] == '-' {
				n = math.MinInt64
			}
		}
		if err != nil {
			return fmt.Errorf("wants a whole number, not %q", cutName(text))
		}
		value = n
	}
	return r.set(into, value, base, home)
}

// A wantsError refuses a value of the wrong kind.
type wantsError struct{ want string } // want is the right kind, as "a string"

func (e wantsError) Error() string { return "wants " + e.want }

// set checks a value, a string, int64 or bool, and stores it in the field into; on an error the field keeps its value.
// Paths are resolved against base.
func (r rule) set(into, value any, base, home string) error {
	switch p := into.(type) {
	case *string:
		s, ok := value.(string)
		if !ok {
			return wantsError{tomlString.String()}
		}
		if s == "" && r.optional {
			*p = ""
			return nil
		}
		s, err := r.check(s)
		if err != nil {
			return err
		}
		// A program without a slash is looked up on PATH.
		if r.path || r.name == "codex_bin" && (strings.ContainsRune(filepath.ToSlash(s), '/') || s[0] == '~') {
			s = resolvePath(s, base, home)
		}
		*p = s
	case *bool:
		b, ok := value.(bool)
		if !ok {
			return wantsError{tomlBool.String()}
		}
		*p = b
	case *int:
		n, err := r.number(value)
		if err != nil {
			return err
		}
		*p = int(n)
	case *time.Duration:
		n, err := r.number(value)
		if err != nil {
			return err
		}
		*p = time.Duration(n) * r.unit
	default:
		panic(fmt.Sprintf("BUG: setting %s has a field of type %T", r.name, into))
	}
	return nil
}

func (r rule) number(value any) (int64, error) {
	n, ok := value.(int64)
	if !ok {
		return 0, wantsError{tomlInt.String()}
	}
	if n < r.min || n > r.max {
		return 0, fmt.Errorf("%d is out of range: %d to %d", n, r.min, r.max)
	}
	return n, nil
}

// shown returns the value of a field as it is shown: a duration in the unit of its key.
func (r rule) shown(from any) any {
	switch p := from.(type) {
	case *string:
		return *p
	case *bool:
		return *p
	case *int:
		return *p
	case *time.Duration:
		return int(*p / r.unit)
	}
	panic(fmt.Sprintf("BUG: setting %s has a field of type %T", r.name, from))
}

// normalizeSandbox checks a sandbox mode as Codex writes it.
func normalizeSandbox(word string) (string, error) {
	return oneOf("sandbox mode", sandboxRead, sandboxWrite, sandboxDanger)(word)
}

// normalizePolicy checks an approval policy. on-failure, which only Codex before 0.148 knows and which newer ones
// refuse the whole request for, becomes on-request.
func normalizePolicy(word string) (string, error) {
	switch foldWord(word) {
	case "unlesstrusted":
		return "", fmt.Errorf("%q is written %q", word, "untrusted")
	case "onfailure":
		if word == "on-failure" {
			return "on-request", nil
		}
		return "", fmt.Errorf("%q is written %q (or %q, which it becomes)", word, "on-failure", "on-request")
	}
	return oneOf("approval policy", "untrusted", "on-request", "never")(word)
}

// oneOf checks a word of a list. A word in another spelling (readOnly, read_only) is refused with the right one:
// taking it would teach people a spelling that Codex itself refuses.
func oneOf(what string, words ...string) func(string) (string, error) {
	return func(word string) (string, error) {
		for _, w := range words {
			switch {
			case word == w:
				return w, nil
			case foldWord(word) == foldWord(w):
				return "", fmt.Errorf("%q is written %q", word, w)
			}
		}
		return "", fmt.Errorf("%q is no %s (there are %s)%s", cutName(word), what, strings.Join(words, ", "),
			didYouMean(word, words))
	}
}

// foldWord is a word without what spellings differ in: capitals, dashes, underscores and blanks.
func foldWord(word string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_ ", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, word)
}

func checkIdentity(s string) (string, error) { return s, validIdentity(s) }

func checkEffort(s string) (string, error) {
	if !effortRule.MatchString(s) {
		return "", fmt.Errorf("%q is no reasoning effort: one word in small letters, such as low, medium, high",
			cutName(s))
	}
	return s, nil
}

// checkLine takes any text that stands on one line.
func checkLine(s string) (string, error) {
	switch {
	case strings.TrimSpace(s) != s || s == "":
		return "", fmt.Errorf("%q is empty or has blanks around it", cutName(s))
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", fmt.Errorf("%q has a character that can't be printed", cutName(s))
	case len(s) > 4096:
		return "", fmt.Errorf("%q is longer than 4096 bytes", cutName(s))
	}
	return s, nil
}

func checkProgram(s string) (string, error) {
	if s == "" {
		return "", errors.New(`can't be empty: give the name or path of codex, or "mock"`)
	}
	return checkLine(s)
}
