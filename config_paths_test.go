package main

// config_paths_test.go holds the names that become paths, the directories they are
// resolved in, and the nearest of the words that a mistyped one may mean.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidIdentity(t *testing.T) {
	for _, s := range []string{"a", "Z", "0", "codex", "codex-2", "Arch_CTM", "9-_", "a--", strings.Repeat("a", 64)} {
		if err := validIdentity(s); err != nil {
			t.Errorf("%q refused: %v", s, err)
		}
	}
	for _, s := range []string{"", " ", "a b", "-a", "_a", ".", "..", ".a", "a.b", "../a", "a/b", `a\b`, "/a", "a@b", "ä", "аrch", "a\n", "a\x00", "a:b", "~", "*", strings.Repeat("a", 65), "\xff"} {
		if err := validIdentity(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestValidTeam(t *testing.T) {
	for _, s := range []string{"a", "my-team", "My_Team", "team.one", "session-e9a98a05", "Tëam 1", "a b", "-a", "~x", strings.Repeat("a", 255)} {
		if err := validTeam(s); err != nil {
			t.Errorf("%q refused: %v", s, err)
		}
	}
	for _, s := range []string{"", " ", ".", "..", ".archives", "a/b", "../a", "/a", "a/", `a\b`, "a\n", "a\x00b", "\x7f", "a\xff", strings.Repeat("a", 256)} {
		if err := validTeam(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"model", "fast_model", "sandbox", "identity", "role"}
	for word, want := range map[string]string{
		"modle": "model", "MODEL": "model", "fastmodel": "fast_model", "sandbxo": "sandbox", "idnetity": "identity", "rol": "role",
		"": "", "x": "", "zebra": "", "completely-different": "", strings.Repeat("m", 10_000): "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", cutName(word), got, want)
		}
	}
	if got := nearest("a", nil); got != "" {
		t.Errorf("nearest of nothing is %q", got)
	}
}

func TestResolve(t *testing.T) {
	base, home := t.TempDir(), t.TempDir()
	for path, want := range map[string]string{
		"a": filepath.Join(base, "a"), "../a": filepath.Join(filepath.Dir(base), "a"), "~": home, "~/a": filepath.Join(home, "a"),
		"~a": filepath.Join(base, "~a"), filepath.Join(home, "x", "..", "y"): filepath.Join(home, "y"),
	} {
		if got := resolvePath(path, base, home); got != want {
			t.Errorf("resolve(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestOSHomeWithoutHOME(t *testing.T) {
	got, err := osHome(func(string) string { return "" })
	if err == nil && !filepath.IsAbs(got) {
		t.Errorf("home %q", got)
	}
	if got, err = osHome(func(string) string { return " /h " }); err != nil || got != "/h" {
		t.Errorf("home %q, %v", got, err)
	}
}

func TestReadSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := readRegular(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := readRegular(path, 4); err == nil || !strings.Contains(err.Error(), "over 4 bytes") {
		t.Errorf("got %v", err)
	}
	if _, err := readRegular(filepath.Dir(path), 4); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}
