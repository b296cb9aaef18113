package main

// codex_agree_test.go holds the two backends against each other: one MCP
// conversation, over app-server and over mcp-server, over the mock and over every
// real Codex of CODEX_BINS that has both, must read the same to the client. Ids,
// times and counts of tokens are made neutral; every other byte is compared.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
)

func TestCodexBackendsAgreeOverTheMock(t *testing.T) {
	prog := programPath(t)
	for _, version := range []string{"0.104.0", "0.153.0"} {
		t.Run(version, func(t *testing.T) {
			agree(t, func(t *testing.T, backend string) (*testClient, string) {
				home := t.TempDir()
				repo := filepath.Join(home, "repo")
				if err := makeGitRepo(repo, "main"); err != nil {
					t.Fatal(err)
				}
				c := startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: repo,
					args: []string{"serve", "--backend", backend},
					env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "USERPROFILE=" + home, "CODEX_HOME=" + home,
						"ATM_HOME=" + filepath.Join(home, "atm"), "MOCK_CODEX_VERSION=" + version}})
				return c, home
			})
		})
	}
}

func TestCodexBackendsAgree(t *testing.T) {
	bins := codexBinaries(t)
	prog := programPath(t)
	for _, bin := range bins {
		if exec.Command(bin.path, "help", "mcp-server").Run() != nil {
			continue
		}
		t.Run(bin.version, func(t *testing.T) {
			agree(t, func(t *testing.T, backend string) (*testClient, string) {
				l := newCodexLab(t, bin, prog)
				c := startClient(t, peerConfig{name: "atm-agent-mcp", path: prog, dir: l.repo, env: l.env(),
					args: []string{"serve", "--codex-bin", bin.path, "--backend", backend}})
				return c, l.home
			})
		})
	}
}

// agree has the conversation over both and compares what was recorded, step by step.
func agree(t *testing.T, start func(*testing.T, string) (*testClient, string)) {
	heard := map[string][]string{}
	for _, backend := range []string{"app-server", "mcp-server"} {
		t.Run(backend, func(t *testing.T) {
			c, home := start(t, backend)
			r := &recording{c: c, home: home, names: map[string]string{}}
			r.converse()
			heard[backend] = r.steps
			if want := map[string]int{"mcp-server": 2}[backend]; r.moved != want {
				t.Errorf("agents went to a fresh thread %d times, want %d: after the failure and for changed settings", r.moved, want)
			}
		})
	}
	one, two := heard["app-server"], heard["mcp-server"]
	if t.Failed() || len(one) != len(two) || len(one) < 20 {
		t.Fatalf("%d steps over app-server, %d over mcp-server", len(one), len(two))
	}
	for i := range one {
		if one[i] != two[i] {
			t.Errorf("they differ\nover app-server: %s\nover mcp-server: %s", one[i], two[i])
		}
	}
	if !t.Failed() {
		t.Logf("%d steps alike", len(one))
	}
}

// recording is a conversation with what the client saw in it.
type recording struct {
	c     *testClient
	home  string
	names map[string]string // agent ids, in the order of their first appearance
	steps []string
	moved int // how often an agent went to a fresh thread
}

func (r *recording) keep(step string, raw json.RawMessage) {
	r.c.tb.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		r.c.tb.Fatalf("%s: %v in %s", step, err, raw)
	}
	text, err := json.Marshal(r.neutral("", v))
	if err != nil {
		r.c.tb.Fatal(err)
	}
	r.steps = append(r.steps, step+": "+string(text))
}

// call keeps a call's answer, a result or an error, and returns it.
func (r *recording) call(step, tool string, args map[string]any) turnReply {
	r.c.tb.Helper()
	return r.end(step, r.c.call(tool, args))
}

func (r *recording) end(step string, p *pendingCall) (turn turnReply) {
	r.c.tb.Helper()
	m := p.wait()
	if m.Error != nil {
		raw, err := json.Marshal(m.Error)
		if err != nil {
			r.c.tb.Fatal(err)
		}
		r.keep(step, raw)
		return turn
	}
	r.keep(step, m.Result)
	var res callResult
	if err := json.Unmarshal(m.Result, &res); err != nil {
		return turn // structuredContent of another tool
	}
	return res.Turn
}

var (
	agentIDs    = regexp.MustCompile(`codex:[a-z0-9]{7}`)
	freshThread = regexp.MustCompile(`^\[thread \S+ can't go on: .*\(mcp-server\).*\]$`)
	countTexts  = regexp.MustCompile(`turns: \d+`)
	childTexts  = regexp.MustCompile(`\((app|mcp)-server, pid \d+\)`)
	timeTexts   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	uuidTexts   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// neutral takes out what differs from run to run, and the thread's id, which after a failed turn is a new one over
// mcp-server by design.
func (r *recording) neutral(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(v) { // in order, so that agents are numbered alike
			if k == "notes" && freshThread.MatchString(fmt.Sprint(v[k])) {
				r.moved++ // only mcp-server must do that, and says so
				continue
			}
			out[k] = r.neutral(k, v[k])
		}
		return out
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, r.neutral(key, e))
		}
		return list
	case float64:
		if key == "code" || key == "sessions" || strings.HasPrefix(key, "max") {
			return v
		}
		return "a number"
	case string:
		switch key {
		case "backend", "backend_kind", "threadId", "backend_id", "turn_id", "approval_id":
			return "a word"
		}
		if strings.HasSuffix(key, "_at") || key == "last_active" {
			return "a time"
		}
		if key == "text" { // a session in one line
			v = countTexts.ReplaceAllString(childTexts.ReplaceAllString(timeTexts.ReplaceAllString(v, "a time"), "(a child)"), "turns: a number")
		}
		v = strings.ReplaceAll(v, r.home, "HOME")
		v = agentIDs.ReplaceAllStringFunc(v, func(id string) string {
			if r.names[id] == "" {
				r.names[id] = fmt.Sprintf("agent-%d", len(r.names)+1)
			}
			return r.names[id]
		})
		return uuidTexts.ReplaceAllString(v, "UUID")
	}
	return v
}

func sortedKeys(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (r *recording) converse() {
	t, c := r.c.tb, r.c
	c.initialize("2025-06-18", askable())
	type args = map[string]any

	first := r.call("start", "codex", args{"prompt": "SAY first", "identity": "ann", "sandbox": "workspace-write", "approval-policy": "on-request"})
	ann := first.AgentID
	r.call("reply", "codex-reply", args{"agent_id": ann, "prompt": "SAY second"})
	r.call("reply by threadId", "codex-reply", args{"threadId": first.ThreadID, "prompt": "SAY third"})
	r.call("reply by conversationId", "codex-reply", args{"conversationId": first.ThreadID, "prompt": "SAY fourth"})
	r.call("a command", "codex-reply", args{"agent_id": ann, "prompt": "SHELL true\nSAY ran it"})

	for _, answer := range []args{{"action": "accept", "content": args{}}, {"action": "decline"}, {"action": "cancel"}, {"decision": "denied"}} {
		step := "an approval answered " + compact(answer)
		file := filepath.Join(r.home, "asked-for")
		call := c.call("codex-reply", args{"agent_id": ann, "prompt": "SHELLESC touch " + file + "\nSAY after it"})
		ask := c.awaitAsk("elicitation/create")
		c.reply(ask, answer)
		var p struct{ Message string }
		if err := json.Unmarshal(ask.Params, &p); err != nil || !strings.Contains(p.Message, "touch") {
			t.Errorf("%s: %v in %s", step, err, ask.Params)
		}
		r.end(step, call)
		_, err := os.Stat(file)
		r.steps = append(r.steps, fmt.Sprintf("%s: it ran: %v", step, err == nil))
		os.Remove(file)
	}

	r.call("the model fails", "codex-reply", args{"agent_id": ann, "prompt": "FAIL 500 boom"})
	r.call("reply after a failure", "codex-reply", args{"agent_id": ann, "prompt": "SAY well again"})
	hang := c.call("codex-reply", args{"agent_id": ann, "prompt": "HANG"})
	c.awaitNote("the turn", func(m wireMessage) bool {
		return m.Method == "codex/event" && (strings.Contains(string(m.Params), `"turn/started"`) || strings.Contains(string(m.Params), `"task_started"`))
	})
	hang.cancel("user")
	r.call("reply after a cancel", "codex-reply", args{"agent_id": ann, "prompt": "SAY mine"})
	r.call("reply after that", "codex-reply", args{"agent_id": ann, "prompt": "SAY mine too"})

	bob := r.call("a second agent", "codex", args{"prompt": "SAY hello", "identity": "bob", "sandbox": "read-only", "approval-policy": "never"}).AgentID
	r.call("one's settings changed", "codex", args{"agent_id": bob, "prompt": "SAY wider", "sandbox": "workspace-write"})
	r.call("rebound without a turn", "codex", args{"agent_id": bob})
	r.call("a name that is taken", "codex", args{"prompt": "SAY x", "identity": "ann"})
	r.call("an agent that is none", "codex-reply", args{"agent_id": "nobody-at-all", "prompt": "SAY x"})
	r.call("a bad sandbox", "codex", args{"prompt": "SAY x", "sandbox": "readonly"})
	r.call("an unknown argument", "codex", args{"prompt": "SAY x", "promt": "x"})
	r.call("no prompt", "codex", args{})
	r.call("a cwd that is none", "codex", args{"prompt": "SAY x", "cwd": "no/such/dir"})
	r.call("a role that is none", "codex", args{"prompt": "SAY x", "role": "nobody"})
	r.call("status", "agent_status", args{})
	r.call("sessions", "agent_sessions", args{})
	r.call("close", "agent_close", args{"agent_id": ann})
	r.call("a closed one", "codex-reply", args{"agent_id": ann, "prompt": "SAY x"})
	r.call("reopened", "codex", args{"agent_id": ann, "prompt": "SAY back"})
	r.call("close by name", "agent_close", args{"identity": "bob"})
	var tools json.RawMessage
	c.start("tools/list", args{}).result(&tools)
	r.keep("tools", tools)
	c.noStrays()
	c.finish()
}
