package main

// Agent files (FR-16.1): a prompt in a file, with Claude Code's front matter above it if it has one. The codex tool
// calls readAgentFile; whatever is wrong comes back as one agentFileError, which the front answers with -32008
// (FR-16.6). Nothing here decides policy: name and model are handed over, the caller checks and applies them. It must
// never block on what isn't a regular file, and never turn a field that it can't read into another one.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const maxAgentFile = 1 << 20

// agentFile is what a file says. An empty field was not given.
type agentFile struct {
	Name        string // as written; impliedIdentity makes an identity of it
	Description string
	Model       string // one that Codex may know
	ModelNote   string // why the file's model isn't in Model
	Effort      string
	Tools       []string // Claude Code's names: told, not applied
	Body        string   // the prompt
	Source      string   // the file's absolute path
}

// agentFileError says which file can't be used, and why.
type agentFileError struct {
	path string // as the caller gave it
	what string // goes on where a sentence has named the file
}

func (e *agentFileError) Error() string { return fmt.Sprintf("agent_file %q %s", e.path, e.what) }

// readAgentFile reads path, which is relative to base or begins with ~/ or is absolute. Every error is an *agentFileError.
func readAgentFile(path, base string) (agentFile, error) {
	refuse := func(what string) (agentFile, error) { return agentFile{}, &agentFileError{path, what} }
	if strings.TrimSpace(path) == "" {
		return refuse("names no file: give the path of a Markdown file that holds the agent's prompt")
	}
	full := path
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return refuse("begins with ~ and the home directory isn't known: give an absolute path")
		}
		full = filepath.Join(home, rest)
	} else if !filepath.IsAbs(path) {
		full = filepath.Join(base, path)
	}
	full, err := filepath.Abs(full)
	if err != nil {
		return refuse("can't be found: " + err.Error())
	}
	text, err := readTextFile(full, maxAgentFile)
	if err != nil {
		what := err.Error()
		if full != path {
			what = fmt.Sprintf("(%s) %s", full, what)
		}
		return refuse(what)
	}
	a, err := parseAgentFile(text)
	if err != nil {
		return refuse(err.Error())
	}
	a.Source = full
	return a, nil
}

// parseAgentFile takes the text apart. Its errors go on where a sentence has named the file.
func parseAgentFile(text string) (agentFile, error) {
	fields, body, err := parseFrontMatter(text, usedInAgentFile)
	if err != nil {
		return agentFile{}, fmt.Errorf("has front matter that can't be read: %w", err)
	}
	a := agentFile{Body: strings.TrimRight(leadingBlank.ReplaceAllString(body, ""), " \t\n")}
	for _, take := range []struct {
		key   string
		into  *string
		loose bool
	}{
		// Descriptions are prose, and people write ": " in them; nothing is decided by one.
		{"name", &a.Name, false}, {"description", &a.Description, true}, {"model", &a.Model, false}, {"effort", &a.Effort, false},
	} {
		f, given := fields[take.key]
		if !given {
			continue
		}
		switch {
		case f.bad == "" && f.list:
			f.bad = "it is a list, not text"
		case f.bad == "" && f.colon && !take.loose:
			f.bad = `it has a ": " in it: quote the value`
		}
		if f.bad != "" {
			return agentFile{}, fmt.Errorf("has front matter that can't be read: line %d: %s: %s", f.line, take.key, f.bad)
		}
		*take.into = strings.TrimSpace(f.text)
	}
	if f, given := fields["effort"]; given && a.Effort != "" && !fileEffort.MatchString(a.Effort) {
		return agentFile{}, fmt.Errorf("has front matter that can't be used: line %d: effort %q is not one word such as low, medium or high", f.line, a.Effort)
	}
	if f := fields["tools"]; f.bad == "" { // nothing is done with them, so nothing is refused for them
		if a.Tools = f.items; !f.list {
			a.Tools = splitTools(f.text)
		}
	}
	if a.ModelNote = foreignModel(a.Model); a.ModelNote != "" || strings.EqualFold(a.Model, "inherit") {
		a.Model = ""
	}
	if a.Body == "" {
		if fields != nil {
			return agentFile{}, errors.New("has no prompt: nothing stands below its front matter")
		}
		return agentFile{}, errors.New("is empty: it has to hold the agent's prompt")
	}
	return a, nil
}

func usedInAgentFile(key string) bool {
	switch key {
	case "name", "description", "model", "effort", "tools":
		return true
	}
	return false
}

// leadingBlank is blank lines, not the indentation of the first line with text.
var leadingBlank = regexp.MustCompile(`^(?:[ \t]*\n)+`)

var fileEffort = regexp.MustCompile(`^[a-z]{1,16}$`)

// claudeModel matches the words Claude Code's agent files choose a model by, and its full names, also those with a
// provider or region before them. Codex would fail the turn over any of them.
var claudeModel = regexp.MustCompile(`(?i)^(?:(?:sonnet|opus|haiku|opusplan)(?:\[.*\])?|(?:.*[./])?claude(?:[-.@:].*)?)$`)

func foreignModel(model string) string {
	if !claudeModel.MatchString(model) {
		return ""
	}
	return fmt.Sprintf("the agent file's model %q is a Claude model and was not applied", model)
}

// splitTools cuts "Read, Bash(git log, git diff), Edit" at the commas outside brackets.
func splitTools(text string) []string {
	var tools []string
	depth, from := 0, 0
	add := func(to int) {
		if t := strings.TrimSpace(text[from:to]); t != "" {
			tools = append(tools, t)
		}
		from = to + 1
	}
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth <= 0 {
				add(i)
			}
		}
	}
	add(len(text))
	return tools
}

// maxImplied leaves room within an identity's 64 characters for the suffix that tells a second one apart.
const maxImplied = 60

// impliedIdentity makes a legal identity ([A-Za-z0-9][A-Za-z0-9_-]{0,63}) of an agent's name: "Code Reviewer" becomes
// Code-Reviewer. "" if nothing legal is left.
func impliedIdentity(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-':
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
		case r != '\'' && r != '’': // "Ann's helper" is Anns-helper
			gap = true
		}
	}
	id := strings.TrimLeft(b.String(), "-_")
	return strings.TrimRight(id[:min(len(id), maxImplied)], "-_")
}
