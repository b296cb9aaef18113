package main

// config_windows_test.go holds what paths mean on Windows, and that none is missed for being written in another way.

import (
	"strings"
	"testing"
)

func TestPathsOfDrives(t *testing.T) {
	for path, want := range map[string]string{`D:\x`: `D:\x`, `d:/x/../y`: `d:\y`, `\x`: `C:\x`, `/x y`: `C:\x y`,
		`x/y`: `C:\base\x\y`, `~/x`: `C:\Users\u\x`, `~\x`: `C:\Users\u\x`, `\\srv\share\x`: `\\srv\share\x`,
		`//srv/share/x`: `\\srv\share\x`, "nul": "NUL", `nul\x`: `C:\base\nul\x`} {
		if got := resolvePath(path, `C:\base`, `C:\Users\u`); got != want {
			t.Errorf("resolve(%q) = %q, want %q", path, got, want)
		}
	}
}

// Windows takes dots and spaces off the end of a name: two names would be one team's directory.
func TestTeamNamesOfWindows(t *testing.T) {
	for _, name := range []string{"x.", "x ", "x. .", "a:b", "a*b", `a"b`, "NUL", "con", "aux.txt", "COM¹"} {
		if err := validTeam(name); err == nil || !strings.Contains(err.Error(), "on Windows") {
			t.Errorf("%q as a team's name: %v", name, err)
		}
	}
	if err := validIdentity("NUL"); err == nil || !strings.Contains(err.Error(), "device on Windows") {
		t.Error(err)
	}
	for _, name := range []string{"x.lock", "a b", "té", "com", "Nul-1"} {
		wantNil(t, validTeam(name))
	}
}

// A home and a mark of distrust hold for a directory in whatever case a client writes its name.
func TestPolicyIsBlindToCase(t *testing.T) {
	in := repoInput()
	in.cfg.home = `C:\Users\U`
	for _, c := range []struct{ cwd, user, note string }{
		{`c:\users\u`, `{}`, "is the home directory"},
		{`c:/Users/u/`, `{}`, "is the home directory"},
		{`C:\R`, `{"projects":{"c:\\r":{"trust_level":"untrusted"}}}`, "as untrusted"},
	} {
		in.cwd, in.repoRoot, in.user = c.cwd, c.cwd, userSays(c.user)
		wantSettings(t, in, "read-only on-request", c.note)
	}
}
