package main

// post.go owns what the hub has of the team's mail: the inboxes, the team's
// members and who may be delivered to. Sessions, the mailroom and the ATM tools
// call it. It reads files, so it is never called on a session's loop.

// post may be used from any goroutine.
type post struct {
	root  string // of the teams
	boxes *inboxes
	file  *teamFile // the own team's
	reg   *registry
}

func newPost(h *hub) *post {
	cfg := h.cfg
	return &post{root: cfg.teamsRoot, boxes: newInboxes(cfg.teamsRoot, "", nil, h.log), file: newTeamFile(cfg.teamsRoot, cfg.team, cfg.sessionsRoot), reg: h.reg}
}

// mayDeliver is why a session's inbox isn't its own to be delivered from, nil
// where it is.
func (p *post) mayDeliver(agentID, identity string) error {
	return p.file.mayRead(identity, agentID, p.reg.holder)
}
