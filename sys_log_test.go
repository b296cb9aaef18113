package main

// sys_log_test.go holds the log to NFR-5 and NFR-3: levels, one structured line a
// message, what redact takes out and what it must leave, and a stderr that nobody
// reads.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRedact(t *testing.T) {
	// Secrets are put together here so that no scanner takes this file for a leak.
	const (
		jwt    = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
		github = "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
		aws    = "AKIA" + "IOSFODNN7EXAMPLE"
		slack  = "xoxb" + "-123456789012-abcdefABCDEF"
		google = "AIza" + "SyA1234567890abcdefghijklmnopqrstuv"
		openai = "sk-proj" + "-abc123DEF456ghi789jkl"
		pem    = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
	)
	for _, c := range []struct{ in, want string }{
		{"use " + openai + " please", "use [redacted] please"},
		{"sk-ant" + "-api03-AbCdEf0123456789_x-y", "[redacted]"},
		{"clone with " + github, "clone with [redacted]"},
		{"github_pat" + "_11ABCDEFG0123456789_abcdefghij", "[redacted]"},
		{"id " + aws + ".", "id [redacted]."},
		{slack + " and " + google, "[redacted] and [redacted]"},
		{"jwt " + jwt + " end", "jwt [redacted] end"},
		{"key:\n" + pem + "\nafter", "key:\n[redacted]\nafter"},
		{"cut off -----BEGIN RSA PRIVATE KEY-----\nMIIEow", "cut off [redacted]"},
		{`{"key":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`, `{"key":"[redacted]"}`},
		{"Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted]"},
		{"Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"},
		{`{"Authorization":"Bearer abcdef"}`, `{"Authorization":"Bearer [redacted]"}`},
		{"-H 'authorization: token abc'", "-H 'authorization: token [redacted]'"},
		{"send bearer a1b2c3d4e5", "send bearer [redacted]"},
		{"Cookie: session=abc; theme=dark\nHost: x", "Cookie: [redacted]\nHost: x"},
		{"password=hunter2", "password=[redacted]"},
		{"Password: hunter2, user: bob", "Password: [redacted], user: bob"},
		{"export OPENAI_API_KEY=abc123 && run", "export OPENAI_API_KEY=[redacted] && run"},
		{`DB_PASSWORD="two words" x`, `DB_PASSWORD="[redacted]" x`},
		{"GITHUB_TOKEN='abc'", "GITHUB_TOKEN='[redacted]'"},
		{`{"api_key":"v\"1","n":1}`, `{"api_key":"[redacted]","n":1}`},
		{`{"apiKey": "v1", "secret": 42}`, `{"apiKey": "[redacted]", "secret": [redacted]}`},
		{`{"body":"{\"password\":\"hunter2\",\"n\":1}"}`, `{"body":"{\"password\":\"[redacted]\",\"n\":1}"}`},
		{"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [redacted]"},
		{`client_secret := "s3cret"`, `client_secret := "[redacted]"`},
		{"deploy --token abc123 --force", "deploy --token [redacted] --force"},
		{"deploy --api-key=abc123 --force", "deploy --api-key=[redacted] --force"},
		{"https://bob:hunter2@example.com/x", "https://[redacted]@example.com/x"},
		{"postgres://u:p%40ss@db:5432/app", "postgres://[redacted]@db:5432/app"},
		{"https://0123456789abcdef0123@dev.example.com", "https://[redacted]@dev.example.com"},
		{"GET /x?token=abc&page=2", "GET /x?token=[redacted]&page=2"},
		{"https://h/x?a=1&X-Amz-Signature=ab12&b=2", "https://h/x?a=1&X-Amz-Signature=[redacted]&b=2"},
		{"redis://:pw@cache:6379", "redis://[redacted]@cache:6379"},
		{"password=hunter2 password=hunter3", "password=[redacted] password=[redacted]"},
		{"password='never closed", "password='[redacted]"},
		{"password:\nhunter2 x", "password:\n[redacted] x"},
		{`{"message":"password:\nhunter2 x"}`, `{"message":"password:\n[redacted] x"}`},
		{"secret: |\n  hunter2\nuser: bob", "secret: |\n  [redacted]\nuser: bob"},
		{"the password is hunter2 and the API key was 'a1b2c3d4'", "the password is [redacted] and the API key was '[redacted]'"},
		{"Password：hunter2", "Password：[redacted]"},
	} {
		got := redact(c.in)
		if got != c.want {
			t.Errorf("redact(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
		if again := redact(got); again != got {
			t.Errorf("redact is not idempotent: %q, then %q", got, again)
		}
		if json.Valid([]byte(c.in)) && !json.Valid([]byte(got)) && !strings.Contains(c.in, "42") {
			t.Errorf("redact broke JSON: %q", got)
		}
	}
}

func TestRedactLeavesOrdinaryText(t *testing.T) {
	for _, s := range []string{
		"", "fix", "Refactor the tokenizer and its tests",
		"max_tokens=4096, total_tokens: 12", `{"input_tokens":120,"token_count":7}`,
		"implement the password reset flow", "basic authentication is enough",
		"bearer authentication, bearer of bad news", "the secretary=Bob",
		"commit c0043a5f7e1d2b3a4c5d6e7f8091a2b3c4d5e6f7",
		"thread 019a2f3e-7b4c-7d21-9f10-8e2a5b6c7d8e of codex:k7m3pqx",
		"see https://example.com:8080/a@v1.2/b?x=1#y", "git clone ssh://git@github.com/a/b.git",
		"mail bob@example.com", "go get golang.org/x/sys@v0.38.0",
		"sk-toggleable__label-arrow", "task-management-dashboard", "disk-usage",
		"if token == nil || password != want {", "token=$TOKEN password=${PW} secret=<your secret>",
		`"token": null, "password": ""`, "password: ***", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"git commit -m message --no-verify", "eyJust a word", "AIzawa and the SG.1 unit", "grep -n token file.go",
		"the token is invalid, the password is wrong, the secret is out; token is 4096",
	} {
		if got := redact(s); got != s {
			t.Errorf("redact(%q) = %q", s, got)
		}
	}
}

func TestLoggerWritesOneRedactedLine(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, "info")
	log.Debug("not shown")
	log.With("team", "red").Warn("login failed\npassword=hunter2", "error", errors.New("token=abc"), "token", "plain",
		slog.Group("g", "msg", "Bearer abcdef123456"), "raw", []byte("secret=x\xff"), "n", 3)
	line := out.String()
	if !strings.HasPrefix(line, "atm-agent-mcp: time=") || strings.Count(line, "\n") != 1 {
		t.Errorf("line = %q", line)
	}
	for _, want := range []string{" level=warn ", `msg="login failed\npassword=[redacted]"`, "team=red", `error="token=[redacted]"`,
		"token=[redacted]", `g.msg="Bearer [redacted]"`, `raw="secret=[redacted]"`, "n=3\n"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %q", want, line)
		}
	}
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[string]string{
		"error": "e", "warn": "ew", "info": "ewi", "debug": "ewid", "trace": "ewidt", "TRACE": "ewidt", "nonsense": "ewi",
	} {
		var out bytes.Buffer
		log := newLogger(&out, level)
		for i, l := range []slog.Level{slog.LevelError, slog.LevelWarn, slog.LevelInfo, slog.LevelDebug, levelTrace} {
			log.Log(t.Context(), l, "ewidt"[i:i+1])
		}
		got := ""
		for line := range strings.Lines(out.String()) {
			got += strings.TrimSpace(line[strings.Index(line, "msg=")+4:])
		}
		if got != want {
			t.Errorf("level %q wrote %q, want %q", level, got, want)
		}
		if _, err := parseLogLevel(level); (err != nil) != (level == "nonsense") {
			t.Errorf("parseLogLevel(%q): %v", level, err)
		}
	}
	var out bytes.Buffer
	newLogger(&out, "trace").Log(t.Context(), levelTrace, "raw")
	if !strings.Contains(out.String(), " level=trace ") {
		t.Errorf("line = %q", out.String())
	}
}

func BenchmarkRedact(b *testing.B) {
	text := strings.Repeat("Please refactor the session loop so that a cancel can overtake a start; see session.go. ", 40)[:3200]
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		redact(text)
	}
}

// A client that never reads our stderr must hold nothing up: past the budget
// lines are lost.
func TestLogNobodyReads(t *testing.T) {
	r, w := io.Pipe() // nobody reads
	out := newOutbox(w, 10<<10, nil)
	log := newLogger(lineWriter{out}, "info")
	for range 10000 {
		log.Info("a line that nobody reads")
	}
	if got := out.size(); got > 11<<10 {
		t.Fatalf("%d bytes wait, more than the budget", got)
	}
	r.Close()
	out.close(time.Second)
}
