package main

// config_names.go owns the names under which this program's ancestor, codex-mcp, was known, beside ours: one table of
// them, and how what we say is put into them. main.go chooses the names by what the program was started as, or by
// --compat, and hands them to whoever speaks to somebody outside: the command line and the two fronts. Nothing behind
// those knows of them, so what is on disk is the same under both names, and both are one team. Only our own words may
// change: what an agent, a user or a teammate wrote stays as it is. The ancestor's variables and its table of the
// configuration are read under either name (config.go).

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	serverName   = "atm-agent-mcp" // as people type it, and both protocols' handshakes tell it
	ancestorName = "codex-mcp"
)

// names are the words that somebody is spoken to with. nil stands for our own.
type names struct {
	theirs map[string]string // by ours
	words  *regexp.Regexp    // finds in a text what may be one of ours, and what stands in quotes
}

// ancestorNames are those of codex-mcp.
func ancestorNames() *names {
	n := &names{theirs: map[string]string{
		"agent_sessions": "codex_threads", "agent_status": "codex_status", "agent_close": "codex_close",
		"agent_id": "codex_id", "agent_ids": "codex_ids", "conflicting_agent_id": "conflicting_codex_id",
		"an agent_id": "a codex_id", "an agent id": "a codex id", "agent id": "codex id", "agent-id": "codex-id",
		`{"agent_id":`: `{"codex_id":`, `did you mean "agent_id"`: `did you mean "codex_id"`,
		`did you mean "agent_ids"`: `did you mean "codex_ids"`,
		serverName:                 ancestorName, serverName + " sessions": ancestorName + " threads",
		"sessions lists": "threads lists", "plugins." + serverName: "plugins." + ancestorName,
		"plugins." + serverName + ".roles":      "plugins." + ancestorName + ".roles",
		"plugins." + serverName + ".roles.NAME": "plugins." + ancestorName + ".roles.NAME",
		// Of the variables those that texts tell to set. Another one in a text is one that the user has set.
		variablePrefix: oldVariablePrefix, variablePrefix + "FAST_MODEL": oldVariablePrefix + "FAST_MODEL",
		variablePrefix + "CLIENT_IDENTITY": oldVariablePrefix + "CLIENT_IDENTITY",
	}}
	find := ""
	for _, ours := range slices.Backward(slices.Sorted(maps.Keys(n.theirs))) { // a longer word before its beginning
		if strings.ContainsAny(ours, ` "`) {
			if find += regexp.QuoteMeta(ours); !strings.ContainsAny(ours, `"`) {
				find += `\b`
			}
			find += "|"
		}
	}
	// A word goes on to the end of a path, so that no file's name has one of ours in it.
	n.words = regexp.MustCompile(find + `"(?:\\.|[^"\\\n])*"|[\w./\\-]+`)
	return n
}

// namesFor are those of the program that was started under a name or a path, and whether it is known.
func namesFor(started string) (n *names, known bool) {
	base := strings.ToLower(filepath.Base(strings.ReplaceAll(started, `\`, "/")))
	switch strings.TrimSuffix(base, ".exe") {
	case ancestorName:
		return ancestorNames(), true
	case serverName:
		return nil, true
	}
	return nil, false
}

// word is a word of ours in these names.
func (n *names) word(ours string) string {
	if n != nil && n.theirs[ours] != "" {
		return n.theirs[ours]
	}
	return ours
}

// text is a text of ours in these names. What stands in quotes in it is somebody else's.
func (n *names) text(s string) string {
	if n == nil {
		return s
	}
	return n.words.ReplaceAllStringFunc(s, func(found string) string {
		ours := strings.TrimRight(found, ".") // of the sentence
		return n.word(ours) + found[len(ours):]
	})
}

// fields is JSON of ours with the names of its fields in these names. In the fields that deep reports everything is
// ours, texts too.
func (n *names) fields(val json.RawMessage, deep func(key string) bool) json.RawMessage {
	if n == nil {
		return val
	}
	switch rawKind(val) {
	case '"':
		s, _ := rawString(val)
		return toJSON(n.text(s))
	case '[':
		all := []json.RawMessage{}
		eachElement(val, func(each json.RawMessage) { all = append(all, n.fields(each, deep)) })
		return toJSON(all)
	case '{':
		return mapFields(val, func(key string, val json.RawMessage) (string, json.RawMessage) {
			if deep(key) {
				val = n.fields(val, deep)
			}
			return n.word(key), val
		})
	}
	return val
}

// listed reports the fields of a result, or of a command's JSON, that hold more of ours.
func listed(key string) bool {
	return slices.Contains([]string{"agents", "sessions", "removed", "kept", "entries", "checks", "text", "hint"}, key)
}

func everything(string) bool { return true }

// error is an error of ours in these names, without a change to what Codex or an agent said in it.
func (n *names) error(e *rpcError) *rpcError {
	if n == nil || e == nil {
		return e
	}
	said := stringField(e.Data, "child_error", "message") + stringField(e.Data, "partial") // no error has both
	before, after, found := strings.Cut(e.Message, said)
	out := *e
	out.Data, out.Message = n.fields(e.Data, func(string) bool { return false }), n.text(before)
	if found {
		out.Message += said + n.text(after)
	}
	return &out
}

// writer writes texts of ours to w in these names. Each call of Write must bring whole words.
func (n *names) writer(w io.Writer) io.Writer {
	if n == nil {
		return w
	}
	return namesWriter{n, w}
}

type namesWriter struct {
	n *names
	w io.Writer
}

func (w namesWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.n.text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// takeNames takes the names to speak in off a command line that begins with what the program was started as: those of
// that, or of --compat, wherever it stands before what is left to another program.
func takeNames(args []string) (n *names, left []string, err error) {
	if len(args) == 0 {
		return nil, nil, nil
	}
	n, _ = namesFor(args[0])
	for i := 1; i < len(args); i++ {
		flag, value, given := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--" || args[i] == "login" && slices.Contains(left, "acp"):
			return n, append(left, args[i:]...), nil
		case flag != "--compat" && flag != "-compat":
			left = append(left, args[i])
			continue
		case !given && i+1 < len(args):
			i++
			value = args[i]
		}
		asked, known := namesFor(value)
		if !known {
			return n, nil, fmt.Errorf("--compat wants %s, not %q", ancestorName, value)
		}
		n = asked
	}
	return n, left, nil
}
