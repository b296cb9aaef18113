package main

// codex_review.go owns reviews: what the reviewer is asked, under which settings, and what its answer says. A review is
// a turn of an ordinary agent, under a sandbox of its own (read-only, nothing is ever asked) and with an answer of a
// given form, in which Codex's own reviewer answers too. session_review.go finds the change, the session runs the turn.
// Nothing is invented: an answer that has no such form is told as the text that it is.

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

const (
	reviewUncommitted = "uncommitted"
	reviewBranch      = "branch"
	reviewCommit      = "commit"

	// diffTokenBytes is about how many bytes of a diff are a token of the model's.
	diffTokenBytes = 4
	// usualWindow is the context window, in tokens, of a model that nobody told one of.
	usualWindow = 272_000
)

// reviewTask is a review as somebody asks for it.
type reviewTask struct {
	target       string // uncommitted, branch or commit
	base, commit string // as given; with uncommitted, base is the id that it is measured from, "" for HEAD
	instructions string // of the caller's own, "" for none
	challenge    bool   // the approach is questioned too
}

// review is a review whose change was found. Its methods are for one goroutine at a time.
type review struct {
	reviewTask
	top    string // the repository's root
	via    string // the same as its agent's directory names it, maybe by a link
	change reviewedChange
	bytes  int64    // of the diff and the untracked files
	left   bool     // there are uncommitted changes, which the review is not of
	busy   bool     // its agent ran a turn when the change was measured
	rules  []string // files of Codex's rules that let commands run outside of its sandbox
	found  *reviewFound
}

// reviewedChange is the change that a review is of.
type reviewedChange struct {
	Target  string  `json:"target"`
	Base    *string `json:"base"`   // nil: the change begins with nothing
	Commit  *string `json:"commit"` // nil: the change is not committed
	Files   int     `json:"files"`
	Added   int     `json:"added"`
	Removed int     `json:"removed"`
}

// reviewFound is what an answer says.
type reviewFound struct {
	Verdict  *string          `json:"verdict"` // correct or needs-attention; nil, like Findings: the answer doesn't say
	Summary  string           `json:"summary"`
	Findings *[]reviewFinding `json:"findings"`
}

// reviewFinding is one thing that a reviewer found.
type reviewFinding struct {
	Severity       string   `json:"severity"` // critical, high, medium or low
	Title          string   `json:"title"`
	Body           string   `json:"body"`
	Recommendation string   `json:"recommendation"`
	File           string   `json:"file"` // relative to the repository's root, with slashes
	LineStart      int      `json:"line_start"`
	LineEnd        int      `json:"line_end"`
	Confidence     *float64 `json:"confidence"` // 0 to 1; nil: the reviewer doesn't say
}

// reviewShown is what a result tells of a review.
type reviewShown struct {
	reviewFound
	Reviewed reviewedChange `json:"reviewed"`
}

// severities are Codex's priorities 0 to 3 in words.
func severities() []string { return []string{"critical", "high", "medium", "low"} }

// into makes of a request the turn of this review.
func (r *review) into(req *turnRequest) {
	req.review, req.action, req.prompt = r, actReview, r.prompt()
}

// empty reports a change of nothing.
func (r *review) empty() bool { return r.change.Files == 0 }

// nothing is what is told in place of a review of nothing.
func (r *review) nothing() (string, *reviewShown) {
	verdict, text := "correct", "There is nothing to review: "+r.words()+" has no changes."
	for _, note := range r.beside() {
		text += " " + note
	}
	return text, &reviewShown{reviewFound{&verdict, text, &[]reviewFinding{}}, r.change}
}

// words says which change it is.
func (r *review) words() string {
	switch c := &r.change; {
	case c.Target == reviewBranch:
		return "the branch, from " + shortID(c.Base) + " to " + shortID(c.Commit) + ","
	case c.Target == reviewCommit:
		return "commit " + shortID(c.Commit)
	}
	return "the working tree of " + r.top
}

func shortID(id *string) string { return (*id)[:min(len(*id), 12)] }

const (
	// reviewRubric is what every reviewer is told, whatever the change.
	reviewRubric = `Report what its author would want to mend: bugs, lost data, races, holes in security, broken interfaces, missing cases, tests that can't fail. Each finding is of this change and not of what was there before, is one that you can show by a place and a case in which it goes wrong, and is worth a fix. Leave out taste, style and guesses. Report all such findings, and none where there are none.
`
	// reviewAdds stands before the caller's own instructions.
	reviewAdds = "\n\nWho asks for the review adds:\n"
)

// shownReviewPrompt is a prompt of the past as people read it: of one that asks for a review, what is to be reviewed.
func shownReviewPrompt(text string) string {
	head, rest, ok := strings.Cut(text, reviewRubric)
	if !ok {
		return text
	}
	if _, adds, ok := strings.Cut(rest, reviewAdds); ok {
		head += adds
	}
	return strings.TrimSpace(head)
}

// prompt is what the reviewer is asked. The caller's own instructions are its end, as they were given.
func (r *review) prompt() string {
	var b strings.Builder
	c := &r.change
	from := "the empty tree"
	if c.Base != nil {
		from = *c.Base
	}
	fmt.Fprintf(&b, "Review a change in the git repository %s. You only read: change no file, and ask for nothing "+
		"beyond your sandbox.\n\n", r.top)
	switch {
	case c.Target == reviewUncommitted && c.Base == nil:
		b.WriteString("The change is all that is there: nothing is committed yet. `git ls-files --cached --others " +
			"--exclude-standard :/` lists the files.\n")
	case c.Target == reviewUncommitted && r.base != "":
		fmt.Fprintf(&b, "The change is `git diff %s`, committed or not, and the files that `git ls-files --others "+
			"--exclude-standard :/` lists, which are new.\n", from)
	case c.Target == reviewUncommitted:
		fmt.Fprintf(&b, "The change is what is not committed: `git diff %s`, and the files that `git ls-files "+
			"--others --exclude-standard :/` lists, which are new.\n", from)
	case c.Base == nil:
		fmt.Fprintf(&b, "The change is the first commit: `git show %s`.\n", *c.Commit)
	default:
		fmt.Fprintf(&b, "The change is `git diff %s %s`.\n", from, *c.Commit)
	}
	if c.Commit != nil {
		fmt.Fprintf(&b, "The working tree may have other content: `git show %s:PATH` is a file as the change "+
			"leaves it.\n", *c.Commit)
	}
	fmt.Fprintf(&b, "It has %s, with %s added and %d removed.", counted(c.Files, "file"),
		counted(c.Added, "line"), c.Removed)
	if r.bytes > 32<<10 {
		b.WriteString(" It is long: read it file by file (`git diff --stat` first), since a command's output is cut.")
	}
	b.WriteString(" Read the code around it, and callers of what it changes, before you judge.\n\n" + reviewRubric)
	if r.challenge {
		b.WriteString(`
Question the approach too, not only the lines: whether this is the right thing to build, what it assumes, where the design breaks under load, failure, concurrency or the next requirement, and which simpler way does the same. Say so as findings, at the place where the decision shows.
`)
	}
	b.WriteString(`
Your last message is one JSON object and nothing else:
- findings: for each, title (a short sentence), body (what goes wrong, when and why), recommendation (what to do), priority (0: critical, drop everything; 1: high; 2: medium; 3: low), confidence_score (0 to 1, or null), and code_location with absolute_file_path and line_range, {start, end}: the shortest range that shows it, within the change;
- overall_correctness: "patch is correct" where nothing has to be mended before the change is used, else "patch is incorrect";
- overall_explanation: the whole in one to three sentences;
- overall_confidence_score: 0 to 1.`)
	if r.instructions != "" {
		b.WriteString(reviewAdds + r.instructions)
	}
	return b.String()
}

// reviewSchema is the form of a reviewer's answer, with every field required, as the model API wants a schema.
func reviewSchema() json.RawMessage {
	const place = `{"type":"object","additionalProperties":false,"required":["absolute_file_path","line_range"],` +
		`"properties":{"absolute_file_path":{"type":"string"},"line_range":{"type":"object",` +
		`"additionalProperties":false,"required":["start","end"],` +
		`"properties":{"start":{"type":"integer"},"end":{"type":"integer"}}}}}`
	const finding = `{"type":"object","additionalProperties":false,"required":["title","body","recommendation",` +
		`"priority","confidence_score","code_location"],"properties":{"title":{"type":"string"},` +
		`"body":{"type":"string"},"recommendation":{"type":"string"},"priority":{"type":"integer"},` +
		`"confidence_score":{"type":["number","null"]},"code_location":` + place + `}}`
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":["findings",` +
		`"overall_correctness","overall_explanation","overall_confidence_score"],"properties":{` +
		`"findings":{"type":"array","items":` + finding + `},` +
		`"overall_correctness":{"type":"string","enum":["patch is correct","patch is incorrect"]},` +
		`"overall_explanation":{"type":"string"},"overall_confidence_score":{"type":"number"}}}`)
}

// settings are what the turn of a review runs under: the agent's own, but that nothing can be written or asked.
func (r *review) settings(of turnSettings) turnSettings {
	of.Sandbox, of.Approval, of.WritableRoots, of.Network = "read-only", "never", nil, false
	return of.leavePlan()
}

// retell makes of an event of the review's turn what people read: the reviewer's words, not the form that they come in.
// false: the event is a piece of that form.
func (r *review) retell(e *event) bool {
	switch {
	case e.kind == evDelta:
		return e.phase != "answer"
	case e.kind == evItem && e.phase == "completed" && e.body != nil && e.body.kind == "agentMessage" &&
		e.body.phase != "commentary":
		body := *e.body
		body.text = r.take(body.text)
		e.body = &body
	case e.kind == evEnded && e.text != "":
		e.text = r.take(e.text)
	}
	return true
}

// take reads an answer, and is the answer in words.
func (r *review) take(answer string) string {
	if r.found = readFindings(answer, r.top, r.via); r.found == nil {
		return answer
	}
	return r.found.String()
}

// shown is what a result tells of the review, with what its caller should know.
func (r *review) shown(status, whyFailed string, window int64) (shown *reviewShown, notes []string) {
	shown = &reviewShown{Reviewed: r.change}
	switch {
	case r.found != nil:
		shown.reviewFound = *r.found
	case status == "completed":
		notes = append(notes, "The reviewer's answer has not the form that findings are read from: there are only its "+
			"words.")
	}
	whose := "the model's"
	if window <= 0 {
		window, whose = usualWindow, "most models'"
	}
	const inParts = "Review it in parts: single commits, or instructions that name directories."
	switch tokens := r.bytes / diffTokenBytes; {
	case tokens > window:
		notes = append(notes, fmt.Sprintf("The change has about %d tokens and is beyond %s window of %d: not all of "+
			"it was read at once. %s", tokens, whose, window, inParts))
	case whyFailed == "contextWindowExceeded":
		notes = append(notes, fmt.Sprintf("The change has about %d tokens, and with what its reviewer knew and read "+
			"besides it is beyond the model's window. %s", tokens, inParts))
	}
	return shown, append(notes, r.beside()...)
}

// beside is what the review is not of, and what it doesn't hold back, a sentence each.
func (r *review) beside() (notes []string) {
	if r.left {
		notes = append(notes, "Changes that are not committed are not part of this review; one of the uncommitted "+
			"changes has them.")
	}
	if r.busy {
		notes = append(notes, "The agent was at work when this change was measured: what it has changed since then is "+
			"not in these numbers.")
	}
	if len(r.rules) > 0 && !r.empty() {
		notes = append(notes, "Codex lets the commands that its own rules allow run outside of its sandbox, in a "+
			"review too: "+strings.Join(r.rules, ", ")+".")
	}
	return notes
}

// readFindings reads an answer, nil for one that doesn't say in the form asked for what was found. Prose around the
// form is let pass.
func readFindings(answer string, tops ...string) *reviewFound {
	from, to := strings.IndexByte(answer, '{'), strings.LastIndexByte(answer, '}')
	if from < 0 || to < from {
		return nil
	}
	var said struct {
		Findings    *[]saidFinding `json:"findings"`
		Correctness string         `json:"overall_correctness"`
		Explanation string         `json:"overall_explanation"`
	}
	if json.Unmarshal([]byte(answer[from:to+1]), &said) != nil || said.Findings == nil {
		return nil
	}
	verdict := "needs-attention"
	switch {
	case said.Correctness == "patch is correct":
		verdict = "correct"
	case said.Correctness != "patch is incorrect" && len(*said.Findings) == 0:
		return nil // nothing says that the change is right
	}
	findings := []reviewFinding{}
	for i := range *said.Findings {
		f, err := (*said.Findings)[i].read(tops)
		if err != nil {
			return nil
		}
		findings = append(findings, f)
	}
	return &reviewFound{&verdict, strings.TrimSpace(said.Explanation), &findings}
}

// saidFinding is a finding as a reviewer says it.
type saidFinding struct {
	Title          string   `json:"title"`
	Body           string   `json:"body"`
	Recommendation string   `json:"recommendation"`
	Priority       *int     `json:"priority"`
	Confidence     *float64 `json:"confidence_score"`
	Place          struct {
		File  string `json:"absolute_file_path"`
		Lines struct {
			Start *int `json:"start"`
			End   *int `json:"end"`
		} `json:"line_range"`
	} `json:"code_location"`
}

func (s *saidFinding) read(tops []string) (f reviewFinding, err error) {
	words, title, lines := severities(), strings.Join(strings.Fields(s.Title), " "), s.Place.Lines
	switch {
	case title == "" || s.Place.File == "" || lines.Start == nil || lines.End == nil || *lines.Start < 0:
		return f, errors.New("a finding without a title or a place")
	case s.Priority == nil || *s.Priority < 0 || *s.Priority >= len(words):
		return f, errors.New("a finding without a priority")
	}
	f = reviewFinding{Severity: words[*s.Priority], Title: title, Body: s.Body, Recommendation: s.Recommendation,
		File: inRepository(s.Place.File, tops), LineStart: *lines.Start, LineEnd: max(*lines.Start, *lines.End),
		Confidence: s.Confidence}
	if c := f.Confidence; c != nil && (*c < 0 || *c > 1) {
		f.Confidence = nil
	}
	return f, nil
}

// inRepository is a path as seen from the repository's root, where it is in there.
func inRepository(path string, tops []string) string {
	for _, top := range tops {
		if rel, err := filepath.Rel(top, path); err == nil && filepath.IsAbs(path) && filepath.IsLocal(rel) {
			path = rel
		}
	}
	return filepath.ToSlash(filepath.Clean(path))
}

// String is the whole as people read it.
func (f *reviewFound) String() string {
	var b strings.Builder
	verdict := "correct"
	if *f.Verdict != "correct" {
		verdict = "needs attention"
	}
	fmt.Fprintf(&b, "**Verdict: %s** (%s)\n\n%s\n", verdict, counted(len(*f.Findings), "finding"), f.Summary)
	for _, g := range *f.Findings {
		fmt.Fprintf(&b, "\n- **[%s] %s** — `%s:%d", g.Severity, g.Title, g.File, g.LineStart)
		if g.LineEnd > g.LineStart {
			fmt.Fprintf(&b, "-%d", g.LineEnd)
		}
		b.WriteString("`\n")
		for _, part := range []string{g.Body, g.Recommendation} {
			if part = strings.TrimSpace(part); part != "" {
				b.WriteString("  " + strings.ReplaceAll(part, "\n", "\n  ") + "\n")
			}
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
