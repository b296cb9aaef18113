package main

// mail_peers_test.go is the other two writers of an inbox, as they were measured to behave: Claude Code 2.1.197 and atm 0.46. Each takes its
// own lock only, waits as long and as often, and writes the file in its own way.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

// mailTeam makes a team and gives its inboxes.
func mailTeam(t testing.TB) (x *inboxes, dir string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "teams")
	dir = filepath.Join(root, "crew", "inboxes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "crew", "config.json"), []byte(`{"name":"crew","members":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return newInboxes(root, "", "", nil, slog.New(slog.DiscardHandler)), dir
}

// writeInbox writes an inbox as it would look to somebody who comes a while later.
func writeInbox(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ageFile(t, path, time.Minute)
}

func ageFile(t testing.TB, path string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// claudeWiped is a file that tells that Claude Code emptied an inbox. It does beside atm, which rewrites the file that it
// has displaced, in place: if Claude Code has just opened that one, it reads half of it.
const claudeWiped = "claude-emptied-an-inbox"

// claudeSend appends as Claude Code does; false: it gave up, and would have lost the message without a word.
func claudeSend(path, from, text string) (bool, error) {
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
		f.WriteString("[]")
		f.Close()
	} else if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	lock := path + ".lock"
	waits := []time.Duration{5, 10, 20, 40, 80, 100, 100, 100, 100, 100}
	for try := 0; ; try++ {
		err := os.Mkdir(lock, 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		if info, err := os.Stat(lock); err == nil && time.Since(info.ModTime()) > 10*time.Second {
			os.Remove(lock)
			continue
		}
		if try == len(waits) {
			return false, nil
		}
		time.Sleep(waits[try] * time.Millisecond) // its pace, not ours to wait for
	}
	defer os.Remove(lock)
	was, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var all []json.RawMessage
	if json.Unmarshal(was, &all) != nil {
		all = nil // it takes such a file as empty, and what stood in it is lost
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), claudeWiped), nil, 0o644); err != nil {
			return false, err
		}
	}
	all = append(all, toJSON(map[string]any{"from": from, "text": text, "summary": text, "msgV": 1, "msg_id": newMessageID(),
		"type": "message", "read": false, "timestamp": time.Now().UTC().Format(mailTimeLayout)}))
	now, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return false, err
	}
	temp := path + ".tmp." + newMessageID()[:8]
	if err := os.WriteFile(temp, now, 0o644); err != nil {
		return false, err
	}
	return true, os.Rename(temp, path)
}

// atmSend appends as atm does; false: it spooled the message, to try again.
func atmSend(path, from, text string) (bool, error) {
	base := strings.TrimSuffix(path, ".json")
	lock, err := os.OpenFile(base+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	waits := []time.Duration{50, 100, 200, 400, 800}
	for try := 0; ; try++ {
		err := lockFile(lock, true, false)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			return false, err
		}
		if try == len(waits) {
			return false, nil
		}
		time.Sleep(waits[try] * time.Millisecond) // its pace
	}
	defer unlockFile(lock)
	was, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	all, err := strictMail(was)
	if err != nil {
		return false, err
	}
	all = append(all, map[string]any{"from": from, "source_team": "crew", "text": text, "read": false, "summary": text,
		"message_id": newMessageID(), "timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.999999999-07:00")})
	temp := base + ".tmp"
	for range 2 {
		now, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return false, err
		}
		if err := writeSynced(temp, now); err != nil {
			return false, err
		}
		if err := exchangeFiles(temp, path); err != nil {
			return false, err
		}
		displaced, err := os.ReadFile(temp)
		if err != nil {
			return false, err
		}
		if bytes.Equal(displaced, was) {
			break
		}
		theirs, err := strictMail(displaced)
		if err != nil {
			return false, err
		}
		all = mergeMail(all, theirs)
		was = now // the second exchange isn't looked at
	}
	os.Remove(temp)
	return true, nil
}

// strictMail is atm's parser: one bad message, and it refuses the file.
func strictMail(text []byte) ([]map[string]any, error) {
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, m := range all {
		for _, key := range []string{"from", "text", "timestamp"} {
			if _, ok := m[key].(string); !ok {
				return nil, fmt.Errorf("no %s in %v", key, m)
			}
		}
		for _, key := range []string{"message_id", "source_team", "summary"} {
			if v, ok := m[key]; ok && v != nil {
				if _, ok := v.(string); !ok {
					return nil, fmt.Errorf("%s is no string in %v", key, m)
				}
			}
		}
		if v, ok := m["read"]; ok {
			if _, ok := v.(bool); !ok {
				return nil, fmt.Errorf("read is no bool in %v", m)
			}
		}
	}
	return all, nil
}

func mergeMail(ours, theirs []map[string]any) []map[string]any {
	key := func(m map[string]any) string {
		if id, ok := m["message_id"].(string); ok {
			return id
		}
		return fmt.Sprint(m["from"], "|", m["text"], "|", m["timestamp"])
	}
	have := map[string]bool{}
	for _, m := range ours {
		have[key(m)] = true
	}
	for _, m := range theirs {
		if !have[key(m)] {
			ours = append(ours, m)
		}
	}
	sort.SliceStable(ours, func(i, j int) bool { return ours[i]["timestamp"].(string) < ours[j]["timestamp"].(string) })
	return ours
}

func writeSynced(path string, text []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}
