package main

// acp_test.go holds the ACP front to what its client may send and gets for it: the
// handshake, codes and words of what is refused, logging in, lists of sessions, and
// the options of a session: which there are in which state, what a choice changes,
// and that both forms of the mode stay in step on the wire.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestACPRequests: the handshake, and what is refused with which words.
func TestACPRequests(t *testing.T) {
	var r *acpFrontRig
	playCases(t, "requests", func(line string) []string {
		if strings.HasPrefix(line, "## ") {
			r = newACPFrontRig(t, func(r *acpFrontRig, o *acpOptions) {
				if o.Kept = line != "## nothing kept"; !strings.HasPrefix(line, "## bad input") {
					r.ready = make(chan struct{})
				}
				o.retune = func(string, settingsChange,
					func(sessionSettings, *rpcError)) {
					t.Error("an option was changed")
				}
			})
			if r.ready == nil {
				r.hello("{}")
				r.open()
				r.notify("$/unknown", `{}`)
			}
			return nil
		}
		method, params, _ := strings.Cut(line, " ")
		got := r.call(method, strings.Replace(params, `"S"`, `"`+r.session+`"`, 1))
		return []string{string(cmp.Or(stringField(got, "error", "message"), string(rawField(got, "result")))) +
			" " + string(rawField(got, "error", "code"))}
	})

	r.send("{bad")
	got := r.next()
	failsWith(t, got, codeParse)
	want(t, string(rawField(got, "id")), "null") // MCP has none
	id := r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"logout"}`)
	failsWith(t, r.next(), codeInvalidRequest, "already in use")
	r.f.done(receive(t, r.submits).w, turnResult{err: proxyError(codeInvalidSession, "cwd /w does not exist")})
	r.fails(id, codeInvalidParams, "cwd /w does not exist")
	r.nothing()
}

// TestACPErrors: what the hub says is told with ACP's codes, in words for who
// has an editor and no MCP tools.
func TestACPErrors(t *testing.T) {
	f := newACPFrontRig(t, nil).f
	child := func(code int, msg, data string) *rpcError {
		return childError("start the turn", withLogin(&backendError{Code: code, Message: msg,
			Data: json.RawMessage(data)}))
	}
	never := &childDeath{Never: true, Reason: "could not be started: no codex"}
	for _, tt := range []struct {
		e     *rpcError
		code  int
		words string
	}{
		{deathError(&childDeath{Reason: "exit code 3"}, true), codeInternal, "the next prompt starts Codex again"},
		{deathError(never, true), codeInternal, "no codex"},
		{closedError("codex:a", "session a is broken: x", "recover"), codeInternal, "the next prompt opens it again"},
		{stoppingError(), codeInternal, "load the session"},
		{proxyAdvice(codeTimeout, remedyGoOn, "silent for 5m; it was interrupted",
			". Agent a keeps its context: continue with codex-reply. Its answer so far: half", "limit",
			"request_timeout_secs", "partial", "half"), codeInternal,
			"the next prompt goes on, request_timeout_secs in the configuration sets the limit. Its answer so far: half"},
		{heldError(&heldBy{what: "thread", name: "T", agentID: "codex:b", pid: 42}, "codex:a", "ann", ""), codeInternal,
			"this session is in use by agent codex:b in process 42, another atm-agent-mcp; close it there, or wait"},
		{heldError(nameHeld("ann", "codex:a", 42), "codex:a", "ann", "ann-2"), codeInternal,
			"this session is in use by agent codex:a in process 42, another atm-agent-mcp; close it there, or wait"},
		{heldError(nameHeld("ann", "codex:b", 42), "codex:a", "ann", "ann-2"), codeInternal, `identity "ann-2" is free`},
		{heldError(&memberTaken{name: "ann", team: "t"}, "codex:a", "ann", "ann-2"), codeInternal, `"ann-2" is free`},
		{childError("open", callError(&rpcError{Code: codeInvalidRequest,
			Message: "thread t already has an active writer"})), codeInternal,
			"by another Codex, such as its command line or an IDE's, which doesn't say what process it is; close it there"},
		{childError("open", callError(&rpcError{Code: codeInvalidRequest,
			Message: `bad: {"error":{"message":"no such model","code":"x"}}, url: u`})), codeInternal,
			"open: bad: no such model, url: u"},
		{proxyError(codeInvalidSession, "cwd /x does not exist"), codeInvalidParams, "cwd /x does not exist"},
		{child(-32602, "Input exceeds the maximum length of 1048576 characters.",
			`{"code":-32602,"data":{"input_error_code":"input_too_large"}}`), codeInvalidParams, "Send less at once"},
		{child(-32600, "busy", `{"code":-32600}`), codeInternal, "busy"},
		{child(-32600, "x (Codex is not logged in, or its key was refused: run `codex login` in a terminal and try "+
			"again)",
			`{"code":-32600}`), codeAuthRequired, "not logged in"},
		{&rpcError{Code: codeInvalidParams, Message: "ours already"}, codeInvalidParams, "ours already"},
	} {
		got := f.acpError(tt.e)
		failsWith(t, toJSON(map[string]any{"error": got}), tt.code, tt.words)
		if w := cmp.Or(editorHasNo().FindString(got.Message), codeName(tt.e.Code)+":"); strings.Contains(got.Message, w) {
			t.Errorf("message %q has %q", got.Message, w)
		}
	}
}

// editorHasNo finds what somebody with an editor doesn't have: our MCP tools and flags.
func editorHasNo() *regexp.Regexp {
	var tools []string
	for _, tool := range toolTable() {
		if tool.name != "codex" { // Codex is called so, too
			tools = append(tools, tool.name)
		}
	}
	var flags []string
	for _, row := range append(serveRows(), acpRows()...) {
		flags = append(flags, row.name)
	}
	return regexp.MustCompile(`\b(` + strings.Join(tools, "|") + `)\b|\bcodex \{|\bcall codex\b|--(` +
		strings.Join(flags, "|") + `)\b`)
}

// TestErrorsSayWhatAnEditorsUserHas: what happened is told to both kinds of clients, so
// that part of an error's words, a note's and all that the ACP front says itself name
// no tool and no flag. What a model is to do with its tools stands in the advice.
func TestErrorsSayWhatAnEditorsUserHas(t *testing.T) {
	has := editorHasNo()
	words := map[string]int{"proxyError": 1, "proxyAdvice": 2, "childSays": 1, "childError": 0, "closedError": 1}
	found := 0
	for name, text := range goFiles(t, runtime.GOOS) {
		family, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
		if !slices.Contains([]string{"config", "registry", "codex", "session", "acp"}, family) {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		wantNil(t, err)
		check := func(n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					found++
					if bad := has.FindString(lit.Value); bad != "" {
						t.Errorf("%s: %s has %q", files.Position(lit.Pos()), lit.Value, bad)
					}
				}
				return true
			})
		}
		if family == "acp" {
			check(file)
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch what := types.ExprString(call.Fun); {
			case words[what] > 0 && len(call.Args) > words[what]:
				check(call.Args[words[what]])
			case what == "append" && strings.HasSuffix(strings.ToLower(types.ExprString(call.Args[0])), "notes"):
				check(call)
			}
			return true
		})
	}
	if found < 500 {
		t.Errorf("only %d texts were looked at", found)
	}
}

// TestACPListPages: a cursor goes on where its page ended, though newer sessions
// come and one of them is prompted meanwhile.
func TestACPListPages(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newACPFrontRig(t, nil)
	add := func(n int, dir string, when time.Time) {
		id := fmt.Sprintf("sess_%03d", n)
		r.known[id] = clientSession{Session: id, Cwd: systemPath(dir), Updated: when, Title: "t",
			Roots: []string{systemPath("/r")}}
	}
	for n := range 120 {
		add(n, "/a", at.Add(time.Duration(n/3)*time.Second)) // three of each moment
	}
	add(500, "/b", at)
	r.hello(`{}`)
	list := func(params string) (ids []string, next string) {
		got := rawField(r.call("session/list", params), "result")
		eachElement(rawField(got, "sessions"), func(s json.RawMessage) {
			ids = append(ids,
				stringField(s, "sessionId"))
		})
		return ids, stringField(got, "nextCursor")
	}
	all, cursor := list(`{"cwd":"/a/./x/.."}`)
	if len(all) != sessionsPage || all[0] != "sess_117" {
		t.Errorf("first page has %d, from %s", len(all), all[0])
	}
	add(900, "/a", at.Add(time.Hour))
	for cursor != "" {
		var ids []string
		ids, cursor = list(`{"cwd":"/a","cursor":"` + cursor + `"}`)
		all = append(all, ids...)
	}
	slices.Sort(all)
	if n := len(all); n != 120 || len(slices.Compact(all)) != n || slices.Contains(all, "sess_500") ||
		slices.Contains(all, "sess_900") {
		t.Errorf("told %d sessions: %q", n, all)
	}
	if ids, _ := list(`{"cwd":"/b"}`); len(ids) != 1 {
		t.Errorf("of /b: %q", ids)
	}
	want(t, string(rawField(r.call("session/list", `{"cwd":"/none"}`), "result")), `{"sessions":[]}`)

	// A name is a UUID of version 7: later ones stand behind earlier ones.
	a, b := newSessionName(time.UnixMilli(1_700_000_000_000)), newSessionName(time.UnixMilli(1_700_000_000_001))
	if a >= b || len(a) != 41 || !strings.HasPrefix(a, "sess_018bcfe5-6800-7") ||
		!strings.ContainsRune("89ab", rune(a[24])) {
		t.Errorf("%s, %s", a, b)
	}
}

// modelCatalog is what 0.104 to 0.169 answer to model/list, shortened.
const modelCatalog = `{"data":[` +
	`{"id":"big","model":"big","displayName":"Big","description":"The big one","hidden":false,"isDefault":true,` +
	`"supportedReasoningEfforts":[{"reasoningEffort":"low","description":"Fast"},{"reasoningEffort":"medium"},` +
	`{"reasoningEffort":"xhigh"}],"defaultReasoningEffort":"medium","inputModalities":["text","image"],"upgrade":null},` +
	`{"id":"small","model":"small","displayName":"Small","inputModalities":["text"],"defaultReasoningEffort":"high",` +
	`"supportedReasoningEfforts":[{"reasoningEffort":"low"},{"reasoningEffort":"high"}]},` +
	`{"id":"plain","model":"plain","displayName":"","supportedReasoningEfforts":[]},{"id":7},` +
	`{"id":"old","model":"old","displayName":"Old","hidden":true,"defaultReasoningEffort":"low",` +
	`"supportedReasoningEfforts":[{"reasoningEffort":"low"}]}],"nextCursor":null}`

// TestACPOptions: which options there are in which state, and what a choice changes.
func TestACPOptions(t *testing.T) {
	var set sessionSettings
	var models []acpModel
	word := func(s *string) string {
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%q", *s)
	}
	playCases(t, "options", func(line string) []string {
		switch {
		case line[0] == '#':
			if models = readModels(json.RawMessage(modelCatalog)); line == "## without a list" {
				models = nil
			}
			return nil
		case line == "carry out":
			var all []string
			for _, o := range planOptions(&set) {
				all = append(all, o.ID+" "+o.Kind)
			}
			return []string{strings.Join(all, ", ")}
		case line[0] != '{':
			id, value, _ := strings.Cut(strings.TrimPrefix(line, "choose "), " ")
			c, e := readChange(&set, models, id, value)
			if e != nil {
				return []string{fmt.Sprint(e.Code, " ", e.Message)}
			}
			out := []string{word(c.Model), word(c.Effort), word(c.Sandbox), word(c.Approval)}
			if c.Plan != nil {
				out = append(out, fmt.Sprintf("plan %t", *c.Plan))
			}
			return []string{strings.Join(out, " ")}
		}
		set = sessionSettings{Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite,
			BaseApproval: "on-request"}
		wantNil(t, json.Unmarshal([]byte(line), &set))
		options := configOptions(&set, models)
		var all []string
		for _, o := range options {
			all = append(all, fmt.Sprintf("%s: %s of %s", o.ID, o.Current, o.values()))
			if !o.has(o.Current) || o.Name == "" || o.Type != "select" || o.Category == "" {
				t.Errorf("%s: option %+v", line, o)
			}
		}
		if m := modesOf(options); m.Current != options[0].Current || len(m.Available) != len(options[0].Options) {
			t.Errorf("%s: modes %+v out of step", line, m)
		}
		return []string{strings.Join(all, "; ")}
	})
}

// currents is the state in an answer or update: the current values.
func currents(options json.RawMessage) string {
	var out []string
	eachElement(options, func(o json.RawMessage) { out = append(out, stringField(o, "currentValue")) })
	return strings.Join(out, " ")
}

// TestACPOptionsTold: choices that come at once are made in their order, and what
// changes on our side is told once, in both forms.
func TestACPOptionsTold(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	last := ""
	for _, m := range []string{"auto", "full", "read-only", "ask", "full", "auto"} {
		last = r.start("session/set_mode", r.of(`,"modeId":"`+m+`"`))
	}
	r.does(last)
	var got []string
	for _, c := range r.changes {
		got = append(got, *c.Approval+"/"+*c.Sandbox)
	}
	want(t, strings.Join(got, " "), "never/workspace-write never/danger-full-access on-request/read-only "+
		"on-request/workspace-write never/danger-full-access never/workspace-write")
	r.mu.Lock()
	r.set.Approval = "on-request"
	r.mu.Unlock()
	r.s.options.tellChanges()
	r.s.options.tellChanges()
	want(t, kindsOf(r.told()), "config_option_update current_mode_update")
}

// TestACPModels: a session that is answered before the list comes is told of it;
// one child is asked once, another child again, and a failure leaves what there is.
func TestACPModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newOpenRig(t, `{}`, func(r *acpFrontRig, _ *acpOptions) { r.models = "" })
		synctest.Wait() // the first question has had its answer, which is none
		r.mu.Lock()
		r.models, r.pid = modelCatalog, 1
		r.mu.Unlock()
		if list := r.f.models.list(0); list != nil {
			t.Errorf("waited for %d models", len(list))
		}
		update, _ := r.method("session/update")
		want(t, currents(rawField(update, "params", "update", "configOptions")), "ask big medium")
		for i, models := range []string{modelCatalog, modelCatalog, ""} {
			r.mu.Lock()
			r.models, r.pid = models, i+1
			r.mu.Unlock()
			for range 3 {
				if list := r.f.models.list(time.Minute); len(list) != 4 {
					t.Errorf("%d models", len(list))
				}
			}
		}
		if m := findModel(r.f.models.list(0), "small"); m == nil || m.sees() {
			t.Errorf("small is %+v", m)
		}
		if m := findModel(r.f.models.list(0), "plain"); m == nil || !m.sees() {
			t.Errorf("plain, which says nothing of images, is %+v", m)
		}
		synctest.Wait()
		want(t, fmt.Sprint(r.asked), "2")
	})
}

// TestACPEndsWithItsClient: whatever waits ends with the stream.
func TestACPEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPFrontRig(t, func(r *acpFrontRig, _ *acpOptions) { r.ready = make(chan struct{}) })
		r.hello(`{}`)
		r.start("session/new", `{"cwd":"/w","mcpServers":[]}`)
		began := time.Now()
		r.end()
		if d := time.Since(began); d > 0 {
			t.Errorf("ended after %s", d)
		}
	})
}
