package main

// The settings: every key of [plugins.atm-agent-mcp] and of a role with its flag and its range, and how a value from a
// file, a variable or a flag becomes the field of config that holds it. config.go and config_layers.go go through these
// tables for each layer. A new key is one row here and one field in config; its flag, if it has one, is also a row of
// serveRows in main_help.go. Nothing here reads a file or knows which layer wins.

import (
	"errors"
	"fmt"
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

// A setting is a key, the field that its value is stored in, and which values the key takes. The kind of the value is
// the type of the field.
type setting struct {
	name  string // the key; its variable is ATM_AGENT_MCP_ and the name in capitals
	alias string // an older name of the key, "" for none
	flag  string // the key's flag without dashes, "" for none
	into  any    // the field: a *string, *bool, *int or *time.Duration

	check    func(string) (string, error) // refuses or normalizes a text; nil is checkLine
	optional bool                         // "" is a value too: none, whatever a lower layer says
	path     bool                         // the text is a file: relative to the configuration file or the working dir
	min, max int64                        // bounds of a number, in unit
	unit     time.Duration                // what a number counts where the field is a duration
}

// The variables' prefixes: ours, and that of the ancestor, codex-mcp, whose names are still read below ours.
const (
	variablePrefix    = "ATM_AGENT_MCP_"
	oldVariablePrefix = "CODEX_MCP_"
)

// namesOf are a name and another one beside it, "" for none.
func namesOf(name, alias string) []string {
	if alias == "" {
		return []string{name}
	}
	return []string{name, alias}
}

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
func (c *config) settings() []setting {
	const day = 24 * 60 * 60
	return []setting{
		{name: "codex_bin", flag: "codex-bin", into: &c.codexBin, check: checkProgram},
		{name: "backend", flag: "backend", into: &c.backend,
			check: oneOf("backend", "auto", "app-server", "mcp-server")},
		{name: "identity", alias: "default_identity", flag: "identity", into: &c.identity, check: checkIdentity},
		{name: "role", flag: "role", into: &c.defaultRole, optional: true},
		{name: "model", flag: "model", into: &c.model, optional: true},
		{name: "fast_model", into: &c.fastModel, optional: true},
		{name: "fast", flag: "fast", into: &c.fast},
		{name: "reasoning_effort", into: &c.effort, optional: true, check: checkEffort},
		{name: "sandbox", flag: "sandbox", into: &c.sandbox, optional: true, check: normalizeSandbox},
		{name: "approval_policy", flag: "approval-policy", into: &c.approvalPolicy,
			optional: true, check: normalizePolicy},
		{name: "max_sandbox", into: &c.maxSandbox, optional: true, check: normalizeSandbox},
		{name: "readonly", flag: "readonly", into: &c.readonly},
		{name: "base_prompt_file", into: &c.basePromptFile, optional: true, path: true},
		{name: "extra_instructions_file", into: &c.extraInstructionsFile, optional: true, path: true},
		{name: "subagents", flag: "subagents", into: &c.subagents},
		{name: "request_timeout_secs", flag: "timeout", into: &c.requestTimeout,
			min: 1, max: 7 * day, unit: time.Second},
		{name: "turn_limit_secs", into: &c.turnLimit, max: 7 * day, unit: time.Second},
		{name: "approval_timeout_secs", into: &c.approvalTimeout, min: 1, max: 7 * day, unit: time.Second},
		{name: "shutdown_grace_secs", into: &c.shutdownGrace, max: 300, unit: time.Second},
		{name: "max_concurrent_threads", into: &c.maxConcurrentThreads, min: 1, max: 1000},
		{name: "persist_threads", into: &c.persistThreads},
		{name: "restart_child", flag: "restart-child", into: &c.restartChild},
		{name: "forward_events", into: &c.forwardEvents, check: oneOf("choice", "auto", "on", "off")},
		{name: "max_answer_bytes", into: &c.maxAnswerBytes, min: 1024, max: 32 << 20},
		{name: "log_level", flag: "log-level", into: &c.logLevel,
			check: oneOf("log level", "error", "warn", "info", "debug", "trace")},
		{name: "log_file", flag: "log-file", into: &c.logFile, optional: true, path: true},
		{name: "allow_rules", into: &c.allowRules},
		{name: "auto_mail", into: &c.autoMail},
		{name: "max_mail_messages", alias: "max_messages", into: &c.maxMailMessages, min: 1, max: 1000},
		{name: "max_mail_message_length", alias: "max_message_length", into: &c.maxMailMessageLength,
			min: 1, max: 1 << 20},
		{name: "mail_poll_interval_ms", into: &c.mailPollInterval, min: 100, max: day * 1000, unit: time.Millisecond},
		{name: "idle_timeout_ms", into: &c.idleTimeout, max: 7 * day * 1000, unit: time.Millisecond},
		{name: "client_identity", into: &c.clientIdentity, optional: true, check: checkIdentity},
		{name: "worktree_dir", into: &c.worktreeDir},
		{name: "acp_mail", into: &c.acpMail, check: oneOf("choice", "prompt", "turn")},
		{name: "prompts_while_busy", into: &c.promptsWhileBusy, check: oneOf("choice", "queue", "steer")},
	}
}

// corePrefix stands before a key of [core], which has more keys than ATM's that are read here.
const corePrefix = "core."

// coreSettings lists the keys of [core] that are read. Its identity is the client's name and never an agent's.
func (c *config) coreSettings() []setting {
	return []setting{
		{name: "default_team", into: &c.coreTeam, check: func(s string) (string, error) { return s, validTeam(s) }},
		{name: "identity", into: &c.coreIdentity, check: checkIdentity},
	}
}

// settings lists the keys of [plugins.atm-agent-mcp.roles.<name>].
func (r *role) settings() []setting {
	return []setting{
		{name: "model", into: &r.model, optional: true},
		{name: "reasoning_effort", into: &r.effort, optional: true, check: checkEffort},
		{name: "sandbox", into: &r.sandbox, optional: true, check: normalizeSandbox},
		{name: "approval_policy", into: &r.approvalPolicy, optional: true, check: normalizePolicy},
		{name: "subagents", into: &r.subagents},
		{name: "auto_mail", into: &r.autoMail},
	}
}

// settingNames are the keys of [plugins.atm-agent-mcp], with their older names.
func settingNames() (names []string) {
	for _, s := range new(config).settings() {
		names = append(names, namesOf(s.name, s.alias)...)
	}
	return names
}

func isSetting(of []setting, key string) bool {
	return slices.ContainsFunc(of, func(s setting) bool { return s.name == key })
}

// meantKey returns the known key that an unknown word likely means: the key whose flag has that name, else the
// nearest, "" for none.
func meantKey(word string, known []string) string {
	w := foldWord(word)
	if w == "explore" {
		w = "readonly"
	}
	for _, s := range new(config).settings() {
		if w != "" && (w == foldWord(s.flag) || w == foldWord(s.name)) && slices.Contains(known, s.name) {
			return s.name
		}
	}
	return nearest(word, known)
}

// setTOML stores a value of a configuration file in directory base.
func (s setting) setTOML(v *tomlValue, base, home string) error {
	want := "an integer"
	switch s.into.(type) {
	case *string:
		want = "a string"
	case *bool:
		want = "a boolean"
	}
	if v.kind() != want {
		return fmt.Errorf("wants %s, not %s", want, v.kind())
	}
	return s.set(v.val, base, home)
}

func (s setting) setText(text, base, home string) error {
	var value any = text
	switch s.into.(type) {
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
		n, err := strconv.ParseInt(text, 10, 64) // a number beyond 64 bits is the nearest that has a place there
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("wants a whole number, not %q", cutName(text))
		}
		value = n
	}
	return s.set(value, base, home)
}

// set checks a value, a string, int64 or bool as the field wants it, and stores it; on an error the field keeps what it
// has. Paths are resolved against base.
func (s setting) set(value any, base, home string) error {
	switch p := s.into.(type) {
	case *string:
		text := value.(string)
		if text == "" && s.optional {
			*p = ""
			return nil
		}
		check := s.check
		if check == nil {
			check = checkLine
		}
		text, err := check(text)
		if err != nil {
			return err
		}
		// A program without a slash is looked up on PATH.
		if s.path || s.name == "codex_bin" && (strings.ContainsRune(filepath.ToSlash(text), '/') || text[0] == '~') {
			text = resolvePath(text, base, home)
		}
		*p = text
		return nil
	case *bool:
		*p = value.(bool)
		return nil
	}
	n := value.(int64)
	if n < s.min || n > s.max {
		return fmt.Errorf("%d is out of range: %d to %d", n, s.min, s.max)
	}
	if p, ok := s.into.(*time.Duration); ok {
		*p = time.Duration(n) * s.unit
		return nil
	}
	*s.into.(*int) = int(n)
	return nil
}

// shown returns the value as it is shown: a duration in the unit of its key.
func (s setting) shown() any {
	switch p := s.into.(type) {
	case *string:
		return *p
	case *bool:
		return *p
	case *time.Duration:
		return int(*p / s.unit)
	}
	return *s.into.(*int)
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
