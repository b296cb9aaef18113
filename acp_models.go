package main

// acp_models.go owns the list of models as the child tells it (model/list).
// acp_options.go makes options of it, acp_prompt.go looks whether a model takes
// images. The list is kept for one child and for a while: without it everything
// works with the model that is. It must never keep anybody waiting who didn't ask to
// wait.

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

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

// acpModels keeps the list.
type acpModels struct {
	f *acpFront

	mu       sync.Mutex // guards the fields below
	kept     []acpModel
	pid      int // of the child that told the list
	at       time.Time
	fetching chan struct{} // closed when the fetch that runs has ended, nil for none
}

// list is what there is. A list of another child, or an old one, is asked for
// again: wait is how long for, 0 for not at all, and then the sessions are told
// when it has changed.
func (l *acpModels) list(wait time.Duration) []acpModel {
	pid := l.f.status().ChildPID
	l.mu.Lock()
	fresh := l.kept != nil && l.pid == pid && time.Since(l.at) < modelsFresh
	if !fresh && l.fetching == nil {
		over := make(chan struct{})
		if l.f.spawn(func() { l.fetch(over) }) {
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
