package main

// mcp_review.go owns codex-review: from its arguments to the review that the hub runs as a turn, and what its result
// says beside that of every turn. callTool calls it on the reading goroutine; the change is looked for in another one.

import (
	"slices"
	"strings"
)

// reviewTurnShown is the result of codex-review.
type reviewTurnShown struct {
	agentTurnShown
	*reviewShown
}

// reviewNothing is that result where there is nothing to review, and so no turn.
type reviewNothing struct {
	AgentID string `json:"agent_id,omitempty"`
	Content string `json:"content"`
	*reviewShown
}

// readReview turns the arguments of codex-review into a request and what is to be reviewed.
func readReview(a toolArgs) (req turnRequest, task reviewTask, e *rpcError) {
	req = turnRequest{mode: modeNew, source: sourceClient, run: true, identity: a.str("identity"), cwd: a.str("cwd")}
	task = reviewTask{target: reviewUncommitted, base: strings.TrimSpace(a.str("base")),
		commit: strings.TrimSpace(a.str("commit")), instructions: strings.TrimSpace(a.str("instructions")),
		challenge: a.yes("challenge"), model: a.str("model"), effort: a.str("reasoning_effort")}
	if a.has("target") {
		task.target = a.str("target")
	}
	if e = a.runs(&req); e != nil {
		return req, task, e
	}
	req.ref, e = a.reference()
	of := map[string]string{"base": reviewBranch, "commit": reviewCommit}
	for _, name := range []string{"base", "commit"} {
		switch {
		case e != nil:
		case a.has(name) && task.target != of[name]:
			e = invalidSession("%s is for target %s, and target is %s: leave one of them out", name, of[name], task.target)
		case a.has(name) && strings.TrimSpace(a.str(name)) == "":
			e = invalidSession("%s is empty: give a branch, a tag or an id of a commit", name)
		}
	}
	switch {
	case e != nil:
	case task.target == reviewCommit && task.commit == "":
		e = invalidSession("target commit needs commit: which one to review")
	case req.ref == "":
		req.options = sessionOptions{Sandbox: "read-only", Approval: "never"} // for what is asked of the agent later
		if req.identity != "" {
			if err := validIdentity(req.identity); err != nil {
				e = invalidSession("%v", err)
			}
		}
	default:
		req.mode = modeRevive
		for _, name := range []string{"identity", "cwd"} {
			if a.has(name) && e == nil {
				e = invalidSession("%s is of a new reviewer, and agent_id %q has one: leave one of them out", name,
					cutName(req.ref))
			}
		}
	}
	return req, task, e
}

// reviewChange serves codex-review.
func reviewChange(c *mcpCall, a toolArgs) *rpcError {
	req, task, e := readReview(a)
	if e != nil {
		return e
	}
	return c.work(func() {
		r, e := c.f.review(req.ref, req.cwd, task)
		switch {
		case e != nil:
			c.fail(e)
		case r.empty():
			text, shown := r.nothing()
			c.reply(c.toolAnswer(false, reviewNothing{req.ref, text, shown}, text))
		default:
			r.into(&req)
			c.submit(req)
		}
	})
}

// reviewTool is the row of codex-review in the table of tools.
func reviewTool() tool {
	return tool{
		name:  "codex-review",
		title: "Codex Review",
		description: "Have Codex review a change in a git repository: what is not committed, a branch, or one commit. " +
			"The reviewer only reads and never asks. Returns verdict, summary and findings, each with severity, file " +
			"and lines; fix what you agree with and review again. Ask the reviewer about a finding with codex-reply.",
		args: slices.Concat([]argSpec{
			{name: "target", kind: "string", enum: []string{reviewUncommitted, reviewBranch, reviewCommit},
				text: "uncommitted (default; new files too), branch (what this branch adds to base) or commit."},
			{name: "base", kind: "string", text: "With branch: what to measure from, by its merge base. Default: the " +
				"remote's default branch."},
			{name: "commit", kind: "string", text: "With commit: which one."},
			{name: "instructions", kind: "string", text: "What the reviewer is to heed or look for."},
			{name: "challenge", kind: "boolean", text: "true: question the approach too, not only the lines."},
		}, turnArgs(), []argSpec{
			{name: "agent_id", kind: "string", text: "Review in this agent's own conversation, instead of by a new agent."},
			{name: "identity", kind: "string", text: "Name of the new reviewer."},
			{name: "cwd", kind: "string", text: "Directory in the repository, as for codex."},
			{name: "model", kind: "string", text: "Model of this review."},
			{name: "reasoning_effort", kind: "string", text: "Effort of this review: low, medium, high, …"},
		}),
		hints:  toolHints{Destructive: false, OpenWorld: true},
		lasts:  true,
		run:    reviewChange,
		result: reviewTurnShown{},
	}
}
