package main

// main_demo.go owns `atm-agent-mcp demo`: a short conversation of an MCP client with a real `serve` process over the
// built-in mock, in a temporary home. It shows what a user would see and, indented, what went over the wire. main.go
// calls it. It touches nothing outside its temporary directory.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// demoLimit ends a demo that hangs: it takes about a second.
const demoLimit = time.Minute

func runDemo(ctx context.Context, c *commandCall) int {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	home, err := os.MkdirTemp("", "atm-agent-mcp-demo-")
	if err != nil {
		return c.fail("making a temporary home: "+err.Error(), "")
	}
	defer os.RemoveAll(home)
	d := &demoClient{out: c.names.writer(c.stdout), names: c.names, home: home}
	if err := d.run(ctx); err != nil {
		complain(c.stderr, "the demo failed: "+err.Error(), "")
		if log := d.log.lastLine(); log != "" {
			fmt.Fprintf(c.stderr, "what serve said last: %s\n", log)
		}
		return 1
	}
	return 0
}

// A demoClient is the MCP client of the demo.
type demoClient struct {
	home  string     // the temporary home
	names *names     // that serve speaks in
	log   stderrTail // what serve says on stderr
	peer  *peer      // the connection to serve
	err   error      // the first call that failed, nil for none

	mu  sync.Mutex // guards out, which both sides of the conversation write to
	out io.Writer
}

func (d *demoClient) run(ctx context.Context) error {
	project := filepath.Join(d.home, "project")
	if err := makeDemoRepo(project); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "--compat", d.names.word(serverName), "serve", "--codex-bin", "mock",
		"--log-level", "warn")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "HOME="+d.home, "USERPROFILE="+d.home, "ATM_HOME="+d.home,
		"CODEX_HOME="+filepath.Join(d.home, ".codex"),
		"ATM_TEAM=", "ATM_IDENTITY=", "ATM_CONFIG=", "CLAUDE_CODE_SESSION_ID=", "CLAUDE_CONFIG_DIR=")
	for _, kv := range os.Environ() { // nobody's settings but the demo's
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, variablePrefix) ||
			strings.HasPrefix(name, oldVariablePrefix) {
			cmd.Env = append(cmd.Env, name+"=")
		}
	}
	cmd.Stderr = &d.log
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.home, ".codex"), 0o700); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.peer = newPeer(out, in, peerOptions{mode: framingNewline, handle: d.fromServer, trace: d.frame})
	read := make(chan struct{})
	go func() {
		defer close(read)
		_ = d.peer.run() // ends with the server; errors show as unanswered calls
	}()
	err = d.talk(project)
	d.peer.closeOut(time.Second)
	in.Close()
	<-read
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("serve ended with %w", werr)
	}
	return err
}

// talk is the conversation. After a call that failed nothing more is done.
func (d *demoClient) talk(project string) error {
	d.say("An MCP client starts `atm-agent-mcp serve` and says hello.")
	d.call("initialize", map[string]any{"protocolVersion": "2025-11-25",
		"capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo":   map[string]any{"name": "demo", "version": version()}})
	if d.err == nil {
		d.peer.notify("notifications/initialized", nil)
	}

	d.say("It starts an agent named \"scout\" and asks it for work. Codex (here: its mock) wants to run a command " +
		"outside its sandbox, so the client is asked.")
	list := "ls"
	if runtime.GOOS == "windows" {
		list = "dir"
	}
	res := d.tool("codex", map[string]any{"identity": "scout", "cwd": project,
		"prompt": "Say hello in a file and look around.\nPATCH hello.txt Hello from scout\nSHELLESC " + list +
			"\nSAY hello.txt is written; the directory holds it."})
	d.answer(res)

	d.say("It replies by agent_id: the same agent, the same conversation, also after a restart.")
	d.answer(d.tool("codex-reply", map[string]any{d.names.word("agent_id"): d.agentID(res),
		"prompt": "Thank you. What was the file called?\nSAY It is called hello.txt."}))

	d.say("It asks who is there, and closes the agent; the name is free again.")
	d.tell("    identities: %s", rawField(d.tool("agent_status", map[string]any{}), "identities"))
	d.tell("    status: %s", stringField(d.tool("agent_close", map[string]any{"identity": "scout"}), "status"))
	d.say("That is all. With a real Codex on PATH: claude mcp add codex -- atm-agent-mcp serve")
	return d.err
}

// tool calls a tool and returns its structured content.
func (d *demoClient) tool(name string, args map[string]any) json.RawMessage {
	name = d.names.word(name)
	res := d.call("tools/call", map[string]any{"name": name, "arguments": args,
		"_meta": map[string]any{"progressToken": name}})
	if string(rawField(res, "isError")) == "true" {
		d.err = fmt.Errorf("%s: %s", name, res)
	}
	return rawField(res, "structuredContent")
}

func (d *demoClient) call(method string, params any) (result json.RawMessage) {
	if d.err != nil {
		return nil
	}
	answered := make(chan error, 1)
	d.peer.call(method, params, demoLimit, func(res json.RawMessage, err error) {
		result = res
		answered <- err
	})
	if err := <-answered; err != nil {
		d.err = fmt.Errorf("%s: %w", method, err)
	}
	return result
}

// fromServer handles what serve asks and tells.
func (d *demoClient) fromServer(m *message) {
	switch m.method {
	case "notifications/progress":
		d.line("    … %s", stringField(m.params, "message"))
	case "elicitation/create":
		d.line("    ? %s", strings.ReplaceAll(stringField(m.params, "message"), "\n", "\n      "))
		d.line("    (the user says yes)")
		d.peer.reply(m.id, map[string]any{"action": "accept", "content": map[string]any{}})
	default:
		if m.isRequest() {
			d.peer.replyError(m.id, noMethod(m.method))
		}
	}
}

// frame shows one record of the wire, cut to a line.
func (d *demoClient) frame(dir string, rec []byte) {
	m, err := parseMessage(rec)
	if err != nil || m.method == "codex/event" {
		return // a dozen an answer; they would hide the conversation
	}
	d.line("      %s %s", map[string]string{">": "→", "<": "←"}[dir], clip(string(rec), 150))
}

func (d *demoClient) answer(res json.RawMessage) {
	d.tell("    %s (%s, %s): %s", stringField(res, "identity"), d.agentID(res),
		stringField(res, "turn_status"), stringField(res, "content"))
}

func (d *demoClient) agentID(res json.RawMessage) string {
	return stringField(res, d.names.word("agent_id"))
}

func (d *demoClient) say(text string) { d.tell("\n%s", text) }

// tell shows a line, unless a call has failed.
func (d *demoClient) tell(format string, args ...any) {
	if d.err == nil {
		d.line(format, args...)
	}
}

func (d *demoClient) line(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// makeDemoRepo makes a directory that reads as a git repository, without git.
func makeDemoRepo(dir string) error {
	err := errors.Join(os.MkdirAll(filepath.Join(dir, ".git", "refs", "heads"), 0o700),
		os.MkdirAll(filepath.Join(dir, ".git", "objects"), 0o700))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600)
}
