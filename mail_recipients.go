package main

// mail_recipients.go owns whom an address means: "agent" or "agent@team", with [roles] and [aliases] of .atm.toml
// resolved as `atm` resolves them, and only members of a team that exists. The mail tools call it for every address. An
// address that is refused is answered with the members and the nearest name, since a model wrote it and tries again.
// Never sends, and never makes a path of a name that it hasn't checked.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxNamesTold is how many members an error lists.
const maxNamesTold = 30

// A badRecipient is an address that means nobody. Its text is for the caller.
type badRecipient struct {
	text string
	err  error // the error that text has better words for, nil for none
}

func (e *badRecipient) Error() string { return e.text }
func (e *badRecipient) Unwrap() error { return e.err }

// An addressBook is what this process knows of names.
type addressBook struct {
	own            *teamFile
	root           string            // the teams' directory
	aliases, roles map[string]string // config.aliases and config.atmRoles
}

// A recipient is a member of a team. Both names may become paths.
type recipient struct {
	name, team string
	file       *teamFile
	listed     bool // false: a live session of our team that hasn't joined
}

// recipient finds whom an address means. sender is the identity that writes, a member of our own team. live tells
// whether a session of our team has an identity: its inbox is delivered, listed or not. An error is *badRecipient,
// errNoTeam or errTeamDamaged.
func (b addressBook) recipient(to, sender string, live func(identity string) bool) (recipient, error) {
	agent, team, err := b.split(to)
	if err != nil {
		return recipient{}, err
	}
	file, err := b.teamFile(team)
	if err != nil {
		return recipient{}, err
	}
	all, err := file.list()
	if err != nil {
		return recipient{}, b.noTeam(err, team)
	}
	name, meaning := b.resolve(agent)
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.name)
	}
	found := memberNamed(name, names)
	r := recipient{name: found, team: team, file: file, listed: found != ""}
	if !r.listed && file == b.own && live != nil && validIdentity(name) == nil && live(name) {
		r.name = name
	}
	switch {
	case r.name == "":
		return recipient{}, b.unknown(name, meaning, team, names)
	case validIdentity(r.name) != nil:
		return recipient{}, &badRecipient{text: fmt.Sprintf("member %q of team %q can't be written to: Claude Code "+
			"and atm keep the inbox of such a name in different files", cutName(r.name), team)}
	case file == b.own && strings.EqualFold(r.name, sender):
		return recipient{}, &badRecipient{text: fmt.Sprintf("recipient %q is the sender itself; %s", r.name,
			membersTold(namesBut(names, sender), team))}
	}
	return r, nil
}

// mayAct tells whether an agent may send and read as identity. An error is *memberTaken, or says that the members can't
// be read. A role or an alias that stands for a member is that member's name too.
func (b addressBook) mayAct(identity, agentID string, holder leaseHolder) error {
	if err := b.own.mayUse(identity, agentID, holder); err != nil {
		return err
	}
	if name, meaning := b.resolve(identity); meaning != "" {
		return b.own.mayUse(name, "", nobody)
	}
	return nil
}

// strange tells the member because of whom a name can't be given to an agent, nil for none. Where the members can't be
// read the name is left to mayAct, which is asked at every use of it.
func (b addressBook) strange(name string) *memberTaken {
	var taken *memberTaken
	errors.As(b.mayAct(name, "", nobody), &taken)
	return taken
}

func (b addressBook) isStrange(name string) bool { return b.strange(name) != nil }

// split cuts an address as atm does: at the first @, both halves trimmed, neither empty.
func (b addressBook) split(to string) (agent, team string, err error) {
	agent, team, at := strings.Cut(to, "@")
	agent, team = strings.TrimSpace(agent), strings.TrimSpace(team)
	switch {
	case agent == "" && !at:
		return "", "", &badRecipient{text: `there is no recipient: "to" is a member's name, or name@team`}
	case agent == "":
		return "", "", &badRecipient{text: fmt.Sprintf("recipient %q has no name before the @", cutName(to))}
	case agent == "*":
		return "", "", &badRecipient{text: `recipient "*": atm_broadcast writes to all members`}
	case !at:
		return agent, b.own.team, nil
	case team == "":
		return "", "", &badRecipient{text: fmt.Sprintf("recipient %q has no team after the @", cutName(to))}
	}
	return agent, team, nil
}

// teamFile checks a team's name, since the name becomes a path.
func (b addressBook) teamFile(team string) (*teamFile, error) {
	if team == b.own.team {
		return b.own, nil
	}
	if err := validTeam(team); err != nil {
		return nil, &badRecipient{text: err.Error()}
	}
	return newTeamFile(b.root, team, b.own.leases), nil
}

// resolve looks a name up in roles, then aliases, once and with its case, as atm does. A role or alias goes before a
// member of the same name. meaning begins an error about a name that was resolved; "" for any other name.
func (b addressBook) resolve(agent string) (name, meaning string) {
	if to, ok := b.roles[agent]; ok {
		return to, fmt.Sprintf("role %q stands for", cutName(agent))
	}
	if to, ok := b.aliases[agent]; ok {
		return to, fmt.Sprintf("alias %q stands for", cutName(agent))
	}
	return agent, ""
}

// memberNamed finds a name in any case, and prefers the same case: other programs may list both.
func memberNamed(name string, names []string) string {
	if slices.Contains(names, name) {
		return name
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
	}
	return ""
}

func (b addressBook) unknown(name, meaning, team string, names []string) error {
	if meaning != "" {
		return &badRecipient{text: fmt.Sprintf("%s %q, who is no member of team %q; %s", meaning, cutName(name), team,
			membersTold(names, team))}
	}
	words := slices.Concat(names, slices.Sorted(maps.Keys(b.roles)), slices.Sorted(maps.Keys(b.aliases)))
	return &badRecipient{text: fmt.Sprintf("unknown recipient %q; %s%s", cutName(name), membersTold(names, team),
		didYouMean(name, words))}
}

// noTeam tells the nearest team's name. It is a badRecipient, since a missing team of others says nothing of our own
// mail.
func (b addressBook) noTeam(err error, team string) error {
	if !errors.Is(err, errNoTeam) || team == b.own.team {
		return err
	}
	names, _ := teamQuery{root: b.root}.teamNames()
	return &badRecipient{text: err.Error() + didYouMean(team, names), err: err}
}

func membersTold(names []string, team string) string {
	if len(names) == 0 {
		return fmt.Sprintf("team %q has no other members", team)
	}
	more := ""
	if n := len(names) - maxNamesTold; n > 0 {
		names, more = names[:maxNamesTold], fmt.Sprintf(" and %d more", n)
	}
	short := make([]string, len(names))
	for i, n := range names {
		short[i] = cutName(n)
	}
	return fmt.Sprintf("members of team %q are %s%s", team, strings.Join(short, ", "), more)
}

func namesBut(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.EqualFold(n, name) })
}
