package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is told of a diff is files, kinds and lines, whatever stands in the lines themselves.
func TestTurnChanges(t *testing.T) {
	t.Parallel()
	const add = "diff --git a/p 1.txt b/p 1.txt\nnew file mode 100644\nindex 0000..ce01\n--- /dev/null\n+++ b/p " +
		"1.txt\t\n@@ -0,0 +1 @@\n+hello\n"
	const edit = "diff --git a/m.sql b/m.sql\nindex 1..2\n--- a/m.sql\n+++ b/m.sql\n@@ -1,3 +1,4 @@ func\n keep\n--- " +
		"old note\n+++ b/fake.txt\n+more\n diff --git a/no b/no\n@@ -9 +10,0 @@\n-last\n\\ No newline at end of file\n"
	const gone = "diff --git a/d/g b/d/g\ndeleted file mode 100644\n--- a/d/g\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
	const moved = "diff --git a/old b/new\n--- a/old\n+++ b/new\n@@ -1 +1 @@\n-x\n+y\n"
	for _, c := range []struct{ diff, want string }{
		{"", "[] +0 -0"},
		{"no diff at all\n+++\n@@\n", "[] +0 -0"},
		{add, "[{p 1.txt added 1 0}] +1 -0"},
		{edit, "[{m.sql modified 2 2}] +2 -2"},
		{gone, "[{d/g deleted 0 2}] +0 -2"},
		{moved, "[{new renamed 1 1}] +1 -1"},
		{"diff --git a/old b/new\n", "[{new renamed 0 0}] +0 -0"},
		{edit + edit, "[{m.sql modified 4 4}] +4 -4"},
		{add + edit + moved, "[{p 1.txt added 1 0} {m.sql modified 2 2} {new renamed 1 1}] +4 -3"},
		{strings.ReplaceAll(gone, "d/g", systemPath("/work/here/d/g")), "[{d/g deleted 0 2}] +0 -2"}, // 0.104 without git
		{strings.ReplaceAll(gone, "d/g", "/elsewhere/g"), "[{/elsewhere/g deleted 0 2}] +0 -2"},
		{"diff --git a/x b/x\n@@ -a,b +9999999999999999999,1 @@\n+x\n@@ -1,1 +1,1", "[{x modified 0 0}] +0 -0"},
	} {
		var got turnChanges
		got.add(c.diff, systemPath("/work/here"))
		if s := fmt.Sprintf("%v +%d -%d", got.Files, got.Added, got.Removed); s != c.want {
			t.Errorf("%q: %s, want %s", c.diff, s, c.want)
		}
	}
	manyFiles := ""
	for i := range 60 {
		manyFiles += strings.ReplaceAll(add, "p 1", fmt.Sprint(i))
	}
	run := newTurnRun("T", time.Now())
	for _, diff := range []string{add, add + edit, manyFiles} {
		run.note(&event{kind: evDiff, thread: "T", text: diff}, time.Now())
	}
	run.note(&event{kind: evDiff, thread: "sub", text: moved}, time.Now())
	c, diff, whole := run.changes("/work/here")
	if len(c.Files) != 50 || c.More != 11 || c.Added != 61 || !whole || diff != manyFiles+moved {
		t.Errorf("%d files, %d more, %d lines, whole %v", len(c.Files), c.More, c.Added, whole)
	}
	run.note(&event{kind: evDiff, thread: "T", text: add + strings.Repeat(" x\n", maxDiffBytes/3)}, time.Now())
	if c, _, whole = run.changes(""); len(c.Files) != 2 || whole {
		t.Errorf("of a diff over the limit: %v, whole %v", c, whole)
	}
}

// What Codex leaves out takes nothing back, and odd numbers and names are none.
func TestAccountLimits(t *testing.T) {
	var l accountLimits
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ told, want string }{
		{`null`, `null`},
		{`{"limitId":"codex","primary":null,"credits":null}`, `null`},
		{`{"limitId":"codex","primary":{"usedPercent":95,"windowDurationMins":300,"resetsAt":1800000000},"planType":"plus",
			"credits":{"hasCredits":true,"unlimited":false,"balance":"3"}}`,
			`{"plan":"plus","credits":{"has_credits":true,"unlimited":false,"balance":"3"},"as_of":"2026-01-02T03:04:05Z",
				"windows":[{"name":"primary","used_percent":95,"window_minutes":300,"resets_at":"2027-01-15T08:00:00Z"}]}`},
		{`{"limitId":"codex","primary":{"usedPercent":96,"windowDurationMins":null,"resetsAt":1800000000000},
			"credits":{"hasCredits":null,"unlimited":null,"balance":null},"secondary":{"usedPercent":-5,"windowDurationMins":1e300}}`,
			`{"plan":"plus","credits":{"has_credits":true,"balance":"3"},"windows":[
				{"name":"primary","used_percent":96,"window_minutes":300,"resets_at":"2027-01-15T08:00:00Z"},
				{"name":"secondary","used_percent":0,"window_minutes":"$absent","resets_at":"$absent"}]}`},
		{`{"limit_id":"codex_other","limit_name":"a\nb","primary":{"used_percent":1e308,"window_minutes":60}}`,
			`{"windows":["$any","$any",{"name":"a b primary","used_percent":100,"window_minutes":60}]}`},
		{`{"limitId":"codex","primary":{"usedPercent":"97","resetsAt":1900000000}}`,
			`{"windows":[{"name":"primary","used_percent":96,"resets_at":"2027-01-15T08:00:00Z"},"$any","$any"]}`},
	} {
		l.take(json.RawMessage(c.told), now)
		got, err := decodeJSON(toJSON(l.view()))
		wantNil(t, err)
		want, err := decodeJSON([]byte(c.want))
		wantNil(t, err)
		if _, err := matchJSON(want, got); err != nil {
			t.Errorf("after %s: %v", c.told, err)
		}
	}
	if got := l.warning(now); got != "Codex's limit: 100% of the a b primary window (1 hour) used" {
		t.Errorf("warning %q", got)
	}
	over := &backendError{Info: "usageLimitExceeded"}
	if r := l.why(over, now); r == nil || r.Kind != "usage_limit" {
		t.Errorf("reached %+v", r)
	}
}
