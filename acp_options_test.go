package main

// acp_options_test.go owns the options of ACP sessions: which there are in which
// state, what a choice changes, and that both forms of the mode stay in step on
// the wire.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelCatalog is what 0.104 to 0.169 answer to model/list, shortened.
const modelCatalog = `{"data":[
{"id":"big","model":"big","displayName":"Big","description":"The big one","hidden":false,"supportedReasoningEfforts":[{"reasoningEffort":"low","description":"Fast"},{"reasoningEffort":"medium","description":""},{"reasoningEffort":"xhigh","description":""}],"defaultReasoningEffort":"medium","inputModalities":["text","image"],"isDefault":true,"upgrade":null},
{"id":"small","model":"small","displayName":"Small","description":"","hidden":false,"supportedReasoningEfforts":[{"reasoningEffort":"low","description":""},{"reasoningEffort":"high","description":""}],"defaultReasoningEffort":"high","inputModalities":["text"],"isDefault":false},
{"id":"plain","model":"plain","displayName":"","hidden":false,"supportedReasoningEfforts":[],"isDefault":false},
{"id":7},
{"id":"old","model":"old","displayName":"Old","description":"","hidden":true,"supportedReasoningEfforts":[{"reasoningEffort":"low"}],"defaultReasoningEffort":"low","isDefault":false}],"nextCursor":null}`

// shape writes options as a test compares them: id=current[values].
func shape(options []configOption) string {
	var out []string
	for _, o := range options {
		out = append(out, fmt.Sprintf("%s=%s[%s]", o.ID, o.Current, strings.ReplaceAll(o.values(), ", ", " ")))
	}
	return strings.Join(out, " ")
}

func TestACPOptions(t *testing.T) {
	models := readModels(json.RawMessage(modelCatalog))
	asks := sessionSettings{Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite, BaseApproval: "on-request"}
	with := func(change func(*sessionSettings)) sessionSettings {
		set := asks
		change(&set)
		return set
	}
	const four = "[read-only ask auto full]"
	for _, tt := range []struct {
		name   string
		set    sessionSettings
		models []acpModel
		want   string
	}{
		{"nothing chosen", asks, models, "mode=ask" + four + " model=big[big small plain] thought_level=medium[low medium xhigh]"},
		{"chosen", with(func(s *sessionSettings) { s.Model, s.Effort = "small", "low" }), models, "mode=ask" + four + " model=small[big small plain] thought_level=low[low high]"},
		{"a hidden model", with(func(s *sessionSettings) { s.Model = "old" }), models, "mode=ask" + four + " model=old[big small plain old] thought_level=low[low]"},
		{"a model that isn't listed", with(func(s *sessionSettings) { s.Model, s.Effort = "mine", "deep" }), models, "mode=ask" + four + " model=mine[big small plain mine] thought_level=deep[deep]"},
		{"a thought level that isn't listed", with(func(s *sessionSettings) { s.Model, s.Effort = "small", "xhigh" }), models, "mode=ask" + four + " model=small[big small plain] thought_level=xhigh[low high xhigh]"},
		{"a model that has none", with(func(s *sessionSettings) { s.Model = "plain" }), models, "mode=ask" + four + " model=plain[big small plain]"},
		{"no list", with(func(s *sessionSettings) { s.Model, s.Effort = "small", "low" }), nil, "mode=ask" + four + " model=small[small] thought_level=low[low]"},
		{"no list and nothing known", asks, nil, "mode=ask" + four},
		{"a ceiling", with(func(s *sessionSettings) { s.MaxSandbox = sandboxWrite }), nil, "mode=ask[read-only ask auto]"},
		{"the lowest ceiling", with(func(s *sessionSettings) {
			s.MaxSandbox, s.Sandbox, s.BaseSandbox = sandboxRead, sandboxRead, sandboxRead
		}), nil, "mode=read-only[read-only]"},
		{"full", with(func(s *sessionSettings) { s.Sandbox, s.Approval = sandboxDanger, "never" }), nil, "mode=full" + four},
		{"auto", with(func(s *sessionSettings) { s.Approval = "never" }), nil, "mode=auto" + four},
		{"a configuration of its own", with(func(s *sessionSettings) { s.Approval, s.BaseApproval = "untrusted", "untrusted" }), nil,
			"mode=custom[read-only ask auto full custom]"},
		{"ask chosen over it", with(func(s *sessionSettings) { s.BaseApproval = "untrusted" }), nil, "mode=ask[read-only ask auto full custom]"},
		{"made so by a ceiling", with(func(s *sessionSettings) {
			s.MaxSandbox, s.Sandbox, s.BaseSandbox, s.Approval = sandboxRead, sandboxRead, sandboxRead, "never"
		}), nil, "mode=custom[read-only custom]"},
	} {
		options := configOptions(&tt.set, tt.models)
		if got := shape(options); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
		for _, o := range options {
			if !o.has(o.Current) || o.Name == "" || o.Type != "select" || o.Category == "" {
				t.Errorf("%s: option %+v", tt.name, o)
			}
		}
		if m := modesOf(options); m.Current != options[0].Current || len(m.Available) != len(options[0].Options) {
			t.Errorf("%s: modes %+v out of step", tt.name, m)
		}
	}
}

func TestACPOptionChange(t *testing.T) {
	models := readModels(json.RawMessage(modelCatalog))
	set := sessionSettings{Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite, BaseApproval: "untrusted", MaxSandbox: sandboxWrite, Model: "big", Effort: "low"}
	word := func(s *string) string {
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%q", *s)
	}
	for _, tt := range []struct{ id, value, effort, want string }{
		{"mode", "auto", "", `- - "workspace-write" "never"`},
		{"mode", "read-only", "", `- - "read-only" "on-request"`},
		{"mode", "custom", "", `- - "" ""`},
		{"model", "small", "low", `"small" "low" - -`},
		{"model", "small", "xhigh", `"small" "high" - -`}, // it hasn't that one: its own default
		{"model", "plain", "low", `"plain" "" - -`},
		{"thought_level", "xhigh", "", `- "xhigh" - -`},
	} {
		was := set
		was.Effort = cmp.Or(tt.effort, was.Effort)
		c, e := readChange(&was, models, tt.id, tt.value)
		if got := strings.Join([]string{word(c.Model), word(c.Effort), word(c.Sandbox), word(c.Approval)}, " "); e != nil || got != tt.want {
			t.Errorf("%s %s: %s, %v; want %s", tt.id, tt.value, got, e, tt.want)
		}
	}
	for _, tt := range []struct{ id, value, words string }{
		{"mode", "full", `"full" is none of those that mode can have: read-only, ask, auto, custom`},
		{"mode", "", `"" is none`},
		{"model", "old", `"old" is none of those that model can have: big, small, plain`},
		{"thought_level", "high", `"high" is none of those that thought_level can have: low, medium, xhigh`},
		{"sandbox", "danger-full-access", `"sandbox" is none of this session's options: mode, model, thought_level`},
	} {
		_, e := readChange(&set, models, tt.id, tt.value)
		if e == nil || e.Code != codeInvalidParams || !strings.Contains(e.Message, tt.words) {
			t.Errorf("%s %s: %v, want %q", tt.id, tt.value, e, tt.words)
		}
	}
}

// tuned is a hub that keeps one session's settings.
type tuned struct {
	mu      sync.Mutex
	set     sessionSettings
	asked   int // how often for the models
	answer  json.RawMessage
	pid     int
	changes []settingsChange
}

func (h *tuned) options(o *acpOptions) {
	o.settings = func(string) *sessionSettings {
		h.mu.Lock()
		defer h.mu.Unlock()
		set := h.set
		return &set
	}
	o.retune = func(_ string, change settingsChange, done func(sessionSettings, *rpcError)) {
		h.mu.Lock()
		h.changes = append(h.changes, change)
		for _, f := range []struct {
			from *string
			into *string
			base string
		}{{change.Model, &h.set.Model, ""}, {change.Effort, &h.set.Effort, ""}, {change.Sandbox, &h.set.Sandbox, h.set.BaseSandbox}, {change.Approval, &h.set.Approval, h.set.BaseApproval}} {
			if f.from != nil {
				*f.into = cmp.Or(*f.from, f.base)
			}
		}
		set := h.set
		h.mu.Unlock()
		go done(set, nil)
	}
	o.catalog = func(_ context.Context, what, _ string) (json.RawMessage, *rpcError) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if what != "models" || h.answer == nil {
			return nil, &rpcError{Code: codeInternal, Message: "no " + what}
		}
		h.asked++
		return h.answer, nil
	}
	o.status = func() statusView {
		h.mu.Lock()
		defer h.mu.Unlock()
		return statusView{ChildPID: h.pid, Team: "default"}
	}
}

func newTuned() *tuned {
	return &tuned{answer: json.RawMessage(modelCatalog), pid: 1,
		set: sessionSettings{Sandbox: sandboxWrite, Approval: "on-request", BaseSandbox: sandboxWrite, BaseApproval: "on-request"}}
}

// currents is the state in an answer or update: the current values.
func currents(options json.RawMessage) string {
	var out []string
	eachElement(options, func(o json.RawMessage) { out = append(out, stringField(o, "currentValue")) })
	return strings.Join(out, " ")
}

func TestACPSetOption(t *testing.T) {
	h := newTuned()
	r := newAskRig(t, `{}`, h.options)
	r.s.options.tell() // as the answer to session/new told them
	for _, tt := range []struct{ params, want, mode string }{
		{`"configId":"model","value":"small"`, "ask small high", ""},
		{`"configId":"thought_level","value":"low"`, "ask small low", ""},
		{`"configId":"mode","value":"full"`, "full small low", "full"},
		{`"configId":"mode","value":"full"`, "full small low", ""}, // as it was
		{`"configId":"mode","value":"read-only"`, "read-only small low", "read-only"},
	} {
		answer, before := r.exchange("session/set_config_option", `{"sessionId":"sess_1",`+tt.params+`}`)
		if got := currents(rawField(answer, "result", "configOptions")); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.params, answer, tt.want)
		}
		told := ""
		for _, rec := range before {
			told += stringField(rec, "params", "update", "currentModeId")
			if kind := stringField(rec, "params", "update", "sessionUpdate"); kind != "current_mode_update" && kind != "config_option_update" {
				t.Errorf("%s: %s", tt.params, rec)
			}
		}
		if told != tt.mode {
			t.Errorf("%s: told mode %q in front of the answer, want %q", tt.params, told, tt.mode)
		}
	}
	r.nothing()
}

// TestACPSetMode: the older request changes the option as well, and both are in
// step when it is answered.
func TestACPSetMode(t *testing.T) {
	h := newTuned()
	r := newAskRig(t, `{}`, h.options)
	r.f.models.list(time.Minute)
	r.s.options.tell()
	answer, before := r.exchange("session/set_mode", `{"sessionId":"sess_1","modeId":"auto"}`)
	if got := string(rawField(answer, "result")); got != "{}" {
		t.Errorf("answered %s", answer)
	}
	if len(before) != 1 || currents(rawField(before[0], "params", "update", "configOptions")) != "auto big medium" {
		t.Errorf("told %s in front of it", before)
	}
	if h.set.Approval != "never" || h.set.Sandbox != sandboxWrite {
		t.Errorf("the hub has %+v", h.set)
	}
	r.nothing()
}

// TestACPOptionOrder: choices that come at once are done in their order.
func TestACPOptionOrder(t *testing.T) {
	h := newTuned()
	r := newAskRig(t, `{}`, h.options)
	modes := []string{"auto", "full", "read-only", "ask", "full", "auto"}
	for i, m := range modes {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/set_mode","params":{"sessionId":"sess_1","modeId":%q}}`, i, m))
	}
	r.until(func(rec json.RawMessage) bool { return string(rawField(rec, "id")) == fmt.Sprint(len(modes)-1) })
	var got []string
	for _, c := range h.changes {
		got = append(got, *c.Approval+"/"+*c.Sandbox)
	}
	want := "never/workspace-write never/danger-full-access on-request/read-only on-request/workspace-write never/danger-full-access never/workspace-write"
	if strings.Join(got, " ") != want {
		t.Errorf("changed %s", got)
	}
}

// TestACPSettled: what changes on our side is told once, in both forms, and to
// nobody who hasn't been answered yet.
func TestACPSettled(t *testing.T) {
	h := newTuned()
	h.answer = nil
	r := newAskRig(t, `{}`, h.options)
	r.s.options.tellChanges()
	r.nothing()
	options := r.s.options.tell()
	if got := currents(toJSON(options)); got != "ask" || modesOf(options).Current != "ask" {
		t.Errorf("options %s", toJSON(options))
	}
	r.s.options.tellChanges()
	r.nothing()
	h.mu.Lock()
	h.set.Approval = "never"
	h.mu.Unlock()
	r.s.options.tellChanges()
	r.s.options.tellChanges()
	var kinds []string
	_, before := r.exchange("session/nothing", "{}")
	for _, rec := range before {
		kinds = append(kinds, stringField(rec, "params", "update", "sessionUpdate"))
	}
	if want := []string{"config_option_update", "current_mode_update"}; !slices.Equal(kinds, want) {
		t.Errorf("told %s, want %s", before, want)
	}
}

// TestACPModelsCome: a session that was answered before the list came is told of
// it, and nobody waited.
func TestACPModelsCome(t *testing.T) {
	h := newTuned()
	gate := make(chan struct{})
	r := newAskRig(t, `{}`, func(o *acpOptions) {
		h.options(o)
		now := o.catalog
		o.catalog = func(ctx context.Context, what, dir string) (json.RawMessage, *rpcError) {
			if what == "models" {
				<-gate
			}
			return now(ctx, what, dir)
		}
	})
	options := r.s.options.tell()
	if got := currents(toJSON(options)); got != "ask" {
		t.Errorf("options %s before there is a list", got)
	}
	close(gate)
	update, _ := r.method("session/update")
	if got := currents(rawField(update, "params", "update", "configOptions")); got != "ask big medium" {
		t.Errorf("told %s", update)
	}
}

// TestACPModelsKept: one child is asked once, another child again, and a
// failure leaves what there is.
func TestACPModelsKept(t *testing.T) {
	h := newTuned()
	r := newAskRig(t, `{}`, h.options)
	asked := func(want int) {
		t.Helper()
		for range 3 {
			if list := r.f.models.list(time.Minute); len(list) != 4 {
				t.Errorf("%d models", len(list))
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.asked != want {
			t.Errorf("asked %d times, want %d", h.asked, want)
		}
	}
	asked(1)
	h.mu.Lock()
	h.pid = 2
	h.mu.Unlock()
	asked(2)
	h.mu.Lock()
	h.pid, h.answer = 3, nil
	h.mu.Unlock()
	asked(2)
	if m := findModel(r.f.models.list(0), "small"); m == nil || m.sees() {
		t.Errorf("small is %+v", m)
	}
	if m := findModel(r.f.models.list(0), "plain"); m == nil || !m.sees() {
		t.Errorf("plain, which says nothing of images, is %+v", m)
	}
}
