package main

// codex_app_deltas_test.go holds the quick reading of deltas to the parsing of them: of no
// record may it make another event, and in a burst it must be taken.

import (
	"reflect"
	"strings"
	"testing"
)

// longWay is the event of a record that nothing was known of before.
func longWay(rec string) (e event, ok bool) {
	m, err := parseMessage([]byte(rec))
	if err != nil || m.method == "" || m.id != nil {
		return e, false
	}
	e = new(appIDs).event(m.method, m.params)
	return e, true
}

// afterDelta is a run that has learned from rec what there is to learn.
func afterDelta(rec string) *deltaRun {
	d := &deltaRun{}
	d.same([]byte(rec))
	if e, ok := longWay(rec); ok {
		d.learn(&e)
	}
	return d
}

const deltaOf169 = `{"method":"item/agentMessage/delta","params":{"threadId":"th","turnId":"tu","itemId":"it","delta":"one"},"emittedAtMs":1795283347107}`

func TestDeltasGoTheShortWay(t *testing.T) {
	old := strings.Replace(deltaOf169, `,"emittedAtMs":1795283347107`, "", 1)
	inside := `{"method":"item/reasoning/summaryTextDelta","params":{"delta":"one","threadId":"th","summaryIndex":0}}`
	for _, tt := range []struct {
		first, second string
		short         bool
	}{
		{deltaOf169, strings.Replace(deltaOf169, "one", "", 1), true},
		{deltaOf169, strings.Replace(deltaOf169, "one", `a \"b\" \u00fc \ud83d\ude00 ü`, 1), true},
		{deltaOf169, strings.Replace(deltaOf169, "347107", "999999", 1), true},
		{old, strings.Replace(old, "one", "two and more", 1), true},
		{inside, strings.Replace(inside, "one", "two", 1), true},
		{inside, strings.Replace(inside, ":0}", ":1}", 1), false},
		{deltaOf169, strings.Replace(deltaOf169, `"it"`, `"is"`, 1), false},
		{deltaOf169, strings.Replace(deltaOf169, "agentMessage", "commandExecution", 1), false},
		{deltaOf169, strings.Replace(deltaOf169, `:1795`, `:0795`, 1), false}, // no JSON
		{deltaOf169, strings.Replace(deltaOf169, "one", `o"e`, 1), false},
		{deltaOf169, strings.Replace(deltaOf169, "one", `","delta":"x`, 1), false},
		{deltaOf169, strings.Replace(deltaOf169, "one", "\xff", 1), false}, // the peer mends it first
		{deltaOf169, old, false},
		{deltaOf169, deltaOf169[:40], false},
		{`{"method":"turn/started","params":{"delta":"one"}}`, `{"method":"turn/started","params":{"delta":"two"}}`, false},
		{strings.Replace(deltaOf169, `"one"`, `1`, 1), strings.Replace(deltaOf169, `"one"`, `2`, 1), false},
		{strings.Replace(deltaOf169, `"method"`, `"id":1,"method"`, 1), strings.Replace(deltaOf169, `"method"`, `"id":1,"method"`, 1), false},
	} {
		e, ok := afterDelta(tt.first).same([]byte(tt.second))
		if ok != tt.short {
			t.Errorf("behind %s\nthe short way of %s: %v", tt.first, tt.second, ok)
		}
		if long, _ := longWay(tt.second); ok && !reflect.DeepEqual(e, long) {
			t.Errorf("%s\nis %+v\nnot %+v", tt.second, e, long)
		}
	}
}

// FuzzDeltaRun: whatever was learned, the short way is the long one or none. The
// second record is the first with a part of it replaced.
func FuzzDeltaRun(f *testing.F) {
	for _, with := range []string{"", "x", `\"`, `\ud83d`, "\xff", `"`, `","delta":"`, `"},"id":7,"x":{"a":"`, "123", "\\"} {
		f.Add(deltaOf169, 98, 3, with)
		f.Add(deltaOf169, len(deltaOf169)-5, 4, with)
		f.Add(`{"params":{"delta":"","delta":"one","x":1},"method":"item/agentMessage/delta","n":5}`, 30, 3, with)
	}
	f.Fuzz(func(t *testing.T, first string, at, n int, with string) {
		if at < 0 || at > len(first) || n < 0 || n > len(first)-at {
			return
		}
		second := first[:at] + with + first[at+n:]
		if strings.ContainsAny(first+second, "\n") || strings.TrimSpace(first) != first || strings.TrimSpace(second) != second {
			return // no records
		}
		e, ok := afterDelta(first).same([]byte(second))
		if !ok {
			return
		}
		long, known := longWay(second)
		if !known || !reflect.DeepEqual(e, long) {
			t.Fatalf("behind %s\nthe short way of %s\nis %+v\nnot %+v (%v)", first, second, e, long, known)
		}
	})
}
