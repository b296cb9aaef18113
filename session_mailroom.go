package main

// session_mailroom.go owns the watch over the team's inboxes: who hears of which one, and when an inbox is looked into.
// Sessions join as they open and leave as they end; session_inbox.go has what is done with one inbox. One watcher and
// one poll timer serve all: an inbox that is left alone costs a stat at each poll. The mailroom must never make a team
// or an inbox.

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// mailroom may be used from any goroutine. run is its own, while there is a session; it ends with the hub's life.
type mailroom struct {
	*common
	team       *teamAgents
	dir        string                   // of the inboxes
	newWatcher func() (*watcher, error) // a test without processes has none
	wake       chan struct{}            // has room for one: run is to look at changed, all and respell

	mu      sync.Mutex           // guards the fields below, never held over I/O
	slots   map[string]*mailSlot // by lower-case identity
	changed map[string]bool      // the keys of slots whose inboxes have changed
	all     bool                 // any inbox may have changed
	respell bool                 // an inbox may be spelt otherwise than its slot says
	boxes   map[string]*mailSeen // by lower-case name: the inboxes that somebody here is told of
	running bool                 // run's goroutine has been started
	last    time.Time            // when anything happened last: a turn, or mail
}

// mailSeen is an inbox as it was last looked into for who waits for its mail.
type mailSeen struct {
	mailBox
	info os.FileInfo
	keys map[string]bool // of the unread messages
}

func newMailroom(c *common, team *teamAgents) *mailroom {
	return &mailroom{common: c, team: team, dir: filepath.Join(c.cfg.teamsRoot, c.cfg.team, "inboxes"),
		newWatcher: newWatcher, wake: make(chan struct{}, 1),
		slots: map[string]*mailSlot{}, changed: map[string]bool{}, boxes: map[string]*mailSeen{}}
}

// join has a session's inbox looked after, and looked into at once.
func (r *mailroom) join(s *session, identity string) *mailSlot {
	return r.attend(identity, func(sl *mailSlot) { sl.s, sl.infos, sl.strange = s, nil, "" })
}

// joinClient has the client's own inbox looked after.
func (r *mailroom) joinClient(identity string) {
	r.attend(identity, func(sl *mailSlot) { sl.client = true })
}

func (r *mailroom) attend(identity string, who func(*mailSlot)) *mailSlot {
	key := strings.ToLower(identity)
	r.mu.Lock()
	sl := r.slots[key]
	if sl == nil {
		sl = &mailSlot{r: r, identity: identity, unread: -1, names: []string{identity}, given: map[string]*givenMail{}}
		r.slots[key] = sl
	}
	who(sl)
	r.respell, r.changed[key] = true, true // its spelling may be another's
	start := !r.running
	r.running, r.last = true, time.Now()
	r.mu.Unlock()
	if start {
		r.work.start(r.run)
	}
	nudge(r.wake)
	return sl
}

// active notes that something happens, which begins idle_timeout_ms anew.
func (r *mailroom) active() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
}

// noticed is the watcher's word that an entry of the directory changed. What is
// no open session's inbox (locks, temporary files, others' mail) wakes nobody.
func (r *mailroom) noticed(entry string) {
	name, ok := strings.CutSuffix(entry, ".json")
	if entry != "" && !ok {
		return
	}
	r.mu.Lock()
	if sl := r.slots[strings.ToLower(name)]; entry == "" {
		r.all = true
	} else if sl == nil || !sl.watched() {
		r.mu.Unlock()
		return
	} else {
		r.respell = r.respell || !slices.Contains(sl.names, name)
		r.changed[strings.ToLower(name)] = true
	}
	r.mu.Unlock()
	nudge(r.wake)
}

// watch has changed told of the inboxes' files by a watcher that has no other watch.
func (r *mailroom) watch(changed func(entry string)) (*watch, error) {
	w, err := r.newWatcher()
	if err != nil {
		return nil, err
	}
	wa, err := w.add(r.dir, changed)
	if err != nil {
		w.close()
	}
	return wa, err
}

// mailWatch is the watch over the inboxes, as far as one is to be had.
type mailWatch struct {
	wa   *watch
	told bool
}

// open watches, or watches again where the kernel had given up. If it can't, the poll stands alone until the next try.
func (m *mailWatch) open(r *mailroom) {
	if m.works() {
		return
	}
	m.close() // the watch may come to life again, as after an overflow: then each change would be told twice
	wa, err := r.watch(r.noticed)
	if err == nil {
		m.wa = wa
		r.noticed("") // what happened until now was told to nobody
	} else if !m.told {
		m.told = true
		r.log.Info("inboxes can't be watched, mail is polled for", "interval", r.cfg.mailPollInterval, "err", err)
	}
}

func (m *mailWatch) works() bool { return m.wa != nil && m.wa.works() }

func (m *mailWatch) close() {
	if m.wa != nil {
		m.wa.owner.close()
		m.wa = nil
	}
}

// run waits for notices and polls below them: a network's file system tells nobody what another machine does.
func (r *mailroom) run() {
	var w mailWatch
	defer w.close()
	w.open(r)
	r.tell()
	poll := time.NewTicker(r.cfg.mailPollInterval)
	defer poll.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-r.wake:
			r.tell()
			if !w.works() {
				r.active() // there is nothing but the poll
			}
		case <-poll.C:
			if !r.rests(w.works()) {
				w.open(r)
				r.spell()
				r.lookAt(nil, true, false)
			}
		}
	}
}

// rests reports that a poll has nothing to do: no session is open, or, where notices are to be had, nothing happened
// for idle_timeout_ms.
func (r *mailroom) rests(noticed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	open, limit := false, r.cfg.idleTimeout
	for _, sl := range r.slots {
		open = open || sl.watched()
	}
	return !open || noticed && limit > 0 && time.Since(r.last) >= limit
}

// tell looks into the inboxes that notices were about.
func (r *mailroom) tell() {
	r.mu.Lock()
	keys, all, respell := r.changed, r.all, r.respell
	r.changed, r.all, r.respell = map[string]bool{}, false, false
	r.mu.Unlock()
	if all || respell {
		r.spell()
	}
	r.lookAt(keys, all, true)
}

// lookAt looks into inboxes that somebody wants to hear of, those of keys or all; fresh: they have changed, whatever
// the files look like.
func (r *mailroom) lookAt(keys map[string]bool, all, fresh bool) {
	r.mu.Lock()
	var slots []*mailSlot
	for key, sl := range r.slots {
		if (all || keys[key]) && sl.watched() {
			sl.fresh = sl.fresh || fresh
			slots = append(slots, sl)
		}
	}
	r.mu.Unlock()
	for _, sl := range slots {
		sl.look()
	}
}

// recount looks into an inbox, if its file has changed, for those who wait for its
// mail or are told of it. It reads the disk.
func (r *mailroom) recount(name string) {
	name = r.spelt(name)
	info, _ := pinned(os.Stat(filepath.Join(r.dir, name+".json")))
	key := strings.ToLower(name)
	r.mu.Lock()
	was := r.boxes[key]
	r.mu.Unlock()
	if was != nil && (info == nil && was.info == nil || info != nil && was.info != nil && sameFile(info, was.info)) {
		return
	}
	msgs, _, err := r.team.boxes.list(r.life, r.cfg.team, name, mailFilter{Plain: r.team.isClient(name)})
	if err != nil && !errors.Is(err, errNoTeam) {
		r.log.Debug("an inbox can't be counted", "identity", name, "err", err)
	}
	now := &mailSeen{mailBox: mailBox{Name: name, Unread: len(msgs), Ours: r.team.owns(name)}, info: info,
		keys: map[string]bool{}}
	fresh := false
	for _, m := range msgs {
		now.keys[m.Key] = true
		fresh = fresh || was == nil || !was.keys[m.Key]
	}
	r.kept.stamp(func(seq int64) {
		if now.seq = seq; !fresh && was != nil {
			now.seq = was.seq
		}
		r.mu.Lock()
		r.boxes[key] = now
		r.mu.Unlock()
	})
}

// spelt is how an inbox that is watched is spelt on disk.
func (r *mailroom) spelt(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sl := r.slots[strings.ToLower(name)]; sl != nil && len(sl.names) > 0 {
		return sl.names[0]
	}
	return name
}

// box is an inbox as it was last looked into.
func (r *mailroom) box(name string) mailBox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.boxes[strings.ToLower(name)]; b != nil && name != "" {
		return b.mailBox
	}
	return mailBox{Name: name}
}

// own is the client's own inbox, if it has one and no agent has its name.
func (r *mailroom) own() mailBox {
	if !r.team.isClient(r.cfg.clientIdentity) {
		return mailBox{}
	}
	return r.box(r.cfg.clientIdentity)
}

// spell finds how the inboxes are spelt: a member is one whatever the case, but
// whoever listed it gave the file its name.
func (r *mailroom) spell() {
	entries, _ := os.ReadDir(r.dir) // no team, no entries
	found := map[string][]string{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			found[strings.ToLower(name)] = append(found[strings.ToLower(name)], name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, sl := range r.slots {
		if names := found[key]; names != nil {
			sl.names = names
			if i := slices.Index(names, sl.identity); i > 0 {
				names[0], names[i] = names[i], names[0]
			}
		}
	}
}
