package main

// registry_record_test.go holds a session's record: nothing is lost between memory and
// bytes, its size is bounded, and what is no record is refused (fuzzed).

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fullRecord has a value in every field, so that a field without a place in the
// file shows.
func fullRecord(agentID, identity string) record {
	root, name, branch := "/src/app", "app", "main"
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return record{
		Version: 1, AgentID: agentID, Backend: "codex", BackendKind: "app-server", BackendID: "thread-" + suffixOf(agentID),
		Identity: identity, Implied: true, Team: "red", StartedAt: at, Tag: "t", Role: "reviewer", Tools: toolsServer,
		AgentName: "helper", AgentSource: "/a/b.md",
		Settings: recordSettings{Model: "m", Effort: "high", Sandbox: "read-only", ApprovalPolicy: "never", BaseInstructions: "b",
			DeveloperInstructions: "d", CompactPrompt: "c", Profile: "p", Config: json.RawMessage(`{"a.b":1}`), Subagents: true},
		SummaryDir: "red/codex/thread-1", AutoMail: new(bool), ClientSession: "sess_1", Roots: []string{"/other"}, Title: "a title",
		Noted: 7, PID: 12, Host: "h",
		turnNote: turnNote{Status: statusIdle, Interrupted: true, Turns: 3, LastActive: at.Add(time.Hour), LastTurnID: "turn-3",
			LastTurnStatus: "completed", LastError: "none", SummaryDue: true, RepoRoot: &root, RepoName: &name, Branch: &branch,
			CWD: "/src/app/cmd", Context: json.RawMessage(`{"branch":"main"}`),
			Digest: recordDigest{LastPrompt: "<p> & q", LastAnswer: "a", TouchedFiles: []string{"x", "y"}}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	want := fullRecord("codex:k7m3pqx", "codex")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[record]()) {
		if f.IsExported() && reflect.ValueOf(want).FieldByIndex(f.Index).IsZero() {
			t.Errorf("fullRecord has no %s", f.Name)
		}
	}
	data, err := encodeRecord(want)
	wantNil(t, err)
	got, err := decodeRecord(data, want.AgentID)
	wantNil(t, err)
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("\n got %+v\nwant %+v", *got, want)
	}
	// Outside a repository the facts are null, not missing (FR-2).
	data, _ = encodeRecord(record{AgentID: want.AgentID, Identity: "codex", turnNote: turnNote{Status: statusIdle}})
	for _, field := range []string{`"repo_root":null`, `"repo_name":null`, `"branch":null`, `"version":1`} {
		if !strings.Contains(string(data), field) {
			t.Errorf("no %s in %s", field, data)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	rec := fullRecord("codex:k7m3pqx", "codex")
	rec.Digest.LastPrompt = strings.Repeat("é", maxDigestPrompt)
	rec.Digest.LastAnswer = "x" + strings.Repeat("€", maxDigestAnswer)
	rec.Digest.TouchedFiles = nil
	for i := range 500 {
		rec.Digest.TouchedFiles = append(rec.Digest.TouchedFiles, fmt.Sprint(i))
	}
	data, err := encodeRecord(rec)
	wantNil(t, err)
	got, err := decodeRecord(data, rec.AgentID)
	wantNil(t, err)
	d := got.Digest
	if len(d.LastPrompt) != maxDigestPrompt || len(d.LastAnswer) > maxDigestAnswer || strings.ContainsRune(d.LastPrompt+d.LastAnswer, '\ufffd') {
		t.Errorf("%d bytes of prompt, %d of answer", len(d.LastPrompt), len(d.LastAnswer))
	}
	if len(d.TouchedFiles) != maxDigestFiles || d.TouchedFiles[maxDigestFiles-1] != "499" {
		t.Errorf("%d files, the last is %s", len(d.TouchedFiles), d.TouchedFiles[len(d.TouchedFiles)-1])
	}
	if len(rec.Digest.TouchedFiles) != 500 {
		t.Error("encoding changed the caller's record")
	}
	rec.Settings.BaseInstructions = strings.Repeat("x", maxRecordBytes)
	if _, err := encodeRecord(rec); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a record over the limit: %v", err)
	}
	rec = fullRecord("codex:k7m3pqx", "codex")
	rec.Context = json.RawMessage("{")
	if _, err := encodeRecord(rec); err == nil {
		t.Error("a context that is no JSON was encoded")
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "zeros": "\x00\x00\x00", "cut off": `{"agent_id":"codex:k7m3pqx","identity":"co`, "array": "[]", "null": "null",
		"another's":  `{"agent_id":"codex:bbbb","identity":"codex","status":"idle"}`,
		"wrong type": `{"agent_id":"codex:k7m3pqx","identity":"codex","status":3}`,
		"no status":  `{"agent_id":"codex:k7m3pqx","identity":"codex"}`,
	} {
		if rec, err := decodeRecord([]byte(data), "codex:k7m3pqx"); err == nil {
			t.Errorf("%s: %+v", name, rec)
		}
	}
}

func TestAgentIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 {
		id := randomAgentID()
		suffix := suffixOf(id)
		if !validAgentID(id) || len(suffix) != agentIDLength || strings.ContainsAny(suffix, "0o1liaeuy") || seen[id] {
			t.Fatalf("agent id %q", id)
		}
		for i := 1; i < len(suffix); i++ {
			if suffix[i] == suffix[i-1] {
				t.Fatalf("%q repeats a character", id)
			}
		}
		seen[id] = true
	}
	for _, id := range []string{"", "codex:", "codex:abc", "k7m3pqx", "codex:../../x", "codex:K7M3PQX", "codex:k7m3pqx\n", "codex:" + strings.Repeat("a", 33)} {
		if validAgentID(id) || suffixOf(id) != "" {
			t.Errorf("%q is taken for an agent id", id)
		}
	}
	if suffixOf("codex:abcd") != "abcd" {
		t.Error("another version's id is refused")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	full, err := encodeRecord(fullRecord("codex:k7m3pqx", "codex"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"agent_id":"codex:k7m3pqx","identity":"i","status":"idle","":1,"AGENT_ID":"codex:k7m3pqx","settings":{"x":{}},"digest":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := decodeRecord(data, "codex:k7m3pqx")
		if err != nil {
			return
		}
		out, err := encodeRecord(*rec)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		again, err := decodeRecord(out, rec.AgentID)
		if err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, out)
		}
		if again.Identity != rec.Identity || again.Status != rec.Status || again.Turns != rec.Turns || again.Noted != rec.Noted {
			t.Fatalf("what was read is changed: %s", out)
		}
	})
}
