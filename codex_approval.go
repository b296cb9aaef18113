package main

// codex_approval.go owns the neutral form of what Codex asks before it acts, and of the decision. The drivers translate
// to and from their wire, the session keeps what is pending and its timer, the fronts ask somebody and show what its
// methods tell. The default is always to deny: on timeout, disconnect, nonsense (FR-18).

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// decision is the answer to an approval. Only an explicit yes approves.
type decision int

const (
	deny decision = iota
	approve
	approveForSession
	approveAlways // and keep the rule that Codex proposed: a person's word only
)

func (d decision) String() string {
	return [...]string{"deny", "approve", "approve_for_session", "approve_always"}[d]
}

// Kinds of approval.
const (
	askCommand     = "command"
	askFileChange  = "file_change"
	askPermissions = "permissions"
	askMCPTool     = "mcp_tool"
	askQuestion    = "question"
	askUnknown     = "unknown" // a kind this version doesn't know: always declined
)

// approval is one open question of the child.
type approval struct {
	id     string // unique in this process, given by the driver
	kind   string // askCommand and the like
	thread string // the session's thread or a subagent's
	turn   string
	item   string // the item that waits for the decision, "" where Codex names none
	// action is the exact command line, the list of files or the tool and its
	// arguments: what an approver must have seen.
	action  string
	command string       // the exact command line of an askCommand
	cwd     string       // where the command would run
	files   []fileChange // the patch of an askFileChange
	// more is what the approval asks for beside a command or files, a line each: network access, other permissions, a
	// directory to write under. These lines stand in action too.
	more []string
	// page is the address that an askQuestion wants opened in a browser, "" for none.
	page   string
	reason string // why, in Codex's or the model's words
	// server, tool and arguments of an askMCPTool.
	server, tool string
	arguments    json.RawMessage
	// questions of an askQuestion, in the order in which Codex asks them.
	questions []question
	byAgent   bool // the agent itself asks the questions, no MCP server
	// forSession: the child can keep a yes for the rest of its thread, so that approveForSession may be offered.
	forSession bool
	// rule is the permanent rule that Codex proposes: the words that a command begins with which would never be asked
	// about again. The session takes the rule out where nobody may be offered it.
	rule []string
	// subagent is who asks, nil for the agent itself.
	subagent *subagentRef
}

// question is one thing a user is asked; options may be empty.
type question struct {
	id, header, text string
	options          []string // what may be answered, none for free words
	about            []string // what each option means, "" where nobody said; may be shorter
	other            bool     // words beside the options are an answer too
	several          bool     // more than one option may be chosen
	secret           bool     // the answer is not to be shown
	optional         bool     // a yes needs no answer to it
	flat             bool     // the client that is asked knows no field for several choices
}

// hint says what the text of a question doesn't: that several may be chosen, that the answer is not to be shown.
func (q *question) hint() string {
	var hints []string
	if q.several {
		hints = append(hints, "several may be chosen, separated by commas")
	}
	if q.secret {
		hints = append(hints, "a secret: the agent gets to read it")
	}
	if hints == nil {
		return ""
	}
	return " (" + strings.Join(hints, "; ") + ")"
}

// choices are the options with what they mean.
func (q *question) choices() []string {
	out := slices.Clone(q.options)
	for i, about := range q.about {
		if about != "" {
			out[i] += ": " + about
		}
	}
	return out
}

// subagentRef names a subagent's thread. Codex gives names and roles from
// 0.148 on; before there is only the thread.
type subagentRef struct {
	thread, name, role string
	via                *subagentRef // who started the subagent, where that is a subagent too; else nil
}

// label is the name that a person reads.
func (r *subagentRef) label() string {
	s := cmp.Or(r.name, r.thread)
	if r.role != "" && r.role != r.name {
		s += " (" + r.role + ")"
	}
	return s
}

// asker names the subagent that asks, "" for the agent itself.
func (q *approval) asker() string {
	if q.subagent == nil {
		return ""
	}
	s := q.subagent.label()
	for r := q.subagent.via; r != nil; r = r.via {
		s += ", started by subagent " + r.label()
	}
	return s
}

// limit is what a decision comes to: what the child can't keep for a session is approved once, and a rule that outlives
// the session is the client's user's to make, as Codex proposed it or not at all.
func (q *approval) limit(d decision, by decider) decision {
	switch {
	case d == approveAlways && (len(q.rule) == 0 || by.who != byUser):
		return approve
	case d == approveForSession && !q.forSession:
		return approve
	}
	return d
}

// deciderKind is who or what decides an approval.
type deciderKind int

const (
	byNobody    deciderKind = iota // something came first, or the time ran out; said is "before …" or "within …"
	byUser                         // the client's user, at its dialog
	byDismissal                    // the client's dialog was closed, or a client without one closed it
	byError                        // the client answered with an error; said is that
	byUnclear                      // what the client answered is neither yes nor no
	byCaller                       // agent_approve; said is the reason that came with it
	byNoWay                        // there is no way to ask; said is why
	byPolicy                       // a setting; said is which
	byUs                           // what can't be put to anybody; said is why
)

// decider is who or what decided an approval. Turn results, the audit log, the
// child and the client are told its words; nobody reads them back.
type decider struct {
	who  deciderKind
	said string // what deciderKind says of it, "" for the others
}

// words of a decision: who said no, or by whom it was approved.
func (b decider) words(d decision) string {
	switch b.who {
	case byUser:
		if d != deny {
			return "by the user at the client"
		}
		return "the user at the client said no"
	case byCaller:
		if d != deny {
			return "by the caller, with agent_approve"
		}
		return strings.TrimSuffix("the caller said no, with agent_approve: "+b.said, ": ")
	case byDismissal:
		return "the client closed the question without an answer"
	case byError:
		return "the client answered the question with an error: " + b.said
	case byUnclear:
		return "the client's answer was no clear yes"
	case byNoWay:
		return "the client can't be asked for approval: " + b.said
	case byPolicy:
		return "the policy: " + b.said
	case byUs:
		return "this server: " + b.said
	case byNobody:
	}
	return "nobody answered " + b.said
}

// asksFor adds what an approval asks for beside its command or files; lines without words add nothing.
func (q *approval) asksFor(lines string) {
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		if line != "" {
			q.more = append(q.more, line)
			q.action = strings.TrimSpace(q.action + "\n" + line)
		}
	}
}

// asksToWrite adds the directory that a patch wants to write under, "" for none.
func (q *approval) asksToWrite(root string) {
	if root != "" {
		q.asksFor("write access under " + root)
	}
}

// changesText lists what a patch does to which file.
func changesText(files []fileChange) string {
	var lines []string
	for _, f := range files {
		line := strings.TrimSpace(f.kind + " " + f.path)
		if f.move != "" {
			line += " moved to " + f.move
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// maxShownDiff is how much of a patch is shown to who decides.
const maxShownDiff = 64 << 10

// diff is the patch as one unified diff, cut with a note if it is long. Codex
// has a diff only of a file that changes, else the whole text.
func (q *approval) diff() string {
	var b strings.Builder
	for _, f := range q.files {
		switch {
		case f.kind == "add":
			wholeFile(&b, "/dev/null", f.path, '+', f.diff)
		case f.kind == "delete":
			wholeFile(&b, f.path, "/dev/null", '-', f.diff)
		default:
			if !strings.HasPrefix(f.diff, "--- ") && !strings.HasPrefix(f.diff, "diff ") {
				fmt.Fprintf(&b, "--- %s\n+++ %s\n", f.path, cmp.Or(f.move, f.path))
			}
			b.WriteString(f.diff)
			if f.diff != "" && !strings.HasSuffix(f.diff, "\n") {
				b.WriteByte('\n')
			}
		}
	}
	all := b.String()
	if len(all) <= maxShownDiff {
		return all
	}
	shown := clipUTF8(all, maxShownDiff)
	shown = shown[:strings.LastIndexByte(shown, '\n')+1]
	return fmt.Sprintf("%s[diff cut: %d of %d bytes shown]\n", shown, len(shown), len(all))
}

func wholeFile(b *strings.Builder, from, to string, sign byte, text string) {
	fmt.Fprintf(b, "--- %s\n+++ %s\n", from, to)
	lines := slices.Collect(strings.Lines(text))
	switch {
	case text == "":
		return
	case sign == '+':
		fmt.Fprintf(b, "@@ -0,0 +1,%d @@\n", len(lines))
	default:
		fmt.Fprintf(b, "@@ -1,%d +0,0 @@\n", len(lines))
	}
	for _, line := range lines {
		b.WriteByte(sign)
		b.WriteString(line)
	}
	if !strings.HasSuffix(text, "\n") {
		b.WriteString("\n\\ No newline at end of file\n")
	}
}

// declined is what the turn's result tells of an action that was not done.
type declined struct {
	Kind   string `json:"kind"`
	Action string `json:"action"`
	Reason string `json:"reason"` // decider.words
}

// pendingAsk is an approval that nobody has decided yet.
type pendingAsk struct {
	approval
	correlation string      // of the turn in which the approval was asked, for the audit log
	since       time.Time   // when it was asked
	timer       *time.Timer // declines it, nil where there is no limit
	offered     bool        // somebody can decide it: the client was asked, or its caller may
	byCaller    bool        // the caller is to decide it, with agent_approve: no person is asked
}

// approvalTable keeps a session's approvals until the child has heard the decision. Only the session loop touches it;
// the timer lives here, in the core, so that no client can keep a turn waiting (FR-18.4).
type approvalTable struct {
	pending  map[string]*pendingAsk // by approval id
	verdicts map[string]*verdict    // by approval id: decided, and perhaps not told yet
}

// verdict is a decision on its way to the child, which hears it when its audit line is on disk.
type verdict struct {
	ask  *pendingAsk
	says decision
	sent atomic.Bool   // the child hears the decision, or need not any more
	done chan struct{} // closed when the child has heard all that it will of the decision
}

// add keeps an approval and calls expired from a timer's goroutine unless the
// approval is taken within timeout; 0 is no limit.
func (b *approvalTable) add(q approval, timeout time.Duration, expired func()) {
	if b.pending == nil {
		b.pending = map[string]*pendingAsk{}
	}
	p := &pendingAsk{approval: q, since: time.Now()}
	if timeout > 0 {
		p.timer = time.AfterFunc(timeout, expired)
	}
	b.pending[q.id] = p
}

// take removes an approval to decide it; nil when somebody else has: the first decision wins.
func (b *approvalTable) take(id string) *pendingAsk {
	p := b.pending[id]
	if p != nil {
		delete(b.pending, id)
		if p.timer != nil {
			p.timer.Stop()
		}
	}
	return p
}

// addVerdict keeps the decision of what was taken, in the place of one that was overruled.
func (b *approvalTable) addVerdict(p *pendingAsk, d decision) *verdict {
	if b.verdicts == nil {
		b.verdicts = map[string]*verdict{}
	}
	v := &verdict{ask: p, says: d, done: make(chan struct{})}
	b.verdicts[p.id] = v
	return v
}

// dropVerdict forgets a decision that nothing is to be done about any more.
func (b *approvalTable) dropVerdict(v *verdict) {
	if b.verdicts[v.ask.id] == v {
		delete(b.verdicts, v.ask.id)
	}
}

// ids of what is pending, oldest first.
func (b *approvalTable) ids() []string {
	return slices.SortedFunc(maps.Keys(b.pending), func(one, two string) int {
		return b.pending[one].since.Compare(b.pending[two].since)
	})
}
