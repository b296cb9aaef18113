package main

// Names and directories: which names may become paths, and where the team's files and ours are.
// config.go asks it once at start; tools and commands ask it about every name a caller gives, so that a name is
// checked where it enters and never again (style: names that become paths).
// It creates nothing and keeps nothing.

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	_ "embed"
	"io/fs"
)

var identityRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// validIdentity checks an agent's name: the rule of Claude Code's own Agent tool, so that Claude can write to it.
// Identities are compared without case (strings.EqualFold).
func validIdentity(s string) error {
	switch {
	case s == "":
		return errors.New("an identity can't be empty")
	case len(s) > 64:
		return fmt.Errorf("identity %q is longer than 64 characters", cutName(s))
	case !identityRule.MatchString(s) || !filepath.IsLocal(s): // IsLocal: on Windows, NUL and its like are devices
		return fmt.Errorf("identity %q is no name: use letters a-z, digits, - and _, and begin with a letter or digit", s)
	}
	return nil
}

// validTeam checks a team's name. Existing team directories are taken as they are, so it asks only for one plain
// path element that doesn't begin with a dot (teams/.archives is not a team).
func validTeam(s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return errors.New("a team name can't be empty")
	case len(s) > 255:
		return fmt.Errorf("team name %q is longer than 255 bytes", cutName(s))
	case strings.ContainsAny(s, `/\`) || !filepath.IsLocal(s):
		return fmt.Errorf("team name %q is a path: give the name of one directory in the teams folder", s)
	case strings.HasPrefix(s, "."):
		return fmt.Errorf("team name %q begins with a dot", s)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("team name %q has a character that can't be printed", s)
	}
	return nil
}

// osHome finds the user's home directory, without HOME too (a service has none).
func osHome(env func(string) string) (string, error) {
	name := "HOME"
	if runtime.GOOS == "windows" {
		name = "USERPROFILE"
	}
	if h := strings.TrimSpace(env(name)); h != "" {
		return h, nil
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", fmt.Errorf("there is no home directory: set %s or ATM_HOME", name)
}

// directories are where things are; all absolute.
type directories struct {
	cwd, home               string
	atmHome                 string // ATM_HOME, else home
	teamsRoot, sessionsRoot string
}

// findDirectories: ATM goes by ATM_HOME, Claude Code by CLAUDE_CONFIG_DIR.
func findDirectories(env func(string) string, cwd string) (directories, error) {
	var d directories
	var err error
	if d.cwd, err = filepath.Abs(cwd); err != nil {
		return d, fmt.Errorf("finding the working directory: %w", err)
	}
	from := func(name string) string {
		v := strings.TrimSpace(env(name))
		if v != "" && !filepath.IsAbs(v) {
			v = filepath.Join(d.cwd, v)
		}
		return v
	}
	d.atmHome = from("ATM_HOME")
	if d.home, err = osHome(env); err != nil && d.atmHome == "" {
		return d, err
	}
	claude := filepath.Join(d.home, ".claude")
	if dir := from("CLAUDE_CONFIG_DIR"); dir != "" {
		claude = dir
	}
	if d.atmHome != "" {
		claude = filepath.Join(d.atmHome, ".claude")
	} else {
		d.atmHome = d.home
	}
	d.teamsRoot = filepath.Join(claude, "teams")
	d.sessionsRoot = filepath.Join(d.atmHome, ".config", "atm", "agent-sessions")
	return d, nil
}

// resolvePath makes a path of the configuration absolute: ~/ is the home, the rest is relative to base.
func resolvePath(path, base, home string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) && home != "" {
		return filepath.Join(home, rest)
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// readTextFile reads a regular UTF-8 file of at most limit bytes, without byte order mark and with \n line ends.
// Its errors go on where a sentence has named the file.
func readTextFile(path string, limit int64) (string, error) {
	data, err := readRegular(path, limit)
	if err != nil {
		info, err2 := os.Stat(path) // for the words only
		switch {
		case err2 == nil && errors.Is(err, errNotRegular):
			return "", errors.New(irregular(info.Mode()))
		case err2 == nil && errors.Is(err, errTooLarge):
			return "", fmt.Errorf("is longer than %d KiB (it has %d bytes): shorten it", limit>>10, max(info.Size(), limit+1))
		}
		return "", unreadable(err)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("is not UTF-8 text (line %d): convert it", badLine(data))
	}
	return strings.ReplaceAll(strings.TrimPrefix(string(data), "\uFEFF"), "\r\n", "\n"), nil
}

func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("does not exist")
	}
	var p *fs.PathError // its text repeats the path
	if errors.As(err, &p) {
		return fmt.Errorf("can't be read: %w", p.Err)
	}
	return fmt.Errorf("can't be read: %w", err)
}

func irregular(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "is a directory: name the file in it"
	case mode&fs.ModeNamedPipe != 0:
		return "is a named pipe, not a regular file"
	case mode&fs.ModeSocket != 0:
		return "is a socket, not a regular file"
	case mode&fs.ModeDevice != 0:
		return "is a device, not a regular file"
	}
	return "is not a regular file"
}

func badLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[n:]
	}
	return line
}
