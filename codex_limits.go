package main

// codex_limits.go owns what is known of the account's limits: how much of each window is used, until when, and what is
// left to buy. Both drivers tell it what Codex says with nearly every answer of the model, on the reading goroutine;
// results, agent_status and doctor show it. What Codex leaves out was not told, and takes nothing back that was.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// limitWarning is the percentage from which on every result tells how much of a limit is used.
const limitWarning = 90

// What Codex tells beyond these is no limit that anybody has.
const (
	maxLimitWindows = 20
	maxLimitMinutes = 10 * 366 * 24 * 60 // ten years
	maxLimitReset   = 1 << 36            // in the year 4147; RFC 3339 ends with 9999
)

// limitsShown is what agent_status tells.
type limitsShown struct {
	Plan    string        `json:"plan,omitempty"`
	Credits *limitCredits `json:"credits,omitempty"`
	AsOf    string        `json:"as_of" doc:"When Codex told it last"`
	Windows []limitWindow `json:"windows"`
	reached string        // Codex's word for which limit is reached, "" where it has none
}

// limitCredits is what an account has beside its plan.
type limitCredits struct {
	Has       bool   `json:"has_credits"`
	Unlimited bool   `json:"unlimited"`
	Balance   string `json:"balance,omitempty"`
}

// limitWindow is one limit: so much may be used in so many minutes.
type limitWindow struct {
	Name     string  `json:"name"`
	Used     float64 `json:"used_percent"`
	Minutes  int64   `json:"window_minutes,omitempty"`
	ResetsAt string  `json:"resets_at,omitempty" doc:"RFC 3339"`

	resets time.Time // zero where Codex didn't say
}

// limitReached is why a turn failed for a limit.
type limitReached struct {
	Kind     string `json:"kind" doc:"usage_limit, or Codex's own word for which one"`
	ResetsAt string `json:"resets_at,omitempty" doc:"RFC 3339"`
}

// accountLimits is what Codex has told of all limits. It may be used from any goroutine.
type accountLimits struct {
	mu    sync.Mutex  // guards the fields below
	asked bool        // Codex was asked once, since nothing was told
	shown limitsShown // AsOf is "" as long as nothing was told
}

// saidLimit is one limit in the words of app-server and of mcp-server, without the underscores of the latter.
type saidLimit struct {
	LimitID, LimitName, PlanType, RateLimitReachedType string

	Primary, Secondary *saidWindow
	Credits            *struct {
		HasCredits, Unlimited *bool
		Balance               string
	}
}

type saidWindow struct {
	UsedPercent                                 any // a number, else it was not told
	WindowDurationMins, WindowMinutes, ResetsAt float64
}

// take takes in what Codex says of one limit.
func (l *accountLimits) take(limit json.RawMessage, now time.Time) {
	var said saidLimit
	_ = json.Unmarshal(plainKeys(limit), &said) // what is of another type was not told
	l.mu.Lock()
	defer l.mu.Unlock()
	some := false
	for i, window := range []*saidWindow{said.Primary, said.Secondary} {
		if window == nil {
			continue
		}
		used, isNumber := window.UsedPercent.(float64)
		if !isNumber {
			continue
		}
		w := limitWindow{Name: [...]string{"primary", "secondary"}[i]}
		if other := cutName(oneLine(cmp.Or(said.LimitName, said.LimitID))); other != "" && said.LimitID != "codex" {
			w.Name = other + " " + w.Name
		}
		at := slices.IndexFunc(l.shown.Windows, func(o limitWindow) bool { return o.Name == w.Name })
		if at >= 0 {
			w = l.shown.Windows[at] // what is left out now was told before
		}
		w.Used = min(max(used, 0), 100)
		if n := cmp.Or(window.WindowMinutes, window.WindowDurationMins); n > 0 && n < maxLimitMinutes {
			w.Minutes = int64(n)
		}
		if n := window.ResetsAt; n > 0 && n < maxLimitReset {
			w.resets = time.Unix(int64(n), 0).UTC()
			w.ResetsAt = w.resets.Format(time.RFC3339)
		}
		some = true
		if at >= 0 {
			l.shown.Windows[at] = w
		} else if len(l.shown.Windows) < maxLimitWindows {
			l.shown.Windows = append(l.shown.Windows, w)
		}
	}
	if said.PlanType != "" {
		l.shown.Plan, some = cutName(oneLine(said.PlanType)), true
	}
	if c := said.Credits; c != nil {
		credits := deref(l.shown.Credits)
		if c.HasCredits != nil {
			credits.Has = *c.HasCredits
		}
		if c.Unlimited != nil {
			credits.Unlimited = *c.Unlimited
		}
		credits.Balance = cmp.Or(cutName(oneLine(c.Balance)), credits.Balance)
		l.shown.Credits, some = &credits, true
	}
	if some {
		l.shown.reached = cutName(oneLine(said.RateLimitReachedType))
		l.shown.AsOf = now.UTC().Format(time.RFC3339)
	}
}

// takeAll takes in the answer to account/rateLimits/read.
func (l *accountLimits) takeAll(answer json.RawMessage, now time.Time) {
	l.take(rawField(answer, "rateLimits"), now)
	_ = eachField(rawField(answer, "rateLimitsByLimitId"), func(_ string, limit json.RawMessage) bool {
		l.take(limit, now)
		return true
	})
}

// mayAsk reports, once, that Codex has told nothing and may be asked.
func (l *accountLimits) mayAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ask := l.shown.AsOf == "" && !l.asked
	l.asked = true
	return ask
}

// view is what is known, nil for nothing.
func (l *accountLimits) view() *limitsShown {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.AsOf == "" {
		return nil
	}
	v := l.shown
	v.Windows = append([]limitWindow{}, l.shown.Windows...)
	return &v
}

// limitsFile is where the limits stand as any process was told them last, for those that have no Codex.
func limitsFile(sessionsRoot string) string { return filepath.Join(sessionsRoot, ".limits.json") }

// fullest is the window that is used most and has not begun anew since, false where none was told.
func (v *limitsShown) fullest(now time.Time) (most limitWindow, ok bool) {
	if v == nil {
		return most, false
	}
	for _, w := range v.Windows {
		over := !w.resets.IsZero() && !now.Before(w.resets)
		if !over && (!ok || w.Used > most.Used || w.Used == most.Used && w.resets.After(most.resets)) {
			most, ok = w, true
		}
	}
	return most, ok
}

// warning is one line for results while a limit is nearly used up, "" else.
func (l *accountLimits) warning(now time.Time) string {
	w, ok := l.view().fullest(now)
	if !ok || w.Used < limitWarning {
		return ""
	}
	return "Codex's limit: " + w.line()
}

// line is a window in a few words.
func (w *limitWindow) line() string {
	line := fmt.Sprintf("%v%% of %s used", w.Used, w.title())
	if w.ResetsAt != "" {
		line += ", resets at " + w.ResetsAt
	}
	return line
}

// lines are the limits for people, none where nothing is known.
func (v *limitsShown) lines() (out []string) {
	if v == nil {
		return nil
	}
	for i := range v.Windows {
		out = append(out, "Limit: "+v.Windows[i].line()+".")
	}
	if c := v.Credits; c != nil && c.Has && !c.Unlimited && c.Balance != "" {
		out = append(out, "Credits left: "+c.Balance+".")
	}
	return out
}

// title names a window by its length, where that is known.
func (w *limitWindow) title() string {
	unit, n := "minute", w.Minutes
	switch {
	case n <= 0:
		return "the " + w.Name + " window"
	case n%(24*60) == 0:
		unit, n = "day", n/(24*60)
	case n%60 == 0:
		unit, n = "hour", n/60
	}
	if n > 1 {
		unit += "s"
	}
	return fmt.Sprintf("the %s window (%d %s)", w.Name, n, unit)
}

// why is what a turn's failure for a limit is told as, nil for another failure.
func (l *accountLimits) why(err *backendError, now time.Time) *limitReached {
	if err == nil || err.Info != "usageLimitExceeded" && err.Info != "usage_limit_exceeded" {
		return nil
	}
	v := l.view()
	r := &limitReached{Kind: "usage_limit"}
	if w, ok := v.fullest(now); ok {
		r.ResetsAt = w.ResetsAt
	}
	if v != nil && v.reached != "" {
		r.Kind = v.reached
	}
	return r
}
