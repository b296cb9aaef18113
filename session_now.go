package main

// session_now.go owns what other processes are told of an open agent while it works (atm-agent-mcp watch): what it
// does, since when, and what somebody must decide. That stands in the file of the agent's lease, as `now`: so
// it is believed only while a process holds the agent, and a kill -9 leaves nothing that looks alive. The session's
// loop compares and hands over; the syncer's goroutine writes, the newest only and without fsync. An idle agent is
// written once.

import (
	"encoding/json"
	"time"
)

// maxNowText is how many characters of a text other processes are told.
const maxNowText = 500

// sessionNow is what an agent does now. It holds nothing that can't be compared.
type sessionNow struct {
	Status   string    `json:"status"`
	Doing    string    `json:"doing,omitempty"`   // in words, "" for nothing
	Since    time.Time `json:"since,omitzero"`    // when the three fields around this one were last different
	Decision nowAsk    `json:"decision,omitzero"` // the oldest that somebody must make
	Waiting  int       `json:"decisions_waiting"`
	Queued   int       `json:"queued_turns"`
	Unread   int       `json:"unread_mail"`
	Tokens   int64     `json:"total_tokens"`
	Cwd      string    `json:"cwd,omitempty"`
	Client   string    `json:"client_session,omitempty"` // the id of Claude Code's that started the agent's proxy
}

// nowAsk is an approval that waits for somebody's decision.
type nowAsk struct {
	ApprovalID string `json:"approval_id"`
	Kind       string `json:"kind"`
	Action     string `json:"action,omitempty"`
	ByCaller   bool   `json:"by_caller,omitempty"` // agent_approve is to decide it: no person is asked
}

// nowTeller tells other processes what one session does.
type nowTeller struct {
	s    *session
	told sessionNow
}

// tell has others read what a session shows of itself, if that is news for them. It runs on the session's loop.
func (t *nowTeller) tell(v *sessionView) {
	p, words := t.s.place, t.s.h.cfg.persistThreads // without records nothing that was said is kept either
	if p.lease == nil {
		return
	}
	now := sessionNow{Status: v.Status, Since: t.told.Since, Queued: v.Queued, Unread: deref(v.PendingMail),
		Tokens: v.Tokens, Cwd: v.Cwd, Client: t.s.h.cfg.clientSession}
	for _, ask := range v.Pending {
		if ask.offered {
			if now.Waiting++; now.Waiting == 1 {
				now.Decision = nowAsk{ApprovalID: ask.ApprovalID, Kind: ask.Kind, Action: ask.Action,
					ByCaller: ask.byCaller}
			}
		}
	}
	switch {
	case !words:
		now.Decision.Action = ""
	case now.Waiting > 0: // the activity names the newest
	case v.Activity != "":
		now.Doing = v.Activity
	case v.Status == statusIdle && p.rec.LastError != "":
		now.Doing = "the last turn failed: " + p.rec.LastError
	}
	if now.Status != t.told.Status || now.Doing != t.told.Doing || now.Decision != t.told.Decision {
		now.Since = time.Now().UTC()
	}
	if now == t.told {
		return
	}
	t.told = now
	lease, log := p.lease, t.s.log
	t.s.h.reg.disk.later(lease.path, func() {
		if err := lease.tell(now.line()); err != nil {
			log.Debug("other processes aren't told what the agent does", "err", err)
		}
	})
}

// line is what stands in the lease's file.
func (n sessionNow) line() string {
	for _, text := range []*string{&n.Doing, &n.Decision.Action} {
		*text = clipChars(redact(visible(oneLine(*text))), maxNowText)
	}
	return string(toJSON(n))
}

// toldNow is what the process that holds an agent tells of it; busy with being opened where it has told nothing yet.
func toldNow(c lockContent) (n sessionNow) {
	if json.Unmarshal([]byte(c.now), &n) != nil || n.Status == "" {
		return sessionNow{Status: statusBusy, Doing: "opening"}
	}
	return n
}
