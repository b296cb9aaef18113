package main

// session_names_test.go holds what a client of either name (config_names.go) is sent to that name's words: every tool
// with arguments that are right and that are wrong, in both eras, and all that comes beside the answers.

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func TestAClientHearsOneNamesWords(t *testing.T) {
	for other, n := range map[*regexp.Regexp]*names{theirWords: nil, ourWords: ancestorNames()} {
		t.Run(n.word(serverName), func(t *testing.T) {
			inBubble(t, map[string]string{"forward_events": "on"}, func(w *world) {
				w.cfg.names = n
				heard := 0
				w.heard = func(rec []byte) {
					heard++
					if stringField(rec, "method") == "codex/event" {
						rec = rawField(rec, "params", "_meta") // the rest is Codex's
					}
					if word := other.Find(rec); word != nil {
						w.t.Errorf("%s in %s", word, clip(string(rec), 2000))
					}
				}
				defer w.build(w.cfg)()
				w.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+elicits+`}`).ok(w.t)
				w.request("server/discover", modernOnly).ok(w.t)
				w.request("tools/list", "{}").ok(w.t)
				w.callEveryTool()
				w.liveAsAgents()
				if heard < 500 {
					w.t.Errorf("only %d records came", heard)
				}
			})
		})
	}
}

// callEveryTool calls each tool with each of its arguments wrong in each way.
func (w *world) callEveryTool() {
	failed := 0
	call := func(name string, args map[string]any) {
		raw := string(toJSON(args))
		for _, params := range []string{callParams(false, name, raw), callParams(true, name, raw)} {
			a := w.request("tools/call", params).wait()
			if a.err != nil || rawField(a.result, "isError") != nil {
				failed++
			}
		}
	}
	call("nope", nil)
	for _, row := range toolTable() {
		tool := w.cfg.names.word(row.name)
		base := map[string]any{}
		for _, a := range row.args {
			if slices.Contains(row.required, a.name) {
				base[a.name] = map[bool]any{true: true, false: "x"}[a.kind == "boolean"]
				if a.enum != nil {
					base[a.name] = a.enum[0]
				}
			}
		}
		call(tool, base)
		call(tool, map[string]any{})
		call(tool, map[string]any{"nope": 1})
		for _, a := range row.args {
			if a.old {
				continue // the other name's, which an error repeats
			}
			for _, value := range []any{"", " ", "codex:2222222", "no-such", []string{}, []string{""}, map[string]any{},
				-1, "01a2041b-7e8a-7bcd-9dd6-ccc4e6d65dd0"} {
				if a.name == "prompt" && value != "" {
					continue // no turn of its own
				}
				args := maps.Clone(base)
				args[w.cfg.names.word(a.name)] = value
				call(tool, args)
				args["identity"], args["prompt"] = "agents", " "
				call(tool, args)
			}
		}
	}
	if failed < 500 {
		w.t.Errorf("only %d calls went wrong", failed)
	}
}

// liveAsAgents takes agents through what can become of them.
func (w *world) liveAsAgents() {
	n := w.cfg.names
	word := n.word
	tool := func(name string, args ...any) json.RawMessage { return w.tool(word(name), args...).ok(w.t) }
	id := func(res json.RawMessage) string {
		w.t.Helper()
		agent := resultField(res, word("agent_id"))
		if !validAgentID(agent) {
			w.t.Fatalf("no id in %s", res)
		}
		return agent
	}
	ann := id(tool("codex", "identity", "ann", "prompt", "SAY one"))
	for _, name := range []string{"agent_id", "codex_id"} { // either is taken under both names
		tool("codex-reply", name, ann, "prompt", "SAY two")
		tool("agent_wait", name+"s", []string{ann}, "timeout_secs", 0)
		w.tool("atm_pending_count", name, ann).fails(w.t, codeInvalidSession, "there is no such team")
	}
	w.tool("codex-reply", "agent_id", ann, "threadId", "x", "prompt", "SAY x").fails(w.t, codeInvalidSession, "two names")
	w.tool("codex", "identity", "ann", "prompt", "SAY x").fails(w.t, codeIdentityConflict)
	w.tool("codex-reply", "agent_id", ann, "prompt", "FAIL x").wait()
	w.tool("codex-reply", "agent_id", ann, "prompt", "HANG", "timeout_secs", 1).fails(w.t, codeTimeout)
	tool("codex-reply", "agent_id", ann, "prompt", "SAY "+strings.Repeat("long ", 20<<10))
	tool("agent_wait", "agent_ids", []string{ann})
	call := w.tool("codex-reply", "agent_id", ann, "prompt", "SHELLESC ls") // asks the client
	synctest.Wait()
	w.mu.Lock()
	asked := slices.Clone(w.asked)
	w.mu.Unlock()
	w.is("asked", len(asked), 1)
	w.calls.reply(asked[0], map[string]any{"action": "decline"})
	call.ok(w.t)

	bob := id(tool("codex", "identity", "bob", "prompt", "SHELLESC ls", "background", true)) // asks the caller
	synctest.Wait()
	tool("agent_sessions")
	tool("agent_status")
	var shown struct {
		Content struct {
			Agents []struct {
				Asks []askShown `json:"pending_approvals"`
			} `json:"agents"`
		} `json:"structuredContent"`
	}
	wantNil(w.t, json.Unmarshal(tool("agent_wait", "agent_id", bob), &shown))
	ask := shown.Content.Agents[0].Asks[0]
	w.tool("agent_approve", "agent_id", bob, "approval_id", ask.ApprovalID, "action", "other", "decision", "deny").wait()
	tool("agent_approve", "agent_id", bob, "approval_id", ask.ApprovalID, "action", ask.Action, "decision", "deny")
	tool("agent_wait", "agent_id", bob)
	tool("agent_mail", "agent_id", bob, "auto", false)
	tool("codex", "prompt", "SAY fork", "fork_of", bob)
	tool("codex-reply", "agent_id", bob, "prompt", "HANG", "background", true)
	tool("codex-reply", "agent_id", bob, "prompt", "SAY behind it", "background", true)
	tool("agent_interrupt", "agent_id", bob)
	tool("agent_close", "agent_id", bob)
	tool("agent_close", "agent_id", bob)
	tool("agent_wait", "agent_id", bob)
	w.tool("codex-reply", "agent_id", bob, "prompt", "SAY x").fails(w.t, codeSessionClosed)
	w.tool("codex-reply", "identity", "bob", "prompt", "SAY x").fails(w.t, codeSessionNotFound)
	tool("codex", "agent_id", bob)

	// The era that has tasks, and asks by its answers.
	modern := func(meta, prompt string) json.RawMessage {
		return w.request("tools/call", callWith(meta, "codex", `{"prompt":"`+prompt+`"}`, "")).ok(w.t)
	}
	res := modern(askMeta, "SHELLESC ls")
	retry := callWith(askMeta, "codex", `{"prompt":"SHELLESC ls"}`, `,"inputResponses":{},"requestState":`+
		string(rawField(res, "requestState")))
	w.request("tools/call", strings.Replace(retry, "SHELLESC", "SAY", 1)).ok(w.t)
	w.request("tools/call", strings.Replace(retry, `"elicitation":{}`, "", 1)).ok(w.t)
	w.request("tools/call", retry).ok(w.t)
	for _, meta := range []string{tasksMeta, tasksAskMeta} {
		for _, prompt := range []string{"SHELLESC ls", "HANG", "SAY done", "FAIL x"} {
			task := `{` + meta + `,"taskId":` + string(rawField(modern(meta, prompt), "taskId")) + `}`
			synctest.Wait()
			for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/get"} {
				w.request(method, task).ok(w.t)
			}
			w.tool(word("agent_close"), "identity", "codex").wait()
		}
		w.request("tasks/get", `{`+meta+`,"taskId":"codex:2222222/turn"}`).wait()
	}
	w.childDies(ann)
	synctest.Wait()
	w.tool("codex-reply", "agent_id", ann, "prompt", "SAY x").fails(w.t, codeChildDead)
	tool("agent_status")
	tool("agent_sessions")
}

// A session of the ancestor's is resumed where and as whom it worked, by the id that its callers know, as often as they
// like.
func TestTheAncestorsIdsMeanItsSessions(t *testing.T) {
	inWorld(t, nil, "{}", func(t *testing.T, w *world) {
		dir := filepath.Join(w.cfg.cwd, "there")
		file := filepath.Join(w.cfg.ancestorRoot, "01a2041b-7e8a-7bcd-9dd6-ccc4e6d65dd1", "summary.md")
		for _, d := range []string{dir, filepath.Dir(file)} {
			wantNil(t, os.MkdirAll(d, 0o700))
		}
		wantNil(t, os.WriteFile(file, []byte("half done"), 0o600))
		wantNil(t, os.WriteFile(filepath.Join(w.cfg.ancestorRoot, "registry.json"), toJSON(map[string]any{
			"sessions": []any{map[string]any{"codex_id": "c-1", "identity": "ann", "cwd": dir,
				"thread_id": "01a2041b-7e8a-7bcd-9dd6-ccc4e6d65dd1"}}}), 0o600))
		w.tool("codex-reply", "codex_id", "c-2", "prompt", "SAY x").fails(t, codeSessionNotFound)
		ann := resultField(w.tool("codex", "codex_id", "c-1", "prompt", "SAY x").ok(t), "agent_id")
		w.is("identity", w.view(ann).Identity, "ann")
		w.is("cwd", w.view(ann).Cwd, dir)
		w.is("the same agent", resultField(w.reply("c-1", "SAY x").ok(t), "agent_id"), ann)
		w.tool("agent_close", "agent_id", ann).ok(t)
		w.is("reopened", resultField(w.tool("codex", "agent_id", "c-1").ok(t), "agent_id"), ann)
	})
}

// A fork begins with what the other agent touched, and what either touches then is its own.
func TestWorldForkTouchesItsOwn(t *testing.T) {
	inWorld(t, nil, noElicitation, func(t *testing.T, w *world) {
		patch := func(agent, files string) {
			w.reply(agent, "PATCH "+strings.ReplaceAll(files, " ", " text\nPATCH ")+" text\nSAY done").ok(t)
		}
		args := []any{"sandbox", "workspace-write", "approval-policy", "never", "prompt", "SAY one"}
		agent := resultField(w.tool("codex", args...).ok(t), "agent_id")
		patch(agent, "a b c")
		fork := resultField(w.tool("codex", append(args, "fork_of", agent)...).ok(t), "agent_id")
		patch(fork, "theirs")
		patch(agent, "ours")
		patch(fork, "theirs")
		var names []string
		for _, file := range w.record(fork).Digest.TouchedFiles {
			names = append(names, filepath.Base(file))
		}
		w.is("files of the fork", strings.Join(names, " "), "a b c theirs")
	})
}
