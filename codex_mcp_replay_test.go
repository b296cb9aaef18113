package main

// codex_mcp_replay_test.go plays what real `codex mcp-server`s said, from
// testdata/recordings, to the driver: what codex_app_replay_test.go does for
// app-server.

import (
	"strings"
	"testing"
)

// TestMCPReplay plays what real mcp-servers said, and lets the driver do what
// the recorded client did: as in TestAppReplay the golden file holds what the
// sessions heard and, behind "> ", what the driver sent. A recorded client that
// goes on in a thread after a failed turn stops there: the driver refuses to.
func TestMCPReplay(t *testing.T) { eachRecording(t, "mcp-server", 11, replayMCP) }

func replayMCP(t *testing.T, lines []recorded) string {
	p := newMCPPeer(t)
	out := &strings.Builder{}
	ids := map[string]string{}     // recorded id of a call → the driver's
	heardBy := map[string]*heard{} // by the driver's name of a thread
	names := []string{}
	ask, shook := "", make(chan error, 1)
	settle := func() (refused bool) {
		for _, name := range names {
			h := heardBy[name]
			if last := h.last(); last.kind == evAsk {
				ask = last.ask.id
			}
			s := h.take()
			if s != "" {
				out.WriteString(s + "\n")
			}
			refused = refused || strings.HasPrefix(s, "refused")
		}
		return refused
	}
	set := turnSettings{Cwd: "/w", Approval: "on-request", Sandbox: "workspace-write"}
	for _, l := range lines {
		m, err := parseMessage(l.Msg)
		if err != nil {
			t.Fatal(err)
		}
		if l.Dir == "<" {
			line := string(l.Msg)
			if m.isResponse() {
				line = `{"jsonrpc":"2.0","id":` + ids[string(m.id)] + `,"result":` + string(m.result) + `}`
			} else if id := string(rawField(m.params, "_meta", "requestId")); id != "" {
				line = strings.Replace(line, `"requestId":`+id, `"requestId":`+ids[id], 1)
			}
			p.say("%s", line)
			if m.isResponse() && ids[string(m.id)] == "1" {
				p.expect("notifications/initialized")
				id := p.expect("tools/list").id
				p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, toolsOf(t, stringField(m.result, "serverInfo", "version")))
				if err := <-shook; err != nil {
					t.Fatal(err)
				}
			}
			settle()
			continue
		}
		settle()
		switch {
		case m.method == "initialize":
			go func() { shook <- p.m.initialize(t.Context()) }()
			ids[string(m.id)] = string(p.expect("initialize").id)
			continue
		case m.method == "notifications/initialized":
			continue
		case m.method == "tools/call" && stringField(m.params, "name") == "codex":
			h := &heard{}
			p.m.open(1, threadSpec{Settings: set, Config: rawField(m.params, "arguments", "config")}, h.to)
			name := h.last().thread
			heardBy[name], names = h, append(names, name)
			p.m.do(2, name, command{kind: cmdTurn, prompt: stringField(m.params, "arguments", "prompt"), settings: set})
		case m.method == "tools/call":
			p.m.do(3, stringField(m.params, "arguments", "threadId"), command{kind: cmdTurn, prompt: stringField(m.params, "arguments", "prompt"), settings: set})
			if settle() {
				return out.String()
			}
		case m.method == "notifications/cancelled":
			p.m.do(4, p.threadOf(ids[string(rawField(m.params, "requestId"))]), command{kind: cmdInterrupt})
		case m.method == "":
			d := deny
			if string(rawField(m.result, "decision")) == `"approved"` {
				d = approve
			}
			p.m.do(0, "", command{kind: cmdAnswer, ask: ask, decision: d, why: "declined (client)"})
			r := p.reply()
			if id, _, _ := strings.Cut(r, " "); id != string(m.id) {
				t.Errorf("answered request %s, want %s", id, m.id)
			}
			out.WriteString("> reply " + r + "\n")
			continue
		default:
			t.Fatalf("the recorded client sent %s: teach the test", m.method)
		}
		d := p.expect(m.method)
		if m.id != nil {
			ids[string(m.id)] = string(d.id)
		}
		out.WriteString("> " + d.method + " " + string(d.id) + " " + string(d.params) + "\n")
	}
	settle()
	return out.String()
}
