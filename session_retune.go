package main

// session_retune.go owns what a client adds to what a session is opened with, its MCP
// servers, and what a person changes of it later. It is the opener's, beside
// session_opener.go, and like that it waits: it runs in the hub's goroutines, on a copy
// of the session's place, never on the place itself. Nothing in it passes the
// ceilings: config_policy.go decides every choice as it decided the first one.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// retune decides a session's settings anew, for a choice that its record has.
func (o *opener) retune(p *opening) *rpcError {
	var asRole role
	if p.rec.Role != "" {
		var err error
		if asRole, err = o.h.cfg.role(p.rec.Role); err != nil {
			return proxyError(codeInvalidSession, err.Error(), "role", p.rec.Role)
		}
	}
	if err := o.settle(p, asRole); err != nil {
		return err
	}
	// What a turn doesn't say stays as the turn before had it, so a choice that is
	// taken back is answered by what Codex would choose.
	set := &p.policy.Settings
	if set.Model == "" && p.was.Model != "" || set.Effort == "" && p.was.Effort != "" {
		model, effort := o.codexDefaults(p, set.Model)
		if p.was.Model != "" {
			set.Model = cmp.Or(set.Model, model)
		}
		if p.was.Effort != "" {
			set.Effort = cmp.Or(set.Effort, effort)
		}
		p.spec.Settings = *set
	}
	return nil
}

// codexDefaults is the model, and the effort of model or that, which Codex takes
// where nobody says; "" where it can't be known.
func (o *opener) codexDefaults(p *opening, model string) (string, string) {
	user, _ := readUserConfig(p.user)
	own, _ := user["model"].(string)
	effort, _ := user["model_reasoning_effort"].(string)
	model = cmp.Or(model, own)
	if model != "" && effort != "" {
		return model, effort
	}
	ctx, cancel := context.WithTimeout(o.h.life, catalogLimit)
	defer cancel()
	list, err := p.be.catalog(ctx, "models", "")
	if err != nil {
		o.h.log.Warn("Codex's models could not be listed", "err", err)
	}
	eachElement(rawField(list, "data"), func(m json.RawMessage) {
		if model == "" && string(rawField(m, "isDefault")) == "true" {
			model = cmp.Or(stringField(m, "model"), stringField(m, "id"))
		}
		if effort == "" && model != "" && model == cmp.Or(stringField(m, "model"), stringField(m, "id")) {
			effort = stringField(m, "defaultReasoningEffort")
		}
	})
	return model, effort
}

// withServers adds the client's MCP servers to what a thread is opened with. It
// is the client's user who chose them, so no call's ceiling strips them; but
// under a read-only one nothing that runs outside the sandbox is started.
func (o *opener) withServers(p *opening) (json.RawMessage, *rpcError) {
	servers, err := decodeConfig(p.servers)
	if err != nil {
		return nil, proxyError(codeInvalidSession, "mcp_servers: "+err.Error())
	}
	if len(servers) == 0 {
		return p.policy.Config, nil
	}
	if why := o.h.serversRefused(); why != "" {
		names := slices.Sorted(maps.Keys(servers))
		p.policy.Notes = append(slices.Clip(p.policy.Notes), fmt.Sprintf("MCP servers left out: %s (%s)", shortName(strings.Join(names, ", ")), why))
		return p.policy.Config, nil
	}
	config, err := decodeConfig(p.policy.Config)
	if err == nil {
		config, err = mergeConfig(config, map[string]any{"mcp_servers": servers})
	}
	if err != nil {
		return nil, proxyError(codeInvalidSession, "the client's MCP servers can't be added to the thread's configuration: "+err.Error())
	}
	return toJSON(config), nil
}
