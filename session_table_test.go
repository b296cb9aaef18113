package main

// session_table_test.go holds the lines of calls that wait for an agent to their order.

import "testing"

// Calls that name an agent by its thread wait in a line of that name while nobody knows whose thread it is. A call that
// comes when the agent is open, but behind them, stands in the same line, whatever it names the agent by.
func TestCallsStandInOneLine(t *testing.T) {
	table, s := newSessionTable(), &session{agentID: "codex:a"}
	const thread = "0198c0de-0000-7000-8000-000000000001"
	var got string
	call := func(name string) agentCall { return agentCall{stored: func(string) { got += name }} }
	if _, _, serve := table.meet(thread, call("1")); !serve {
		t.Fatal("nobody is to serve the line")
	}
	table.meet(thread, call("2"))
	first, _, _ := table.next(thread)
	first.stored("")
	table.enter(s, thread) // the first call opens the agent
	for _, c := range []struct{ ref, name string }{{thread, "3"}, {s.agentID, "4"}} {
		if open, line, serve := table.meet(c.ref, call(c.name)); open != nil || line != thread || serve {
			t.Errorf("call %s by %q: overtakes %v, in line %q, to be served %v", c.name, c.ref, open != nil, line, serve)
		}
	}
	for {
		c, found, ok := table.next(thread)
		if !ok {
			break
		}
		if c.stored(""); found != s {
			t.Error("a call is not handed to the agent that was opened")
		}
	}
	if got != "1234" {
		t.Errorf("served in the order %s", got)
	}
	if open, line, _ := table.meet(thread, call("5")); open != s || line != s.agentID {
		t.Errorf("once the line is empty a call is in line %q", line)
	}
}
