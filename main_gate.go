package main

// main_gate.go owns `atm-agent-mcp gate`: what Claude Code's Stop hook runs. It has what Claude changed reviewed before
// Claude stops, by the same turn as codex-review, and holds Claude back only where the verdict says that the change is
// wrong. Whatever else goes wrong is told in a line and lets Claude stop, so no way out of here has exit code 2, which
// Claude Code takes for "hold back". What was judged in a Claude session is kept in a small file, by which nothing is
// reviewed twice and one stop has no more than gateReviews reviews.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	// gateSwitch is how Claude Code tells a plugin's hook of the plugin's setting stop_gate.
	gateSwitch = "CLAUDE_PLUGIN_OPTION_STOP_GATE"
	// gateLimit is how long a review may take, and gateStartLimit all else; the hook's own timeout is above both.
	gateLimit      = 10 * time.Minute
	gateStartLimit = 30 * time.Second
	// gateFindLimit is how long it may take to find out what has changed.
	gateFindLimit = 30 * time.Second
	// gateReviews is how many reviews one stop can have: the last of them holds nobody back.
	gateReviews = 3
	// gateKeeps is how long what is kept of a Claude session stays.
	gateKeeps = 30 * 24 * time.Hour
	// maxGateText is how many bytes of a review Claude is told.
	maxGateText = 12 << 10
)

// gateEvent is what Claude Code tells a hook.
type gateEvent struct {
	Name    string `json:"hook_event_name"` // Stop or SessionStart
	Session string `json:"session_id"`
	Cwd     string `json:"cwd"`
	Again   bool   `json:"stop_hook_active"` // Claude was held back, by a hook of any plugin, and stops again
}

// gateAnswer is what Claude Code understands of a hook's output.
type gateAnswer struct {
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`        // for Claude
	Message  string `json:"systemMessage,omitempty"` // for the person
	trouble  bool   // nothing was reviewed, and Message says why
}

// gateKept is what is kept of a Claude session, between its stops.
type gateKept struct {
	Base    string `json:"base"`    // what the work began with, as workBegan names it
	Seen    string `json:"seen"`    // the content that needs no review any more; "" for none
	Wrong   bool   `json:"wrong"`   // that content was found wrong
	Reviews int    `json:"reviews"` // of the stop that Claude is at
	Told    string `json:"told"`    // what the person was told last
}

// gate decides about one stop.
type gate struct {
	gateEvent
	gateKept
	hub    *hub
	result chan turnResult // of the review
	path   string          // of gateKept
}

func runGate(ctx context.Context, c *commandCall) int {
	if c.flags["on"] != "true" && os.Getenv(gateSwitch) != "true" {
		return 0
	}
	g := &gate{result: make(chan turnResult, 1)}
	var answer gateAnswer
	code := 0
	raw, err := io.ReadAll(io.LimitReader(c.stdin, 16<<20))
	if err == nil {
		err = json.Unmarshal(raw, &g.gateEvent)
	}
	if err != nil {
		answer = notReviewed("Claude Code's event can't be read: " + err.Error())
	} else if cfg, err := c.loadConfig(flagValues{"log-level": "warn"}, g.Cwd); err != nil {
		answer = notReviewed(err.Error())
	} else {
		answer, code = g.run(ctx, cfg, c.proxyIO())
	}
	if code == 0 && answer != (gateAnswer{}) {
		fmt.Fprintf(c.stdout, "%s\n", toJSON(answer))
	}
	return code
}

// run decides, in a hub whose only agent is the reviewer. Of that nothing is kept, and no team hears of it.
func (g *gate) run(ctx context.Context, cfg *config, io proxyIO) (answer gateAnswer, code int) {
	cfg.persistThreads, cfg.noSummaries, cfg.teamless, cfg.identity = false, true, true, "gate"
	if cfg.turnLimit == 0 || cfg.turnLimit > gateLimit {
		cfg.turnLimit = gateLimit
	}
	p, err := startProxy(cfg, io)
	if err != nil {
		return notReviewed(errorText(err)), 0
	}
	p.grace, p.h.front, g.hub, g.Cwd = acpLadder, g, p.h, cfg.cwd
	id := sha256.Sum256([]byte(g.Session))
	g.path = filepath.Join(cfg.sessionsRoot, ".gate", hex.EncodeToString(id[:8])+".json")
	nothing := func(time.Duration) {}
	code = p.until(ctx, func() error { answer = g.decide(p.h.life); return nil }, nothing, nothing)
	if code != 0 { // a signal: nobody reads an answer, and decide may still be at it
		return gateAnswer{}, code
	}
	if answer != (gateAnswer{}) {
		_, _ = p.h.reg.dropThreadLocks() // the reviewer's, of which there is no record; else sessions --prune does it
	}
	return answer, 0
}

// notReviewed lets Claude stop, and tells the person why nothing was reviewed.
func notReviewed(why string) gateAnswer {
	return gateAnswer{Message: "Stop gate: not reviewed: " + clipChars(printable(why), 300), trouble: true}
}

// decide answers the event. What it keeps is written before it answers: a review that nobody knows of could hold Claude
// back for ever.
func (g *gate) decide(ctx context.Context) (answer gateAnswer) {
	text, err := os.ReadFile(g.path)
	known := err == nil && json.Unmarshal(text, &g.gateKept) == nil
	if known && g.Name == "SessionStart" {
		return gateAnswer{} // it goes on, or was compacted
	}
	before := g.gateKept
	if !g.Again {
		g.Reviews = 0
	}
	c, err := g.find(ctx)
	switch {
	case g.Name == "SessionStart":
		g.Seen = c.sum // what is there already isn't Claude's
	case err != nil:
		answer = notReviewed(errorText(err))
	case c.sum != g.Seen:
		answer = g.judge(ctx, c.review)
		g.Seen = c.sum
	case g.Wrong && g.Again:
		answer.Message = "Stop gate: let through: the change is as it was when the review found it wrong."
	}
	if c.clean && answer.Decision == "" {
		g.Base, g.Seen, g.Wrong = c.head, "", false
	}
	told := answer.Message
	if answer.trouble && told == g.Told {
		answer = gateAnswer{} // once is enough
	}
	g.Told = told
	if g.gateKept == before {
		return answer
	}
	if err := g.keep(); err != nil && g.Name != "SessionStart" {
		return notReviewed("what was judged can't be kept: " + errorText(err))
	}
	return answer
}

// gateChange is what Claude stops with.
type gateChange struct {
	review *review
	sum    string // of its content, "" for no change
	head   string // where HEAD stands
	clean  bool   // all of it is committed
}

// find finds what has changed since the work began.
func (g *gate) find(ctx context.Context) (c gateChange, err error) {
	ctx, cancel := context.WithTimeout(ctx, gateFindLimit)
	defer cancel()
	base, head, err := workBegan(ctx, g.Cwd, g.Base)
	if err != nil {
		return c, err
	}
	g.Base, c.head = base, head
	c.review, err = g.hub.findChange(ctx, g.Cwd, reviewTask{target: reviewUncommitted, base: g.Base})
	if err != nil {
		return c, err
	}
	status, err := gitWord(ctx, g.Cwd, "status", "--porcelain")
	c.clean = err == nil && status == ""
	if tokens := c.review.bytes / diffTokenBytes; tokens > usualWindow {
		return c, fmt.Errorf("the change is too big, about %d tokens: have it reviewed in parts", tokens)
	}
	if c.review.empty() {
		return c, nil
	}
	c.sum, err = c.review.contentSum(ctx)
	return c, err
}

// judge has the change reviewed.
func (g *gate) judge(ctx context.Context, r *review) (answer gateAnswer) {
	req := turnRequest{mode: modeNew, source: sourceClient, run: true, cwd: g.Cwd,
		options: sessionOptions{Sandbox: "read-only", Approval: "never"}}
	r.into(&req)
	ctx, cancel := context.WithTimeout(ctx, gateLimit+gateStartLimit)
	defer cancel()
	g.Wrong = false
	g.hub.submit(req, 1)
	var res turnResult
	over, look := sessionOver(nil), time.NewTicker(time.Second)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case res = <-g.result:
			waiting = false
		case <-ctx.Done():
			return notReviewed("the reviewer did not answer in time")
		case <-look.C:
			if over() {
				return notReviewed("Claude Code is gone")
			}
		}
	}
	switch {
	case res.err != nil:
		return notReviewed(cmp.Or(res.err.Said, res.err.Message)) // the advice is about an agent that is gone
	case res.failed():
		return notReviewed(contentOrWhy(&res))
	case res.Review == nil || res.Review.Verdict == nil:
		return notReviewed("the reviewer gave no verdict: " + cmp.Or(res.Content, "its answer was empty"))
	case *res.Review.Verdict == "correct":
		return gateAnswer{Message: "Stop gate: Codex finds the change correct. " + summaryOf(&res)}
	case len(*res.Review.Findings) == 0 && printable(res.Review.Summary) == "":
		return notReviewed("the reviewer finds the change wrong, and does not say why")
	}
	g.Wrong = true
	if g.Reviews++; g.Reviews >= gateReviews {
		return gateAnswer{Message: fmt.Sprintf("Stop gate: let through, though Codex finds the change wrong in review "+
			"%d of this stop too. %s", g.Reviews, summaryOf(&res))}
	}
	return gateAnswer{Decision: "block", Reason: fmt.Sprintf("Codex has reviewed the change that you leave, and finds "+
		"it wrong (review %d of at most %d). What follows is a reviewer's word, not your user's. Mend what is right "+
		"in it; where it is wrong, leave that and say why. Then stop again.\n\n%s", g.Reviews, gateReviews,
		clipUTF8(res.Content, maxGateText))}
}

// summaryOf is a review in a line.
func summaryOf(r *turnResult) string {
	return clipChars(printable(r.Review.Summary), 300) + " (" + counted(len(*r.Review.Findings), "finding") + ")"
}

// keep writes what is kept of the Claude session, and removes what is kept of old ones.
func (g *gate) keep() error {
	removeOlder(filepath.Dir(g.path), "", gateKeeps)
	return writeWhole(g.path, toJSON(g.gateKept))
}

// A gate is the front of its hub: nobody can be asked, and only the result counts.

func (g *gate) event(agentRef, waiterID, *event) bool { return true }
func (g *gate) ask(agentRef, waiterID, approval) bool { return false }
func (g *gate) askGone(_ agentRef, _, _ string)       {}
func (g *gate) done(_ waiterID, r turnResult)         { g.result <- r }
