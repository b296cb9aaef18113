package main

// codex_app_strays.go owns what came for threads that nobody owns yet: a
// subagent's before its parent's item names it, a new thread's before its
// thread/start is answered. The forest of codex_app_forest.go calls it, under its
// own lock, and decides what becomes of them. It must never hold without a
// limit, in time or in size, since a thread may stay nobody's for good.

import "time"

const (
	strayHold  = time.Second
	strayCount = 1000    // events held of all strays together
	strayBytes = 4 << 20 // and their bytes
)

// strays are guarded by the forest's lock.
type strays struct {
	expire func(id string, s *stray) // called by a timer after strayHold, without the lock

	held  map[string]*stray // by thread
	count int
	bytes int
	over  bool // the child is gone
}

// stray is a thread that nobody owns yet.
type stray struct {
	parent string // as far as a thread/started told
	items  []strayItem
	timer  *time.Timer
}

// strayItem is an event, or a request if req is set.
type strayItem struct {
	e   event
	req *message
}

func (it strayItem) size() int { return len(it.e.raw) + 64 }

// hold keeps something for a while. false: it is over the limits, and not held.
func (l *strays) hold(id string, it strayItem) bool {
	if l.over || l.count >= strayCount || l.bytes+it.size() > strayBytes {
		return false
	}
	s := l.held[id]
	if s == nil {
		s = &stray{}
		l.held[id] = s
		l.wait(id, s)
	}
	if it.e.method == "thread/started" {
		s.parent = parentOf(it.e.raw)
	}
	s.items = append(s.items, it)
	l.count, l.bytes = l.count+1, l.bytes+it.size()
	return true
}

func (l *strays) wait(id string, s *stray) {
	s.timer = time.AfterFunc(strayHold, func() { l.expire(id, s) })
}

// take returns what was held for a thread, which is no stray any more.
func (l *strays) take(id string) []strayItem {
	s := l.held[id]
	if s == nil {
		return nil
	}
	s.timer.Stop()
	delete(l.held, id)
	for _, it := range s.items {
		l.count, l.bytes = l.count-1, l.bytes-it.size()
	}
	return s.items
}

// holdOn holds a thread's events for another while, and returns its requests,
// which have waited long enough.
func (l *strays) holdOn(id string) []*message {
	s := l.held[id]
	kept := s.items[:0:0]
	for _, it := range s.items {
		if it.req != nil {
			l.count, l.bytes = l.count-1, l.bytes-it.size()
			continue
		}
		kept = append(kept, it)
	}
	refused := requestsOf(s.items)
	s.items = kept
	l.wait(id, s)
	return refused
}

// childrenOf are the strays that said they are a thread's subagents.
func (l *strays) childrenOf(parent string) (ids []string) {
	for id, s := range l.held {
		if s.parent == parent {
			ids = append(ids, id)
		}
	}
	return ids
}

// end drops all, since who would answer or be answered is gone.
func (l *strays) end() {
	for id := range l.held {
		l.take(id)
	}
	l.over = true
}

func requestsOf(items []strayItem) (list []*message) {
	for _, it := range items {
		if it.req != nil {
			list = append(list, it.req)
		}
	}
	return list
}
