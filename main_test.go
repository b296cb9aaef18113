package main

// main_test.go holds `acp login` to be the login of the codex that acp would
// start, whatever a client put around it, and acp's command line to its words.

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestACPLoginCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its codex is a shell script")
	}
	dir := t.TempDir()
	codex := filepath.Join(dir, "my-codex")
	script := "#!/bin/sh\necho \"args: $*\"\nread line\necho \"read: $line\"\necho oops >&2\nexit ${CODE:-0}\n"
	if err := os.WriteFile(codex, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Chdir(dir)
	for _, tt := range []struct {
		args, code, want string
	}{
		{"acp --codex-bin " + codex + " login", "", "args: login\nread: typed\n"},
		{"acp --codex-bin " + codex + " login --device-auth -c x=y", "", "args: login --device-auth -c x=y\nread: typed\n"},
		{"acp --codex-bin " + codex + " --identity x acp login", "", "args: login\nread: typed\n"},
		{"acp --codex-bin=" + codex + " login", "7", "args: login\nread: typed\n"},
	} {
		t.Setenv("CODE", tt.code)
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(tt.args), strings.NewReader("typed\n"), &out, &errs)
		if want := map[string]int{"": 0, "7": 7}[tt.code]; code != want || out.String() != tt.want || errs.String() != "oops\n" {
			t.Errorf("%s: code %d, %q, %q", tt.args, code, out.String(), errs.String())
		}
	}
}

func TestACPCommandLine(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for args, want := range map[string]struct {
		code  int
		words string
	}{
		"acp logn":                       {2, `did you mean "login"?`},
		"acp acp":                        {2, `takes no argument "acp"`},
		"acp --restart-child":            {2, "restart-child"},
		"acp --identty x":                {2, "--identity"},
		"acp --sandbox reckless":         {2, "reckless"},
		"acp --codex-bin /no/such login": {1, "/no/such"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(args), strings.NewReader(""), &out, &errs)
		if code != want.code || !strings.Contains(errs.String(), want.words) || out.Len() > 0 {
			t.Errorf("%s: code %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}
