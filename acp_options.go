package main

// acp_options.go owns what an ACP user may choose for a session: mode, model
// and thought level, as config options and (mode) as the older session modes,
// both always in step, and the list of models as the child tells it (model/list).
// The front puts them into its answers, and gives session/set_config_option and
// session/set_mode here; the hub does the change. It must never offer what passes
// the ceiling, nor take a value that it doesn't offer. The list is kept for one
// child and for a while: without it everything works with the model that is.

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

// acpMode is a pair of approval policy and sandbox with a name.
type acpMode struct{ id, name, description, approval, sandbox string }

func acpModes() []acpMode {
	return []acpMode{
		{"read-only", "Read only", "Reads files, and asks before it changes anything", "on-request", sandboxRead},
		{"ask", "Ask", "Works in the workspace, and asks before it goes beyond it", "on-request", sandboxWrite},
		{"auto", "Auto", "Works in the workspace without asking, and can't go beyond it", "never", sandboxWrite},
		{"full", "Full access", "Works without a sandbox and without asking", "never", sandboxDanger},
	}
}

// customMode is what the user's configuration says where it is none of these.
const customMode = "custom"

// offeredModes are those within the ceiling, and the one that is.
func offeredModes(set *sessionSettings) (modes []acpMode, current string) {
	base := acpMode{id: customMode, name: "Custom", approval: set.BaseApproval, sandbox: set.BaseSandbox}
	current, named := customMode, false
	for _, m := range acpModes() {
		if m.approval == set.Approval && m.sandbox == set.Sandbox {
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
	Current   string     `json:"currentModeId"`
	Available []modeInfo `json:"availableModes"`
}

type modeInfo struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Text string `json:"description,omitempty"`
}

// configOptions are all options of a session in the order of their weight. What
// nobody knows has none: without a list of models only the present one stands
// there, without a model no thought level.
func configOptions(set *sessionSettings, models []acpModel) []configOption {
	modes, current := offeredModes(set)
	mode := configOption{ID: optionMode, Name: "Mode", Text: "What the agent may do, and what it asks about", Category: optionMode, Type: "select", Current: current}
	for _, m := range modes {
		mode.Options = append(mode.Options, optionValue{m.id, m.name, m.description})
	}
	options := []configOption{mode}

	is := findModel(models, set.Model)
	model := configOption{ID: optionModel, Name: "Model", Category: optionModel, Type: "select", Current: set.Model}
	if model.Current == "" && is != nil {
		model.Current = is.word()
	}
	for i := range models {
		if m := &models[i]; !m.Hidden || m.word() == model.Current {
			model.Options = append(model.Options, optionValue{m.word(), cmp.Or(m.Name, m.word()), m.Description})
		}
	}
	if model.Current == "" {
		return options
	}
	if !model.has(model.Current) {
		model.Options = append(model.Options, optionValue{Value: model.Current, Name: model.Current})
	}
	options = append(options, model)

	effort := configOption{ID: optionEffort, Name: "Thought level", Text: "How long the model thinks", Category: optionEffort, Type: "select", Current: set.Effort}
	if is != nil {
		effort.Current = cmp.Or(set.Effort, is.DefaultEffort)
		for _, e := range is.Efforts {
			effort.Options = append(effort.Options, optionValue{e.Effort, effortName(e.Effort), e.Description})
		}
	}
	if effort.Current == "" {
		return options
	}
	if !effort.has(effort.Current) { // a configuration may name one that Codex doesn't list
		effort.Options = append(effort.Options, optionValue{Value: effort.Current, Name: effortName(effort.Current)})
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
		m.Available = append(m.Available, modeInfo{v.Value, v.Name, v.Text})
	}
	return m
}

// optionChange is what a choice changes. A new model keeps the thought level
// where it has it, and else gets its own default one.
func optionChange(set *sessionSettings, models []acpModel, id, value string) (settingsChange, *rpcError) {
	options := configOptions(set, models)
	i := slices.IndexFunc(options, func(o configOption) bool { return o.ID == id })
	if i < 0 {
		var ids []string
		for _, o := range options {
			ids = append(ids, o.ID)
		}
		return settingsChange{}, badParams("configId %q is none of this session's options: %s", clip(id, 100), strings.Join(ids, ", "))
	}
	if !options[i].has(value) {
		return settingsChange{}, badParams("value %q is none of those that %s can have: %s", clip(value, 100), id, options[i].values())
	}
	switch id {
	case optionMode:
		modes, _ := offeredModes(set)
		m := modes[slices.IndexFunc(modes, func(m acpMode) bool { return m.id == value })]
		if value == customMode && m.approval == set.BaseApproval && m.sandbox == set.BaseSandbox {
			m.approval, m.sandbox = "", "" // back to the configuration, whatever it becomes
		}
		return settingsChange{Sandbox: &m.sandbox, Approval: &m.approval}, nil
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
	mu      sync.Mutex       // guards the fields below
	last    *sessionSettings // as they were when the session was open
	told    []configOption   // as the client has them, nil before its first answer
	choices []optionRequest  // in the order they came; a goroutine makes the first
	usage   tokenUsage       // of the thread, as last told
}

// tell keeps the options as the client has them from now on, and returns those
// that it had.
func (o *acpOptionState) tell(list []configOption) []configOption {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.told
	o.told = list
	return was
}

// settingsNow is what the next turn runs with. A session that was parked keeps
// what it had.
func (s *acpSession) settingsNow() *sessionSettings {
	set := s.f.settings(s.agentID)
	s.opts.mu.Lock()
	defer s.opts.mu.Unlock()
	if set != nil {
		s.opts.last = set
	}
	return s.opts.last
}

// tellOptions is the state as the client will know it from now on, nil while
// nobody knows the session's settings. It doesn't wait: who can calls
// f.modelList(modelsWait) before. A list of models that came meanwhile has told
// nobody yet who knew nothing: hence the second look.
func (s *acpSession) tellOptions() []configOption {
	set := s.settingsNow()
	if set == nil {
		return nil
	}
	for models := s.f.modelList(0); ; {
		list := configOptions(set, models)
		s.opts.tell(list)
		newer := s.f.modelList(0)
		if len(newer) == len(models) && (len(newer) == 0 || &newer[0] == &models[0]) {
			return list
		}
		models = newer
	}
}

// optionUpdates are what the client must be told because the state is no more
// what it knows: nothing before it knows anything.
func (s *acpSession) optionUpdates() [][]byte {
	s.opts.mu.Lock()
	told := s.opts.told
	s.opts.mu.Unlock()
	if told == nil {
		return nil
	}
	list := s.tellOptions()
	if list == nil || bytes.Equal(toJSON(list), toJSON(told)) {
		return nil
	}
	updates := [][]byte{optionsUpdate(list)}
	if list[0].Current != told[0].Current {
		updates = append(updates, modeUpdate(list[0].Current))
	}
	return updates
}

func optionsUpdate(list []configOption) []byte {
	return toJSON(struct {
		Kind    string         `json:"sessionUpdate"`
		Options []configOption `json:"configOptions"`
	}{"config_option_update", list})
}

func modeUpdate(mode string) []byte {
	return toJSON(map[string]string{"sessionUpdate": "current_mode_update", "currentModeId": mode})
}

// setOption answers session/set_config_option with the full state. The change
// counts from the next turn on.
func (f *acpFront) setOption(c *acpCall, params json.RawMessage) {
	s, e := f.sessionOf(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	id, e := paramText(params, "configId")
	raw := rawField(params, "value")
	value, isID := rawString(raw)
	switch {
	case e != nil:
		f.answer(c, nil, e)
	case raw == nil:
		f.answer(c, nil, badParams("value is missing: it must be the id of a value of %q", clip(id, 100)))
	case !isID:
		f.answer(c, nil, badParams("value must be a string, the id of a value of %q, not %s: every option of this agent is a select", clip(id, 100), kindWord(raw)))
	default:
		s.change(c, id, value, func(list []configOption) any {
			return map[string]any{"configOptions": list}
		})
	}
}

// setMode answers session/set_mode.
func (f *acpFront) setMode(c *acpCall, params json.RawMessage) {
	s, e := f.sessionOf(params)
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	mode, e := paramText(params, "modeId")
	if e != nil {
		f.answer(c, nil, e)
		return
	}
	s.change(c, optionMode, mode, nil)
}

// change does one choice after those that came before it. What the answer
// doesn't say is told in front of it, so that everything is in step when it
// comes: the other form of the mode, or to set_mode (answer nil) the options.
func (s *acpSession) change(c *acpCall, id, value string, answer func([]configOption) any) {
	s.choose(c, func() {
		set := s.settingsNow()
		if set == nil {
			s.f.answer(c, nil, &rpcError{Code: codeInternal, Message: "the settings of this session aren't known yet; try again when it has been answered"})
			return
		}
		change, e := optionChange(set, s.f.modelList(modelsWait), id, value)
		if e != nil {
			s.f.answer(c, nil, e)
			return
		}
		over := make(chan struct{})
		s.f.retune(s.agentID, change, func(now sessionSettings, e *rpcError) {
			defer close(over)
			if e != nil {
				s.f.answer(c, nil, s.f.acpError(e))
				return
			}
			s.changed(c, &now, answer)
		})
		<-over
	})
}

// changed tells what a choice came to.
func (s *acpSession) changed(c *acpCall, now *sessionSettings, answer func([]configOption) any) {
	list := configOptions(now, s.f.modelList(0))
	s.opts.mu.Lock()
	s.opts.last = now
	s.opts.mu.Unlock()
	told := s.opts.tell(list)
	if answer == nil {
		s.send(optionsUpdate(list))
		s.f.answer(c, map[string]any{}, nil)
		return
	}
	if told == nil || told[0].Current != list[0].Current {
		s.send(modeUpdate(list[0].Current))
	}
	s.f.answer(c, answer(list), nil)
}

// optionRequest is one request for a change: work does it and answers.
type optionRequest struct {
	c    *acpCall
	work func()
}

// choose does choices one after the other, in a goroutine of their own.
func (s *acpSession) choose(c *acpCall, work func()) {
	o := &s.opts
	o.mu.Lock()
	o.choices = append(o.choices, optionRequest{c, work})
	first := len(o.choices) == 1
	o.mu.Unlock()
	if !first || s.f.spawn(s.makeChoices) {
		return
	}
	o.mu.Lock()
	left := o.choices
	o.choices = nil
	o.mu.Unlock()
	for _, each := range left {
		s.f.answer(each.c, nil, errACPClosing())
	}
}

// busy reports that a choice is being made, which the next prompt is to run with.
func (o *acpOptionState) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.choices) > 0
}

// makeChoices makes the choices that wait, and lets the prompts go that came
// behind them.
func (s *acpSession) makeChoices() {
	o := &s.opts
	o.mu.Lock()
	for len(o.choices) > 0 {
		next := o.choices[0]
		o.mu.Unlock()
		next.work()
		o.mu.Lock()
		o.choices = o.choices[1:]
	}
	o.mu.Unlock()
	s.pump()
}

// model is what Codex tells of the model that the next turn runs with, nil
// where it tells nothing.
func (s *acpSession) model() *acpModel {
	set := s.settingsNow()
	if set == nil {
		return nil
	}
	return findModel(s.f.modelList(0), set.Model)
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

// readModels reads the answer. A model that can't be read is left out; the
// others are as good as they are.
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

// findModel finds a model by its word; "" is the one that Codex takes when
// nobody chose. nil: not in the list.
func findModel(models []acpModel, word string) *acpModel {
	for i := range models {
		if m := &models[i]; m.word() == word && word != "" || m.Default && word == "" {
			return m
		}
	}
	return nil
}

// acpModelList keeps the list.
type acpModelList struct {
	mu       sync.Mutex // guards the fields below
	list     []acpModel
	pid      int // of the child that told it
	at       time.Time
	fetching chan struct{} // closed when the fetch that runs has ended, nil for none
}

// modelList is what there is. A list of another child, or an old one, is asked
// for again: wait is how long for, 0 for not at all, and then the sessions are
// told when it has changed.
func (f *acpFront) modelList(wait time.Duration) []acpModel {
	pid := f.status().ChildPID
	l := &f.models
	l.mu.Lock()
	fresh := l.list != nil && l.pid == pid && time.Since(l.at) < modelsFresh
	if !fresh && l.fetching == nil {
		over := make(chan struct{})
		l.fetching = over
		if !f.spawn(func() { f.fetchModels(over) }) {
			l.fetching = nil
		}
	}
	over, list := l.fetching, l.list
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
	return l.list
}

// fetchModels asks the child. A list that can't be had leaves the old one.
func (f *acpFront) fetchModels(over chan struct{}) {
	ctx, stop := context.WithTimeout(f.life, modelsLimit)
	defer stop()
	raw, e := f.catalog(ctx, "models", "")
	list, pid := readModels(raw), f.status().ChildPID
	l := &f.models
	l.mu.Lock()
	was := l.list
	if e == nil && list != nil {
		l.list, l.pid, l.at = list, pid, time.Now()
	}
	changed := string(toJSON(was)) != string(toJSON(l.list))
	l.fetching = nil
	l.mu.Unlock()
	close(over)
	if changed {
		f.each(f.settled)
	}
}
