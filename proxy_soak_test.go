package main

// proxy_soak_test.go drives one proxy for as long as it is told to, with everything
// that clients do to it at once, and holds it to the invariants of design.md
// afterwards: whatever was asked was answered once, nothing is held, busy or
// running any more, files are whole, and the process is as small as it was.
// All of it runs in this process, front, hub, driver and mock Codex over pipes,
// so that goroutines can be counted. proxy_soakrig_test.go has the client.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	soakAgents  = 20 // known at once; fewer may be open
	soakOpen    = 12
	soakDrivers = 8                      // goroutines that ask
	soakRound   = 10 * time.Second       // of one proxy, at most
	soakKill    = 400 * time.Millisecond // between two deaths of the child, about
	// soakPatience is how long a driver waits for an answer: it may stand behind
	// one that never comes.
	soakPatience = 50 * time.Millisecond
)

func TestSoak(t *testing.T) {
	length, seed := pick(2*time.Second, time.Minute), testSeed(t)
	defer func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d", longVar, seed)
		}
	}()
	dir := t.TempDir()
	t.Setenv("CODEX_HOME", dir)
	before := takeFootprint()
	known := &soakBook{}
	end := time.Now().Add(length)
	for round := 0; round == 0 || time.Now().Before(end) && !t.Failed(); round++ {
		restart := round%2 == 0 // or else nothing runs after a child's death but a new proxy
		s := newSoak(t, dir, restart, known, rand.New(rand.NewPCG(seed, uint64(round))))
		s.long = longTests()
		s.run(min(soakRound, max(length/2, time.Until(end))), restart)
		s.quiesce()
		s.end()
		s.checkFiles()
	}
	before.compare(t)
	t.Logf("%v: %s", length, known)
}

// run has the drivers ask until the time is up.
func (s *soak) run(length time.Duration, restart bool) {
	over := make(chan struct{})
	timer := time.AfterFunc(length, func() { close(over) })
	defer timer.Stop()
	var drivers sync.WaitGroup
	for range soakDrivers {
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 1))
		drivers.Go(func() { // until over
			for {
				select {
				case <-over:
					return
				default:
				}
				s.act(rnd, over)
			}
		})
	}
	drivers.Go(func() { // kills the child, until over
		for kills := 0; ; kills++ {
			pause := time.NewTimer(soakKill)
			select {
			case <-over:
				pause.Stop()
				return
			case <-pause.C:
			}
			if restart || kills == 2 {
				s.killChild()
			}
		}
	})
	drivers.Wait()
}

// act does one thing that a client may do.
func (s *soak) act(rnd *rand.Rand, over <-chan struct{}) {
	word := "w" + strconv.Itoa(int(s.words.Add(1)))
	agent := s.known.pick(rnd)
	var c *soakCall
	switch n := rnd.IntN(100); {
	case agent == "" || n < 8 && s.known.size() < soakAgents:
		args := map[string]any{"prompt": "SAY " + word}
		if rnd.IntN(4) == 0 {
			args["identity"] = "named-" + word
		}
		c = s.tool("codex", args)
	case n < 30:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SAY " + word})
	case n < 36:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SHELLESC true\nSAY " + word})
	case n < 40:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SLOW 40 " + word})
	case n < 43:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "FLOOD 500\nSAY " + word})
	case n < 45:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "BIG 40000"})
	case n < 47:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SUBAGENT SAY sub ;; SHELLESC true\nSAY " + word})
	case n < 49:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "FAIL 500"})
	case n < 50:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "BACKGROUND exec sleep 1000\nSAY " + word})
	case n < 55:
		s.stuck(s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "SAY half\n" + []string{"HANG", "SHELL exec sleep 1000"}[rnd.IntN(2)]}))
		return
	case n < 57:
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "HANG", "timeout_secs": 0.05})
	case n < 63:
		prompt := []string{"SAY " + word, "SLOW 40 " + word, "SHELLESC true\nSAY " + word, "HANG"}[rnd.IntN(4)]
		c = s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": prompt, "background": true})
	case n < 68:
		c = s.tool("agent_wait", map[string]any{"agent_id": agent, "timeout_secs": 0.1})
	case n < 70:
		c = s.tool("agent_interrupt", map[string]any{"agent_id": agent})
	case n < 76:
		s.cancelOne(rnd)
		return
	case n < 84:
		s.answerOne(rnd)
		return
	case n < 88:
		c = s.tool("agent_close", map[string]any{"agent_id": agent})
	case n < 92:
		c = s.tool("codex", map[string]any{"agent_id": agent, "prompt": "SAY " + word, "tag": word})
	case n < 94:
		c = s.tool("codex", map[string]any{"agent_id": agent})
	case n < 97:
		c = s.tool("agent_status", map[string]any{})
	case n < 99:
		c = s.tool("agent_sessions", map[string]any{"limit": 30})
	case s.long && rnd.IntN(20) == 0: // the session is broken after ten seconds, and recovered by a later codex
		s.stuck(s.tool("codex-reply", map[string]any{"agent_id": agent, "prompt": "IGNORE_INTERRUPT\nHANG"}))
		return
	default:
		c = s.request("tools/list", map[string]any{})
	}
	if rnd.IntN(10) > 0 {
		s.waitFor(c, soakPatience, over)
	}
}

// quiesce ends what would never end, until everything is answered; then nothing
// may be busy, and what is closed must be free.
func (s *soak) quiesce() {
	s.t.Helper()
	if !poll(s.limit, func() bool {
		for _, v := range s.busy() {
			s.waitFor(s.tool("agent_interrupt", map[string]any{"agent_id": v.ID}), s.limit, nil)
		}
		s.answerAll()
		return s.open() == 0 && len(s.busy()) == 0
	}) {
		s.t.Fatalf("after %v %d requests have no answer: %s\nand %s", s.limit, s.open(), s.openOnes(), toJSON(s.busy()))
	}
	var closed []*soakCall
	for _, v := range s.sessions() { // also those whose first turn died with the child: nobody was told of them
		closed = append(closed, s.tool("agent_close", map[string]any{"agent_id": v.ID}))
	}
	for _, c := range closed {
		s.waitFor(c, s.limit, nil)
	}
	for _, v := range s.sessions() {
		if v.Here || v.Status != statusClosed {
			s.t.Errorf("%s is %s after agent_close, here: %v", v.ID, v.Status, v.Here)
		}
		if _, pid, held := s.hub.reg.holder(v.Identity); held {
			s.t.Errorf("identity %s of %s, which is closed, is held by process %d", v.Identity, v.ID, pid)
		}
	}
	status := rawField(s.answer("agent_status", map[string]any{}), "structuredContent")
	if names := rawField(status, "identities"); string(names) != "{}" {
		s.t.Errorf("every agent is closed, and these names are in use: %s", names)
	}
	s.known.forget(s.rnd)
}

// soakSession is a session as agent_sessions tells it.
type soakSession struct {
	ID       string `json:"agent_id"`
	Identity string
	Status   string
	Activity string
	Queued   int
	Here     bool `json:"open_here"`
}

func (s *soak) sessions() []soakSession {
	s.t.Helper()
	var list struct{ Sessions []soakSession }
	if err := json.Unmarshal(rawField(s.answer("agent_sessions", map[string]any{"limit": 1000}), "structuredContent"), &list); err != nil {
		s.t.Fatal(err)
	}
	return list.Sessions
}

// busy are the agents that are still at work.
func (s *soak) busy() (busy []soakSession) {
	s.t.Helper()
	for _, v := range s.sessions() {
		if v.Status == statusBusy {
			busy = append(busy, v)
		}
	}
	return busy
}

// soakBook is what the clients of all rounds know and have counted.
type soakBook struct {
	mu     sync.Mutex // guards the fields below
	agents []string

	asked, answered, cancelled, deaths, approvals int
}

func (b *soakBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%d requests, %d answers, %d cancelled, %d approvals, %d deaths of the child", b.asked, b.answered, b.cancelled, b.approvals, b.deaths)
}

func (b *soakBook) add(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.agents {
		if a == agent {
			return
		}
	}
	b.agents = append(b.agents, agent)
}

func (b *soakBook) pick(rnd *rand.Rand) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.agents) == 0 {
		return ""
	}
	return b.agents[rnd.IntN(len(b.agents))]
}

func (b *soakBook) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.agents)
}

// forget lets half of the agents go, so that the next round starts new ones.
func (b *soakBook) forget(rnd *rand.Rand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rnd.Shuffle(len(b.agents), func(i, j int) { b.agents[i], b.agents[j] = b.agents[j], b.agents[i] })
	b.agents = b.agents[:len(b.agents)/2]
}
