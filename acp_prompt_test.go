package main

// acp_prompt_test.go holds the prompts of an ACP session to their rules: each
// answered once and truly, in order, nothing of a turn behind its answer, a cancel
// at whatever moment, a client that doesn't read, a session that is loaded.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// acpPlay is a client and a hub that a file of cases moves, in a bubble of its own time.
type acpPlay struct {
	*acpFrontRig
	ids   map[string]string // of requests by their names, and back
	subs  []submitted       // by number, from 1
	turns map[string]*acpPlayed

	asked     json.RawMessage // the last request to the client
	accounted acpAccounted    // and to Codex, about its account
}

// TestACPPlays: each request is answered once and truly, in order, nothing of a turn
// comes behind its answer, a cancel may come at whatever moment.
func TestACPPlays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *acpPlay
		playCases(t, "plays", func(line string) []string {
			if strings.HasPrefix(line, "## ") {
				p = newACPPlay(t, line)
			} else {
				p.do(line)
			}
			time.Sleep(time.Second) // whatever may come of it has come
			synctest.Wait()
			return p.came()
		})
	})
}

func newACPPlay(t *testing.T, head string) *acpPlay {
	is := func(word string) bool { return strings.Contains(head, "("+word+")") }
	p := &acpPlay{ids: map[string]string{}, turns: map[string]*acpPlayed{}}
	p.acpFrontRig = newACPFrontRig(t, func(r *acpFrontRig, o *acpOptions) {
		o.Env = func(name string) string { return map[string]string{"OPENAI_API_KEY": "sk-1"}[name] }
		o.Steers = is("steers")
		switch {
		case is("text only"):
			r.models = `{"data":[{"id":"m1","model":"m1","isDefault":true,"inputModalities":["text"]}]}`
		case is("models"):
			r.models = modelCatalog
		case is("skills"):
			r.skills = skillCatalog
		case is("no login"):
			r.account = `{"account":null,"requiresOpenaiAuth":true}`
		case is("mcp-server"):
			r.status.Backend = "mcp-server"
		case is("plan mode"):
			r.set.Plan, r.set.Sandbox = true, sandboxRead
		}
		if is("read-only") {
			r.set.MaxSandbox, r.set.BaseSandbox = sandboxRead, sandboxRead
		}
	})
	caps := map[bool]string{true: `{"session":{"notices":{}}}`, false: `{"elicitation":{"url":{}}}`}
	if is("old client") {
		p.hello(`{}`)
	} else {
		p.hello(caps[is("notices")])
	}
	if !is("no session") && !is("no login") && !is("mcp-server") {
		p.open()
		p.changes = nil
	}
	return p
}

// do is what the client or the hub does.
func (p *acpPlay) do(line string) {
	word, rest, _ := strings.Cut(line, " ")
	first, more, _ := strings.Cut(rest, " ")
	if name, ok := strings.CutSuffix(word, ":"); ok {
		method, params := first, strings.Replace(more, `"S"`, `"`+p.session+`"`, 1)
		if method == "prompt" || method == "steer" {
			method = map[string]string{"prompt": "session/prompt", "steer": methodSteering}[method]
			params = p.of(`,"prompt":[{"type":"text","text":` + string(toJSON(more)) + `}]`)
		}
		id := p.start(method, params)
		p.ids[name], p.ids[id] = id, name
		return
	}
	turn := p.turns[first]
	switch word {
	case "cancel":
		if rest == "" {
			p.cancel()
		} else {
			p.cancelRequest(p.ids[rest])
		}
	case "begins", "starting", "steered", "result":
		n, err := strconv.Atoi(first)
		wantNil(p.t, err)
		sub := p.subs[n-1]
		if word == "begins" {
			p.turns[more] = p.plays(sub, more)
		} else if word == "starting" {
			p.f.event(agentRef{AgentID: p.agent}, sub.w, &event{kind: evNotice, phase: startingCodex})
		} else if word == "steered" {
			p.f.event(agentRef{AgentID: p.agent, Thread: "T"}, sub.w, &event{kind: evSteered, thread: "T", turn: more})
		} else {
			p.f.done(sub.w, playedResult(more))
		}
	case "mail":
		p.turns[rest] = p.turn(p.agent, 0, rest)
	case "says":
		turn.says(more)
	case "floods":
		turn.says(strings.Repeat("x", replayRoom))
	case "user":
		turn.is(said("userMessage", "u1", more))
	case "runs":
		turn.runs(more)
	case "ends":
		status, failure, _ := strings.Cut(more, " ")
		info, words, failed := strings.Cut(failure, " ")
		var err *backendError
		if failed {
			err = &backendError{Message: words, Info: info}
		}
		turn.ends(status, err)
	case "over":
		turn.is(&event{kind: evEnded, status: "completed"})
	case "gone":
		turn.is(&event{kind: evGone})
	case "misses": // the next interrupt
		p.misses.Store(true)
	case "server":
		p.f.event(agentRef{AgentID: p.agent, Thread: "T"}, 0,
			&event{kind: evServer, item: first, status: more, thread: "T"})
	case "keeps":
		session := strings.Replace(first, "S", p.session, 1)
		if first != "S" {
			session, p.session, p.agent = first, cmp.Or(p.session, first), cmp.Or(p.agent, more)
		}
		p.keeps(session, more)
	case "account":
		p.accounted.answer <- acpAnswered{raw: json.RawMessage(rest)}
	case "skills":
		p.mu.Lock()
		p.skills = rest
		p.mu.Unlock()
		p.f.heard(mSkills, nil)
	case "login":
		p.f.logins.onAccount("account/login/completed", json.RawMessage(rest))
	case "answers":
		p.reply(p.asked, `"result":`+rest)
	case "chooses":
		p.reply(p.asked, selected(rest))
	case "faults":
		p.reply(p.asked, `"error":{"code":-32603,"message":"no dialog"}`)
	case "plans":
		turn.is(said("plan", first+"-plan", strings.ReplaceAll(more, `\n`, "\n")))
	case "sleep":
		d, err := time.ParseDuration(rest)
		wantNil(p.t, err)
		time.Sleep(d)
	case "past":
		p.pastTurn(first, said("agentMessage", "a", more))
	default:
		p.t.Fatalf("nobody knows what %q is", line)
	}
}

// skillCatalog has skills of every scope, and some that are no commands.
const skillCatalog = `{"data":[{"cwd":"/work","errors":[],"skills":[
{"name":"hello","description":"Long words","shortDescription":"Says\n hello","path":"/s/hello/SKILL.md","scope":"repo","enabled":true},
{"name":"off","description":"x","path":"/s/off/SKILL.md","scope":"repo","enabled":false},
{"name":"compact","description":"x","path":"/s/compact/SKILL.md","scope":"repo","enabled":true},
{"name":"two words","description":"x","path":"/s/two/SKILL.md","scope":"repo","enabled":true},
{"name":"hello","description":"x","path":"/u/hello/SKILL.md","scope":"user","enabled":true},
{"name":"mine","description":"My own","path":"/u/mine/SKILL.md","scope":"user","enabled":true},
{"name":"admin","description":"x","interface":{"shortDescription":"Theirs"},"path":"/e/SKILL.md","scope":"admin"},
{"name":"skill-creator","description":"x","path":"/c/SKILL.md","scope":"system","enabled":true}]}]}`

// briefCommands are the names of commands, and all of those that aren't ours.
func briefCommands(list json.RawMessage) string {
	var out []string
	eachElement(list, func(c json.RawMessage) {
		name := stringField(c, "name")
		if !slices.ContainsFunc(acpCommands(), func(own acpCommand) bool { return own.name == name }) {
			name += ": " + stringField(c, "description") + "?"[:min(1, len(stringField(c, "input", "hint")))]
		} else if len(out) > 0 {
			return
		}
		out = append(out, name)
	})
	return strings.Join(out, " ")
}

// playedResult is a result of the hub's in words.
func playedResult(words string) turnResult {
	word, rest, _ := strings.Cut(words, " ")
	switch word {
	case "died":
		return turnResult{err: deathError(&childDeath{Reason: rest}, true)}
	case "timeout":
		return turnResult{err: proxyError(codeTimeout, "silent")}
	case "refused":
		return turnResult{err: proxyError(codeInvalidSession, rest)}
	}
	return turnResult{TurnStatus: word}
}

// came is what the client got since the last time, and what the hub was asked for.
func (p *acpPlay) came() (out []string) {
	sessions, own := regexp.MustCompile(`sess_[0-9a-f-]{36}`), regexp.MustCompile(`atm:[A-Z2-7]{12}`)
	add := func(format string, args ...any) {
		out = append(out, strings.TrimSpace(clip(own.ReplaceAllString(sessions.ReplaceAllString(fmt.Sprintf(format, args...), "S"),
			"OWN"), 300)))
	}
	for ; len(p.out) > 0; synctest.Wait() {
		rec := p.next()
		name, method := p.ids[string(rawField(rec, "id"))], stringField(rec, "method")
		switch {
		case method == "session/update":
			u := rawField(rec, "params", "update")
			if options := rawField(u, "configOptions"); options != nil {
				u = toJSON(map[string]string{"sessionUpdate": updateKind(rec), "options": currents(options)})
			}
			if commands := rawField(u, "availableCommands"); commands != nil {
				u = toJSON(map[string]string{"sessionUpdate": updateKind(rec), "commands": briefCommands(commands)})
			}
			add("told %s", briefUpdate(u))
		case method != "":
			if rawField(rec, "id") != nil {
				p.asked = rec
			}
			add("%s %s", method, rawField(rec, "params"))
		case rawField(rec, "error") != nil:
			add("%s: %s %s", name, rawField(rec, "error", "code"), stringField(rec, "error", "message"))
		default:
			result := rawField(rec, "result")
			if name == "S" {
				p.session = stringField(result, "sessionId")
			}
			add("%s: %s", name, cmp.Or(stringField(result, "stopReason"), currents(rawField(result, "configOptions")),
				string(result)))
		}
	}
	for len(p.submits) > 0 {
		sub := <-p.submits
		p.subs = append(p.subs, sub)
		r, what := sub.req, "open"
		if r.run {
			what = fmt.Sprintf("run %q", r.prompt)
		}
		if r.steer {
			what += map[bool]string{true: " steered", false: " steered now"}[r.inOrder]
		}
		for _, part := range r.parts {
			what += " " + part.kind + " " + part.text + part.url + part.path
		}
		p.agent = cmp.Or(r.agentID, p.agent)
		add("submit %d: %s%s %s in %s for %s %s %s", len(p.subs), r.agentID, r.ref, what, r.cwd, r.client.session,
			r.client.roots,
			r.servers)
		if r.approvals != "client" || r.source != sourceClient || (r.mode == modeNew) != (r.agentID != "") ||
			(r.mode == modeRevive) != (r.ref != "") {
			add("%+v", r)
		}
	}
	for len(p.cancels) > 0 {
		w := <-p.cancels
		add("take back %d", 1+slices.IndexFunc(p.subs, func(sub submitted) bool { return sub.w == w }))
	}
	for len(p.interrupts) > 0 {
		add("interrupt %q", (<-p.interrupts).turn)
	}
	for len(p.leaves) > 0 {
		add("leave %s", <-p.leaves)
	}
	for len(p.titles) > 0 {
		add("title %q", <-p.titles)
	}
	for len(p.accounts) > 0 {
		p.accounted = <-p.accounts
		add("account %s %s", p.accounted.action, p.accounted.params)
	}
	for _, c := range p.changes {
		add("change %s", toJSON(c))
	}
	p.changes = nil
	return out
}

// TestACPCancelWhileAnswered: a cancel that came while a command of ours was
// being told was answered at once, and the rest of the text came behind it.
func TestACPCancelWhileAnswered(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	telling, goOn := make(chan bool), make(chan bool)
	r.s.enc = newACPEncoder(acpEncoding{Cwd: systemPath("/work"), Send: func(update []byte) bool {
		telling <- true
		<-goOn
		return r.s.send(update)
	}})
	id := r.prompt("/status")
	receive(t, telling)
	r.cancelRequest(id)
	r.nothing()
	close(goOn)
	want(t, kindsOf(r.stops(id, "cancelled")), agentChunk)
	r.nothing()
}

// said is a message that is whole.
func said(kind, id, text string) *event {
	content := []any{map[string]any{"type": "text", "text": text}}
	raw := toJSON(map[string]any{"item": map[string]any{"id": id, "type": kind, "text": text, "content": content}})
	return &event{kind: evItem, item: id, phase: "completed", body: &itemBody{kind: kind, text: text}, raw: raw}
}

// TestACPStalledClient: a client that doesn't read has its prompt failed with the
// reason once its budget is used up; the turn goes on unseen, and the next one is
// shown again.
func TestACPStalledClient(t *testing.T) {
	t.Parallel()
	r := newOpenRig(t, `{}`, nil)
	stalled := make(chan struct{})
	r.f.p.out.mu.Lock() // nothing leaves while the test holds the writer
	w := r.f.p.out.w
	r.f.p.out.w = writerFunc(func(b []byte) (int, error) { <-stalled; return w.Write(b) })
	r.f.p.out.mu.Unlock()
	id := r.prompt("run")
	turn := r.begun("t1")
	turn.runs("c1")
	chunk := strings.Repeat("x", 64<<10)
	for range 20 << 4 { // 20 MiB
		turn.says(chunk)
	}
	if waits := r.f.p.queued(); waits > acpBudget+4*len(chunk) {
		t.Errorf("%d bytes wait", waits)
	}
	next := r.prompt("next") // waits for the turn
	sub := receive(t, r.submits)
	close(stalled)
	before := r.fails(id, codeInternal, "session/load")
	want(t, callStatus("codex:T:t1:c1", before...), callFailed)
	turn.says("unseen")
	turn.is(&event{kind: evEnded, status: "completed"})
	r.f.done(turn.w, turnResult{TurnStatus: "completed"})
	two := r.plays(sub, "t2")
	two.says("seen")
	two.ends("completed", nil)
	before = r.stops(next, "end_turn")
	if all := fmt.Sprintf("%s", before); strings.Contains(all, "unseen") || !strings.Contains(all, `"seen"`) {
		t.Errorf("told %s", all)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// pastTurn adds a turn to what is told of the past.
func (r *acpFrontRig) pastTurn(turn string, items ...*event) {
	for _, e := range append(append([]*event{{kind: evStarted}}, items...),
		&event{kind: evEnded, status: "completed"}) {
		e.thread, e.turn = "T", turn
		r.past = append(r.past, e)
	}
}

// TestACPLoadReplays: the past comes before the answer, in order, at the client's
// pace; a prompt that was sent behind the load waits for it.
func TestACPLoadReplays(t *testing.T) {
	t.Parallel()
	const turns = 200
	most := 0
	r := newACPFrontRig(t, nil)
	for n := range turns {
		answer := fmt.Sprint(n, strings.Repeat(" x", 32<<10))
		r.pastTurn(fmt.Sprint("t", n), said("userMessage", "u", "ask"), said("agentMessage", "a", answer))
	}
	r.replayed = func() { most = max(most, r.f.p.queued()) }
	r.session = "sess_1"
	r.keeps("sess_1", "codex:old")
	r.hello(`{}`)
	id := r.reopen("load", "sess_1")
	sub := receive(t, r.submits)
	if sub.req.ref != "codex:old" || sub.req.run || sub.req.mode != modeRevive || sub.req.cwd != systemPath("/work") {
		t.Errorf("opened with %+v", sub.req)
	}
	r.prompt("behind it")
	r.f.done(sub.w, turnResult{})
	got, before := r.answerTo(id)
	want(t, stringField(got, "result", "sessionId"), "sess_1")
	if most > replayRoom+256<<10 {
		t.Errorf("%d bytes of the past waited", most)
	}
	if len(before) != 2*turns {
		t.Fatalf("%d updates, want %d", len(before), 2*turns)
	}
	for n, rec := range before {
		told := updateKind(rec) + " " + stringField(rec, "params", "update", "content", "text")
		if n%2 == 0 && told != userChunk+" ask" || n%2 == 1 &&
			!strings.HasPrefix(told, fmt.Sprint(agentChunk, " ", n/2, " x")) {
			t.Fatalf("update %d is %.200s", n, rec)
		}
	}
	if sub := receive(t, r.submits); sub.req.prompt != "behind it" || !sub.req.run {
		t.Errorf("submitted %+v", sub.req)
	}
	none(t, "a title of its own was lost", r.titles)
}

// A cancel between the yes to a plan and the change of the mode takes the yes back: the session plans on.
func TestACPPlanTakenBack(t *testing.T) {
	type held struct {
		change settingsChange
		done   func(sessionSettings, *rpcError)
	}
	changes := make(chan held, 4)
	r := newOpenRig(t, `{}`, func(r *acpFrontRig, o *acpOptions) {
		r.set.Plan, r.set.Sandbox = true, sandboxRead
		o.retune = func(_ string, c settingsChange, done func(sessionSettings, *rpcError)) { changes <- held{c, done} }
	})
	prompt := r.prompt("plan it")
	turn := r.begun("t1")
	turn.is(said("plan", "t1-plan", "# Do it"))
	turn.ends("completed", nil)
	asked, _ := r.method("session/request_permission")
	r.reply(asked, selected("ask"))
	yes := receive(t, changes)
	r.cancel()
	r.told() // the cancel has come
	yes.done(sessionSettings{Sandbox: sandboxWrite, Approval: "on-request"}, nil)
	back := receive(t, changes)
	if !deref(back.change.Plan) {
		t.Errorf("changed to %+v", back.change)
	}
	back.done(sessionSettings{Sandbox: sandboxRead, Approval: "on-request", Plan: true}, nil)
	r.stops(prompt, "cancelled")
}

// TestACPHolds: a prompt waits for a choice that was sent before it, and no more of
// them than there is room for.
func TestACPHolds(t *testing.T) {
	var tuned func(sessionSettings, *rpcError)
	asked := make(chan bool, 1)
	r := newOpenRig(t, `{}`, func(_ *acpFrontRig, o *acpOptions) {
		o.retune = func(_ string, _ settingsChange, done func(sessionSettings, *rpcError)) {
			tuned = done
			asked <- true
		}
	})
	choice := r.start("session/set_mode", r.of(`,"modeId":"auto"`))
	behind := r.prompt("behind it")
	receive(t, asked)
	r.nothing()
	tuned(sessionSettings{Sandbox: sandboxWrite, Approval: "never"}, nil)
	r.does(choice)
	turn := r.begun("t1")
	r.told() // the session's title
	choice = r.start("session/set_mode", r.of(`,"modeId":"auto"`))
	receive(t, asked)
	for n := range 9 {
		r.start(methodSteering, r.of(fmt.Sprintf(`,"prompt":[{"type":"text","text":"%d"}]`, n)))
	}
	r.nothing()
	tuned(sessionSettings{Sandbox: sandboxWrite, Approval: "never"}, nil)
	r.does(choice)
	for n := range 9 { // they pass what waits, but not each other
		sub := receive(t, r.submits)
		want(t, sub.req.prompt, strconv.Itoa(n))
		r.f.done(sub.w, playedResult("completed"))
	}
	turn.ends("completed", nil)
	r.stops(behind, "end_turn")
	for range maxPrompts {
		r.prompt("more")
	}
	r.fails(r.prompt("one too many"), codeInternal, "already wait")
}

// TestACPUsage: a prompt's answer tells what its turn has used, without what the
// session had used before, and nothing where Codex told nothing. Codex 0.104 repeats
// the old number first.
func TestACPUsage(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	use := func(p *acpPlayed, total, in, cached, out, thought int64) {
		p.is(&event{kind: evUsage, usage: &tokenUsage{Total: total, Input: in, CachedInput: cached, Output: out,
			Reasoning: thought}})
	}
	prompt := func(usage string, play func(*acpPlayed)) {
		t.Helper()
		id := r.prompt("go")
		p := r.begun("t" + id)
		play(p)
		p.ends("completed", nil)
		answer, _ := r.answerTo(id)
		want(t, string(rawField(answer, "result", "usage")), usage)
	}
	prompt(`{"totalTokens":120,"inputTokens":100,"outputTokens":20,"thoughtTokens":5,"cachedReadTokens":0}`,
		func(p *acpPlayed) { use(p, 120, 100, 0, 20, 5) })
	prompt(`{"totalTokens":230,"inputTokens":120,"outputTokens":30,"thoughtTokens":0,"cachedReadTokens":80}`,
		func(p *acpPlayed) {
			use(p, 120, 100, 0, 20, 5)
			use(p, 240, 200, 40, 40, 5)
			use(p, 350, 300, 80, 50, 5)
		})
	prompt("", func(*acpPlayed) {})
	prompt("", func(p *acpPlayed) { use(p, 9999, 0, 0, 0, 0) }) // a context that is full
	prompt(`{"totalTokens":7,"inputTokens":6,"outputTokens":1,"thoughtTokens":0,"cachedReadTokens":0}`,
		func(p *acpPlayed) { use(p, 7, 6, 0, 1, 0) }) // the thread was lost, so this is a new one

	r.known["old"] = clientSession{Session: "old", AgentID: "codex:old", Cwd: systemPath("/work"), Turns: 3}
	id := r.reopen("resume", "old")
	r.f.done(receive(t, r.submits).w, turnResult{})
	r.answerTo(id)
	r.session = "old"
	prompt("", func(p *acpPlayed) { use(p, 77, 60, 0, 17, 0) }) // how much of it was there before isn't known
	prompt(`{"totalTokens":3,"inputTokens":2,"outputTokens":1,"thoughtTokens":0,"cachedReadTokens":0}`,
		func(p *acpPlayed) { use(p, 80, 62, 0, 18, 0) })
}

// A prompt that may go is with the hub before the next request is read: what is chosen behind it doesn't count for it.
func TestACPPromptGoesBeforeWhatFollows(t *testing.T) {
	r := newOpenRig(t, `{}`, nil)
	if !r.s.await(t.Context(), r.s.isIdle) {
		t.Fatal("the session is not open")
	}
	r.f.dispatch(&message{id: json.RawMessage("7"), method: "session/prompt",
		params: json.RawMessage(r.of(`,"prompt":[{"type":"text","text":"go on"}]`))})
	if len(r.submits) != 1 {
		t.Fatal("the prompt is not with the hub yet")
	}
	r.f.done((<-r.submits).w, playedResult("completed"))
	r.answerTo("7")
}
