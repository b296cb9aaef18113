package main

// acp_options.go owns what an ACP user may choose for a session: mode, model and thought level, as config options and
// (mode) as the older session modes, both always in step; and the list of models as the child tells it, which is kept
// for one child and for a while. acp_session.go puts the options into its answers, acp.go brings
// session/set_config_option and session/set_mode, acp_prompt.go looks whether a model takes images; the hub does the
// change. It must never offer what passes the ceiling, nor take a value that it doesn't offer, nor keep anybody waiting
// who didn't ask to wait: without the list everything works with the model that is.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// acpMode is a pair of approval policy and sandbox with a name. In modePlan Codex is told to plan as well.
type acpMode struct{ id, name, description, approval, sandbox string }

func acpModes() []acpMode {
	return []acpMode{
		{modePlan, "Plan", "Looks around, asks and writes a plan, in a read-only sandbox; what a rule of yours or an " +
			"earlier yes for this session allows still runs", "on-request", sandboxRead},
		{"read-only", "Read only", "Reads files, and asks before it changes anything", "on-request", sandboxRead},
		{"ask", "Ask", "Works in the workspace, and asks before it goes beyond it", "on-request", sandboxWrite},
		{"auto", "Auto", "Works in the workspace without asking, and can't go beyond it", "never", sandboxWrite},
		{"full", "Full access", "Works without a sandbox and without asking", "never", sandboxDanger},
	}
}

const (
	modePlan = "plan"
	// customMode is what the user's configuration says where it is none of these.
	customMode = "custom"
)

// offeredModes are those within the ceiling, and the one that is.
func offeredModes(set *sessionSettings) (modes []acpMode, current string) {
	base := acpMode{id: customMode, name: "Custom", approval: set.BaseApproval, sandbox: set.BaseSandbox}
	current, named := customMode, false
	for _, m := range acpModes() {
		same := m.approval == set.Approval && m.sandbox == set.Sandbox
		if set.Plan == (m.id == modePlan) && (set.Plan || same) {
			current = m.id
		} else if set.MaxSandbox != "" && sandboxRank(m.sandbox) > sandboxRank(set.MaxSandbox) {
			continue
		}
		modes = append(modes, m)
		named = named || m.approval == base.approval && m.sandbox == base.sandbox
	}
	if current == customMode && (named || base.sandbox == "") { // as a ceiling makes one of what was chosen
		base.approval, base.sandbox = set.Approval, set.Sandbox
	}
	if current == customMode || !named && base.sandbox != "" {
		base.description = fmt.Sprintf("As configured: sandbox %s, approval %s", base.sandbox, base.approval)
		modes = append(modes, base)
	}
	return modes, current
}

// The identifiers of the options.
const (
	optionMode   = "mode"
	optionModel  = "model"
	optionEffort = "thought_level"
)

// configOption is one option as clients take it.
type configOption struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Text     string        `json:"description,omitempty"`
	Category string        `json:"category"`
	Type     string        `json:"type"`
	Current  string        `json:"currentValue"`
	Options  []optionValue `json:"options"`
}

type optionValue struct {
	Value string `json:"value"`
	Name  string `json:"name"`
	Text  string `json:"description,omitempty"`
}

func newOption(id, name, text, current string) configOption {
	return configOption{ID: id, Name: name, Text: text, Category: id, Type: "select", Current: current}
}

func (o *configOption) add(value, name, text string) {
	o.Options = append(o.Options, optionValue{value, name, text})
}

// has reports whether a value may be chosen.
func (o *configOption) has(value string) bool {
	return slices.ContainsFunc(o.Options, func(v optionValue) bool { return v.Value == value })
}

// values lists them for an error.
func (o *configOption) values() string {
	var words []string
	for _, v := range o.Options {
		words = append(words, v.Value)
	}
	return strings.Join(words, ", ")
}

// modeState is the older form of the option mode.
type modeState struct {
	Current   string              `json:"currentModeId"`
	Available []map[string]string `json:"availableModes"`
}

// configOptions are all options of a session in the order of their weight. What nobody knows has none: without a list
// of models only the present one stands there, without a model no thought level.
func configOptions(set *sessionSettings, models []acpModel) []configOption {
	modes, current := offeredModes(set)
	mode := newOption(optionMode, "Mode", "What the agent may do, and what it asks about", current)
	for _, m := range modes {
		mode.add(m.id, m.name, m.description)
	}
	options := []configOption{mode}

	is := cmp.Or(findModel(models, set.Model), &acpModel{})
	model := newOption(optionModel, "Model", "", cmp.Or(set.Model, is.word()))
	for i := range models {
		if m := &models[i]; !m.Hidden || m.word() == model.Current {
			model.add(m.word(), cmp.Or(m.Name, m.word()), m.Description)
		}
	}
	if model.Current == "" {
		return options
	}
	if !model.has(model.Current) {
		model.add(model.Current, model.Current, "")
	}
	options = append(options, model)

	effort := newOption(optionEffort, "Thought level", "How long the model thinks",
		cmp.Or(set.Effort, is.DefaultEffort))
	for _, e := range is.Efforts {
		effort.add(e.Effort, effortName(e.Effort), e.Description)
	}
	if effort.Current == "" {
		return options
	}
	if !effort.has(effort.Current) { // a configuration may name one that Codex doesn't list
		effort.add(effort.Current, effortName(effort.Current), "")
	}
	return append(options, effort)
}

func effortName(word string) string {
	if word == "xhigh" {
		return "Extra high"
	}
	r := []rune(word)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

// modesOf is the older form of the first option.
func modesOf(options []configOption) modeState {
	m := modeState{Current: options[0].Current}
	for _, v := range options[0].Options {
		m.Available = append(m.Available, map[string]string{"id": v.Value, "name": v.Name, "description": v.Text})
	}
	return m
}

// readChange is what a choice changes. A new model keeps the thought level
// where it has it, and else gets its own default one.
func readChange(set *sessionSettings, models []acpModel, id, value string) (settingsChange, *rpcError) {
	options := configOptions(set, models)
	if id == "reasoning_effort" { // as other agents for Codex call it
		id = optionEffort
	}
	i := slices.IndexFunc(options, func(o configOption) bool { return o.ID == id })
	if i < 0 {
		var ids []string
		for _, o := range options {
			ids = append(ids, o.ID)
		}
		return settingsChange{}, badParams("configId %q is none of this session's options: %s", clip(id, 100),
			strings.Join(ids, ", "))
	}
	if !options[i].has(value) {
		return settingsChange{}, badParams("value %q is none of those that %s can have: %s", clip(value, 100), id,
			options[i].values())
	}
	switch id {
	case optionMode:
		modes, _ := offeredModes(set)
		m := modes[slices.IndexFunc(modes, func(m acpMode) bool { return m.id == value })]
		if planned := value == modePlan; planned { // what else was chosen stays, for the time after it
			return settingsChange{Plan: &planned}, nil
		}
		if value == customMode && m.approval == set.BaseApproval && m.sandbox == set.BaseSandbox {
			m.approval, m.sandbox = "", "" // back to the configuration, whatever it becomes
		}
		return settingsChange{Sandbox: &m.sandbox, Approval: &m.approval, Plan: new(bool)}, nil
	case optionModel:
		change := settingsChange{Model: &value}
		if m := findModel(models, value); m != nil {
			level := ""
			if last := options[len(options)-1]; last.ID == optionEffort {
				level = last.Current
			}
			if !m.takes(level) {
				level = m.DefaultEffort
			}
			change.Effort = &level
		}
		return change, nil
	}
	return settingsChange{Effort: &value}, nil
}

// acpOptionState is what a session has chosen and what its client knows of it.
type acpOptionState struct {
	s *acpSession

	mu   sync.Mutex       // guards the fields below
	last *sessionSettings // as they were when the session was open last
	told []configOption   // as the client has them, nil before its first answer
	came int              // changes of options that were asked for
	made int              // those that are through: each is made when all before it are
}

// settings are what the next turn runs with, nil where nobody knows. A session that was parked keeps what it had.
func (o *acpOptionState) settings() *sessionSettings {
	set := o.s.f.settings(o.s.agentID)
	o.mu.Lock()
	defer o.mu.Unlock()
	if set != nil {
		o.last = set
	}
	return o.last
}

// model is what Codex tells of the model that the next turn runs with, nil where it tells nothing.
func (o *acpOptionState) model() *acpModel {
	set := o.settings()
	if set == nil {
		return nil
	}
	return findModel(o.s.f.models.list(0), set.Model)
}

// tell is the state as the client will know it from now on, nil while nobody knows the session's settings. It doesn't
// wait: a caller that can waits for the models before.
func (o *acpOptionState) tell() []configOption {
	set := o.settings()
	if set == nil {
		return nil
	}
	list := configOptions(set, o.s.f.models.list(0))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = list
	return list
}

// tellChanges tells the client of options that are no more what it knows: nothing before it knows anything.
func (o *acpOptionState) tellChanges() {
	o.mu.Lock()
	told := o.told
	o.mu.Unlock()
	if told == nil {
		return
	}
	list := o.tell()
	if list == nil || bytes.Equal(toJSON(list), toJSON(told)) {
		return
	}
	o.sendOptions(list)
	o.sendMode(list, told)
}

func (o *acpOptionState) sendOptions(list []configOption) {
	o.s.send(toJSON(map[string]any{"sessionUpdate": "config_option_update", "configOptions": list}))
}

// sendMode tells the mode in its older form, unless the client knows it.
func (o *acpOptionState) sendMode(list, told []configOption) {
	if mode := list[0].Current; told == nil || told[0].Current != mode {
		o.s.send(toJSON(map[string]any{"sessionUpdate": "current_mode_update", "currentModeId": mode}))
	}
}

// setOption answers session/set_config_option with the full state. The change counts from the next turn on.
func (o *acpOptionState) setOption(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	id := in.text("configId")
	raw := rawField(params, "value")
	value, isID := rawString(raw)
	switch {
	case in.e != nil:
		return in.e
	case raw == nil:
		return badParams("value is missing: it must be the id of a value of %q", clip(id, 100))
	case !isID:
		return badParams("value must be a string, the id of a value of %q, not %s: every option of this agent is a "+
			"select", clip(id, 100), kindWord(raw))
	}
	return o.request(c, id, value)
}

// setMode answers session/set_mode.
func (o *acpOptionState) setMode(c *acpCall, params json.RawMessage) *rpcError {
	in := acpParams{raw: params}
	mode := in.text("modeId")
	if in.e != nil {
		return in.e
	}
	return o.request(c, optionMode, mode)
}

// request has a change made that the client asks for, in a goroutine of its own. It is called on the reading goroutine.
func (o *acpOptionState) request(c *acpCall, id, value string) *rpcError {
	place := o.enter()
	if !o.s.f.jobs.spawn(func() {
		result, e := o.change(place, c.method, id, value)
		o.s.f.answer(c, result, e)
		o.leave()
	}) {
		return errACPClosing()
	}
	return nil
}

// choose has the mode changed in its turn behind what the client has changed, tells the client both forms of it, and
// waits until all that is done.
func (o *acpOptionState) choose(mode string) *rpcError {
	defer o.leave()
	_, e := o.change(o.enter(), "", optionMode, mode)
	return e
}

// enter gives a change its place behind all that came before.
func (o *acpOptionState) enter() (place int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.came++
	return o.came
}

// isNext reports that all changes before a place are made.
func (o *acpOptionState) isNext(place int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made == place-1
}

// leave lets the next change be made, and the prompts go that came behind the last.
func (o *acpOptionState) leave() {
	o.mu.Lock()
	o.made++
	o.mu.Unlock()
	o.s.poke()
}

// planning reports that the next turn is one of plan mode.
func (o *acpOptionState) planning() bool {
	set := o.settings()
	return set != nil && set.Plan
}

// changing reports that an option is being changed, which the next prompt is to run with.
func (o *acpOptionState) changing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made < o.came
}

// change waits for its place, has the hub make one change, and tells what the answer to method doesn't say in front of
// it, so that everything is in step when the answer comes: the other form of the mode, or to session/set_mode the
// options; both for a change of our own, which answers no method.
func (o *acpOptionState) change(place int, method, id, value string) (result any, e *rpcError) {
	if !o.s.await(o.s.f.life, func() bool { return o.isNext(place) }) {
		return nil, errACPClosing()
	}
	set := o.settings()
	if set == nil {
		return nil, &rpcError{Code: codeInternal,
			Message: "the settings of this session aren't known yet; try again when it has been answered"}
	}
	change, e := readChange(set, o.s.f.models.list(modelsWait), id, value)
	if e != nil {
		return nil, e
	}
	made := make(chan struct{})
	var now sessionSettings
	o.s.f.retune(o.s.agentID, change, func(set sessionSettings, failed *rpcError) {
		now, e = set, o.s.f.acpError(failed)
		close(made)
	})
	<-made
	if e != nil {
		return nil, e
	}
	list := configOptions(&now, o.s.f.models.list(0))
	o.mu.Lock()
	told := o.told
	o.last, o.told = &now, list
	o.mu.Unlock()
	if method != "session/set_config_option" {
		o.sendOptions(list)
	}
	if method == "session/set_mode" {
		return nil, nil
	}
	o.sendMode(list, told)
	return map[string]any{"configOptions": list}, nil
}

const (
	modelsFresh = 5 * time.Minute  // how long a list is taken for the newest; a login may change it
	modelsLimit = 20 * time.Second // for the child to come up and say it
	modelsWait  = 5 * time.Second  // what a request that needs the list waits for it
)

// acpModel is one model as Codex tells of it (0.104 to 0.169).
type acpModel struct {
	ID            string      `json:"id"`
	Model         string      `json:"model"` // what a turn names it by
	Name          string      `json:"displayName"`
	Description   string      `json:"description"`
	Hidden        bool        `json:"hidden"`
	Efforts       []acpEffort `json:"supportedReasoningEfforts"`
	DefaultEffort string      `json:"defaultReasoningEffort"`
	Inputs        []string    `json:"inputModalities"` // text, image
	Default       bool        `json:"isDefault"`
}

// acpEffort is one thought level of a model.
type acpEffort struct {
	Effort      string `json:"reasoningEffort"`
	Description string `json:"description"`
}

func (m *acpModel) word() string { return cmp.Or(m.Model, m.ID) }

// takes reports whether the model has a thought level.
func (m *acpModel) takes(effort string) bool {
	return slices.ContainsFunc(m.Efforts, func(e acpEffort) bool { return e.Effort == effort })
}

// sees reports whether the model takes images. One that says nothing may.
func (m *acpModel) sees() bool {
	return m == nil || len(m.Inputs) == 0 || slices.Contains(m.Inputs, "image")
}

// readModels reads the answer. A model that can't be read is left out; the others are as good as they are.
func readModels(raw json.RawMessage) []acpModel {
	var list []acpModel
	eachElement(rawField(raw, "data"), func(each json.RawMessage) {
		var m acpModel
		if json.Unmarshal(each, &m) != nil || m.word() == "" {
			return
		}
		m.Efforts = slices.DeleteFunc(m.Efforts, func(e acpEffort) bool { return e.Effort == "" })
		list = append(list, m)
	})
	return list
}

// findModel finds a model by its word; "" is the one that Codex takes when nobody chose. nil: not in the list.
func findModel(models []acpModel, word string) *acpModel {
	for i := range models {
		if m := &models[i]; m.word() == word && word != "" || m.Default && word == "" {
			return m
		}
	}
	return nil
}

// acpModels keeps the list.
type acpModels struct {
	f *acpFront

	mu       sync.Mutex // guards the fields below
	kept     []acpModel
	pid      int // of the child that told the list
	at       time.Time
	fetching chan struct{} // closed when the fetch that runs has ended, nil for none
}

// list is what there is. A list of another child, or an old one, is asked for again: wait is how long for, 0 for not at
// all, and then the sessions are told when it has changed.
func (l *acpModels) list(wait time.Duration) []acpModel {
	pid := l.f.status().ChildPID
	l.mu.Lock()
	fresh := l.kept != nil && l.pid == pid && time.Since(l.at) < modelsFresh
	if !fresh && l.fetching == nil {
		over := make(chan struct{})
		if l.f.jobs.spawn(func() { l.fetch(over) }) {
			l.fetching = over
		}
	}
	over, list := l.fetching, l.kept
	l.mu.Unlock()
	if fresh || over == nil || wait == 0 {
		return list
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-over:
	case <-t.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// fetch asks the child. A list that can't be had leaves the old one.
func (l *acpModels) fetch(over chan struct{}) {
	ctx, stop := context.WithTimeout(l.f.life, modelsLimit)
	defer stop()
	raw, e := l.f.catalog(ctx, "models", "")
	list, pid := readModels(raw), l.f.status().ChildPID
	l.mu.Lock()
	was := l.kept
	if e == nil && list != nil {
		l.kept, l.pid, l.at = list, pid, time.Now()
	}
	changed := string(toJSON(was)) != string(toJSON(l.kept))
	l.fetching = nil
	l.mu.Unlock()
	close(over)
	if changed {
		l.f.sessions.each(func(s *acpSession) { s.options.tellChanges() })
	}
}
