package main

// The two values of a repository's config file that config_repo.go needs: where it was cloned from, and whether it is bare.
// It reads git's own syntax (git-config(1)), pure text in and values out; config_repo.go is its only caller.
// It must never fail over a line it doesn't understand: git itself will complain about that.

import "strings"

// scanGitConfig takes remote.origin.url and core.bare out of a repository's config file. Includes are not followed.
func scanGitConfig(data string) (origin string, bare bool) {
	c := gitConfigScanner{data: strings.TrimPrefix(data, "\uFEFF")}
	for c.next() {
		switch {
		case c.section == `remote "origin"` && c.key == "url" && (origin == "" || c.value == ""):
			origin = c.value // the first is the one that is fetched from; an empty one clears the list
		case c.section == "core" && c.key == "bare":
			switch strings.ToLower(c.value) {
			case "true", "yes", "on", "1":
				bare = true
			default:
				bare = false
			}
		}
	}
	return origin, bare
}

// gitConfigScanner walks over the entries of a config file: [section], [section "Sub"], [section.sub], key = value,
// key. What it can't read it skips to the end of the line.
type gitConfigScanner struct {
	data                string
	section, key, value string
}

func (c *gitConfigScanner) next() bool {
	for {
		c.data = strings.TrimLeft(c.data, " \t\r\n")
		if c.data == "" {
			return false
		}
		if c.data[0] == '[' {
			c.header()
			continue
		}
		n := 0
		for n < len(c.data) && isConfigName(c.data[n]) {
			n++
		}
		if n == 0 { // a comment, or nonsense
			c.skipLine()
			continue
		}
		c.key = strings.ToLower(c.data[:n])
		c.data = strings.TrimLeft(c.data[n:], " \t")
		if strings.HasPrefix(c.data, "=") {
			c.data = c.data[1:]
			c.value = c.scanText()
		} else {
			c.value = "true" // a key alone is a true switch
			c.skipLine()
		}
		return true
	}
}

func (c *gitConfigScanner) header() {
	c.section = ""
	var name strings.Builder
	quoted, hadQuote := false, false
	for i := 1; i < len(c.data); i++ {
		switch b := c.data[i]; {
		case b == '\n':
			c.data = c.data[i:]
			return
		case b == '\\' && quoted && i+1 < len(c.data):
			i++
			name.WriteByte(c.data[i])
		case b == '"':
			quoted, hadQuote = !quoted, true
			name.WriteByte(b)
		case b == ']' && !quoted:
			c.data = c.data[i+1:]
			c.section = name.String()
			if dotted, sub, ok := strings.Cut(c.section, "."); ok && !hadQuote { // the old spelling of a subsection
				c.section = dotted + ` "` + sub + `"`
			}
			if section, sub, ok := strings.Cut(c.section, " "); ok { // only the section's name ignores case
				c.section = strings.ToLower(section) + " " + strings.TrimLeft(sub, " \t")
			} else {
				c.section = strings.ToLower(c.section)
			}
			return
		default:
			name.WriteByte(b)
		}
	}
	c.data = ""
}

// scanText reads a value: quotes, escapes, comments, a backslash before the line's end.
func (c *gitConfigScanner) scanText() string {
	var out strings.Builder
	quoted, keep := false, 0 // keep: what trailing blanks are cut down to
	c.data = strings.TrimLeft(c.data, " \t")
	for i := 0; i < len(c.data); i++ {
		b := c.data[i]
		switch {
		case b == '\n' || !quoted && (b == '#' || b == ';'):
			c.data = c.data[i:]
			c.skipLine()
			return out.String()[:keep]
		case b == '"':
			quoted = !quoted
			keep = out.Len()
			continue
		case b == '\\' && i+1 < len(c.data):
			i++
			switch e := c.data[i]; {
			case e == '\n':
				continue
			case e == '\r' && i+1 < len(c.data) && c.data[i+1] == '\n':
				i++
				continue
			case e == 'n':
				out.WriteByte('\n')
			case e == 't':
				out.WriteByte('\t')
			case e == 'b':
				out.WriteByte('\b')
			default:
				out.WriteByte(e)
			}
			keep = out.Len()
			continue
		}
		out.WriteByte(b)
		if quoted || b != ' ' && b != '\t' && b != '\r' {
			keep = out.Len()
		}
	}
	c.data = ""
	return out.String()[:keep]
}

func (c *gitConfigScanner) skipLine() {
	if _, rest, ok := strings.Cut(c.data, "\n"); ok {
		c.data = rest
	} else {
		c.data = ""
	}
}

func isConfigName(b byte) bool {
	return b == '-' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
