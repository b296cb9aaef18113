package main

// Agent files (FR-16.1): a prompt in a file, with Claude Code's front matter above it if it has one. Of that YAML only
// lines `key: value` are read, and only those of name, model and effort; such a key with any other value is refused,
// never guessed at. The codex tool calls readAgentFile; whatever is wrong comes back as an agentFileError, which the
// front answers with -32008 (FR-16.6). Nothing here decides policy: the caller checks and applies name and model.
// Prompt files are read here too (readTextFile): a file that a person names is refused in words that a person
// understands.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const maxAgentFile = 1 << 20

// An agentFile is what a file says. An empty field was not given.
type agentFile struct {
	Name      string // as written; impliedIdentity makes an identity of it
	Model     string // a model that Codex may know
	ModelNote string // why the model that the file names is not in Model
	Effort    string
	Body      string // the prompt
	Source    string // the file's absolute path
}

// An agentFileError says which file can't be used, and why.
type agentFileError struct {
	path string // as the caller gave it
	what string // the rest of a sentence that begins with the file's name
}

func (e *agentFileError) Error() string { return fmt.Sprintf("agent_file %q %s", e.path, e.what) }

// readAgentFile reads path, which is relative to base or begins with ~/ or is absolute. Every error is an
// *agentFileError.
func readAgentFile(path, base string) (agentFile, error) {
	refuse := func(what string) (agentFile, error) { return agentFile{}, &agentFileError{path, what} }
	if strings.TrimSpace(path) == "" {
		return refuse("names no file: give the path of a Markdown file that holds the agent's prompt")
	}
	home, err := os.UserHomeDir()
	if err != nil && strings.HasPrefix(path, "~/") {
		return refuse("begins with ~ and the home directory isn't known: give an absolute path")
	}
	full, err := filepath.Abs(resolvePath(path, base, home))
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

// parseAgentFile splits the text into front matter and prompt. An error is the rest of a sentence that begins with the
// file's name.
func parseAgentFile(text string) (agentFile, error) {
	head, body, closed := cutFrontMatter(text)
	if !closed {
		return agentFile{}, errors.New("has front matter that can't be read: it is never closed: end it with a " +
			"line ---")
	}
	a := agentFile{Body: strings.TrimRight(leadingBlank.ReplaceAllString(body, ""), " \t\n")}
	var current string // the key that the line before belongs to
	given := map[string]int{}
	for i, line := range head {
		n := i + 2 // the line's number in the file
		refuse := func(key, why string) (agentFile, error) {
			return agentFile{}, fmt.Errorf("has front matter that can't be read: line %d: %s: %s", n, key, why)
		}
		m := frontKey.FindStringSubmatch(line)
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || trimmed[0] == '#':
			continue
		case m == nil && usedKey.MatchString(line) && (line[0] == trimmed[0] || len(given) == 0),
			m == nil && trimmed[0] == '{' && len(given) == 0:
			return refuse(clip(trimmed, 40),
				"front matter isn't read in this form: write one `key: value` a line, from the line's first "+
					"column, with a blank behind the colon")
		case m == nil && current != "":
			return refuse(current, "its value isn't on one line: write all of it behind the colon")
		case m == nil:
			continue // goes on with the value of a key that isn't used
		}
		key := strings.Trim(m[1], `"'`)
		into := map[string]*string{"name": &a.Name, "model": &a.Model, "effort": &a.Effort}[key]
		first := given[key]
		given[key] = n
		if current = ""; into == nil {
			continue
		}
		current = key
		switch text, why := frontValue(m[2]); {
		case first != 0:
			return refuse(key, fmt.Sprintf("it is given twice, first on line %d", first))
		case why != "":
			return refuse(key, why)
		default:
			*into = text
		}
	}
	if a.Effort != "" && !fileEffort.MatchString(a.Effort) {
		return agentFile{}, fmt.Errorf("has front matter that can't be used: line %d: effort %q is not one word "+
			"such as low, medium or high", given["effort"], a.Effort)
	}
	if a.ModelNote = foreignModel(a.Model); a.ModelNote != "" || strings.EqualFold(a.Model, "inherit") {
		a.Model = ""
	}
	if a.Body == "" {
		if head != nil {
			return agentFile{}, errors.New("has no prompt: nothing stands below its front matter")
		}
		return agentFile{}, errors.New("is empty: it has to hold the agent's prompt")
	}
	return a, nil
}

// frontKey finds a key at a line's first column, and what stands behind its colon.
var frontKey = regexp.MustCompile(`^([A-Za-z_][\w-]*|"[\w-]+"|'[\w-]+')[ \t]*:(?:[ \t]+(.*))?$`)

// usedKey finds a used key in any form: indented, quoted, without a blank behind its colon.
var usedKey = regexp.MustCompile(`^[ \t]*["']?(?:name|model|effort)["']?[ \t]*:`)

var (
	singleQuoted = regexp.MustCompile(`^'((?:[^']|'')*)'`)
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	frontComment = regexp.MustCompile(`[ \t]+#.*$`)
)

// cutFrontMatter splits a document into the lines between two --- lines at its head, nil for none, and the rest. What
// only begins with a rule (---) is all body: its next line has no key. closed is false for front matter without an end.
func cutFrontMatter(doc string) (head []string, body string, closed bool) {
	lines := strings.Split(doc, "\n")
	isRule := func(l string) bool { return strings.TrimRight(l, " \t") == "---" }
	if !isRule(lines[0]) {
		return nil, doc, true
	}
	end := 1 + slices.IndexFunc(lines[1:], isRule)
	first := ""
	for _, l := range lines[1:] {
		if t := strings.TrimSpace(l); t != "" && t[0] != '#' {
			first = l
			break
		}
	}
	used := usedKey.MatchString(first)
	switch {
	case end == 0 && used:
		return nil, "", false
	case end == 0, !used && !isRule(first) && !frontKey.MatchString(first) && first[0] != '{':
		return nil, doc, true
	}
	return lines[1:end], strings.Join(lines[end+1:], "\n"), true
}

// frontValue reads a value on one line: plain, or in quotes. why says what is wrong with any other.
func frontValue(s string) (text, why string) {
	if s = strings.TrimSpace(s); s == "" || s[0] == '#' {
		return "", ""
	}
	rest := ""
	switch s[0] {
	case '"':
		whole := doubleQuoted.FindString(s)
		if whole == "" {
			return "", "its quote is never closed on this line"
		}
		if json.Unmarshal([]byte(whole), &text) != nil {
			return "", "its quotes hold an escape that isn't read here: use those of JSON, or single quotes"
		}
		rest = s[len(whole):]
	case '\'':
		m := singleQuoted.FindStringSubmatch(s)
		if m == nil {
			return "", "its quote is never closed on this line"
		}
		text, rest = strings.ReplaceAll(m[1], "''", "'"), s[len(m[0]):]
	default:
		s = frontComment.ReplaceAllString(s, "")
		switch {
		case strings.ContainsRune("[]{}|>&*!%@`,?", rune(s[0])) || strings.HasPrefix(s, "- "):
			return "", fmt.Sprintf("a value that begins with %q isn't read: write plain text on one line, or "+
				"quote it", s[:1])
		case strings.Contains(s, ": ") || strings.HasSuffix(s, ":"):
			return "", `it has a ": " in it: quote the value`
		case s == "~" || s == "null":
			return "", ""
		}
		return s, ""
	}
	if rest = strings.TrimSpace(rest); rest != "" && rest[0] != '#' {
		return "", "text follows the closing quote"
	}
	return strings.TrimSpace(text), ""
}

// leadingBlank is blank lines, not the indentation of the first line with text.
var leadingBlank = regexp.MustCompile(`^(?:[ \t]*\n)+`)

var fileEffort = regexp.MustCompile(`^[a-z]{1,16}$`)

// claudeModel matches the words Claude Code's agent files choose a model by, and its full names, also those with a
// provider or region before them. Codex would fail the turn over any of them.
var claudeModel = regexp.MustCompile(
	`(?i)^(?:(?:sonnet|opus|haiku|opusplan)(?:\[.*\])?|(?:.*[./])?claude(?:[-.@:].*)?)$`)

func foreignModel(model string) string {
	if !claudeModel.MatchString(model) {
		return ""
	}
	return fmt.Sprintf("the agent file's model %q is a Claude model and was not applied", model)
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
	if id = strings.TrimRight(id[:min(len(id), maxImplied)], "-_"); threadRule.MatchString(id) {
		return ""
	}
	return id
}

// readTextFile reads a regular UTF-8 file of at most limit bytes, without byte order mark and with \n line ends.
// An error is the rest of a sentence that begins with the file's name.
func readTextFile(path string, limit int64) (string, error) {
	data, err := readRegular(path, limit)
	var failed *fs.PathError
	switch {
	case errors.Is(err, errNotRegular):
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return "", errors.New("is a directory: name the file in it")
		}
		return "", errors.New("is not a regular file")
	case errors.Is(err, errTooLarge):
		return "", fmt.Errorf("is longer than %d KiB: shorten it", limit>>10)
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("does not exist")
	case errors.As(err, &failed): // its own text names the file once more
		return "", fmt.Errorf("can't be read: %w", failed.Err)
	case err != nil:
		return "", fmt.Errorf("can't be read: %w", err)
	}
	text := strings.TrimPrefix(string(data), "\uFEFF")
	for i, line := range strings.Split(text, "\n") {
		if !utf8.ValidString(line) {
			return "", fmt.Errorf("is not UTF-8 text (line %d): convert it", i+1)
		}
	}
	return strings.ReplaceAll(text, "\r\n", "\n"), nil
}
