package main

// mock_fault.go owns what goes wrong in the mock Codex's turns: the directives
// of mock_directive.go's table that fail, retry, stall, flood, talk nonsense or
// kill the process. They run on the turn's goroutine. A wait must go through
// mockTurn.wait, or an interrupt would find nobody.

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// failDirective ends the turn with the model API's error: an HTTP status, or
// a word such as context_length_exceeded, and a message.
func failDirective(t *mockTurn, arg string) mockEnd {
	code, msg, _ := strings.Cut(arg, " ")
	n, _ := strconv.Atoi(code)
	http := func(status string) mockEnd {
		text := fmt.Sprintf("unexpected status %s: %s, url: https://api.openai.com/v1/responses", status, msg)
		if t.m.old() {
			return t.fail(text, "other", "other")
		}
		return t.fail(text, map[string]any{"httpConnectionFailed": map[string]any{"httpStatusCode": n}}, nil)
	}
	switch code {
	case "500":
		return t.fail("We're currently experiencing high demand, which may cause temporary errors.", "internalServerError", "internal_server_error")
	case "429":
		return t.fail("exceeded retry limit, last status: 429 Too Many Requests", map[string]any{"responseTooManyFailedAttempts": map[string]any{"httpStatusCode": 429}}, "other")
	case "401":
		return http("401 Unauthorized")
	case "403":
		return http("403 Forbidden")
	case "404":
		return http("404 Not Found")
	case "503":
		return http("503 Service Unavailable")
	case "context_length_exceeded":
		return t.fail("Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.", "contextWindowExceeded", "context_window_exceeded")
	case "insufficient_quota":
		return t.fail("Quota exceeded. Check your plan and billing details.", "usageLimitExceeded", "usage_limit_exceeded")
	}
	return t.fail(strings.TrimSpace(msg), "other", "other")
}

// retryDirective shows n errors that Codex gets over.
func retryDirective(t *mockTurn, arg string) mockEnd {
	n, _ := mockCount(arg, 2)
	for i := range n {
		t.retrying(fmt.Sprintf("Reconnecting... %d/%d", i+1, n), "stream disconnected before completion: Transport error: network error: error decoding response body")
	}
	return goOn
}

// offlineDirective is a network that never comes back (fact 17).
func offlineDirective(t *mockTurn, _ string) mockEnd {
	for {
		t.retrying("Reconnecting... waiting for network", "Connection failed: error sending request")
		if end := t.pause(50*time.Millisecond, true); end != goOn {
			return end
		}
	}
}

// stallDirective never ends; heed has seen to it that interrupts are answered.
func stallDirective(t *mockTurn, _ string) mockEnd {
	<-t.m.done
	return gone
}

// dropDirective makes the next request of a method vanish; with REFUSE it is
// refused, with MUTE turn/start it is carried out and not answered.
func dropDirective(t *mockTurn, method string) mockEnd {
	t.m.mu.Lock()
	t.m.drop[method]++
	t.m.mu.Unlock()
	return goOn
}

// gateDirective waits until a file exists.
func gateDirective(t *mockTurn, path string) mockEnd {
	for {
		if _, err := os.Stat(path); err == nil {
			return goOn
		}
		if end := t.pause(2*time.Millisecond, true); end != goOn {
			return end
		}
	}
}

// floodDirective sends n deltas as fast as the client reads, numbered, each
// of some bytes: the child of the benchmarks.
func floodDirective(t *mockTurn, arg string) mockEnd {
	n, rest := mockCount(arg, 20000)
	size, _ := mockCount(rest, 32)
	size = max(size, 9)
	it := t.messageBegin(nil)
	pad := " " + strings.Repeat("x", size-9)
	params := map[string]any{"threadId": t.th.ID, "turnId": t.id, "itemId": it["id"], "delta": "########" + pad}
	rec := string(toJSON(map[string]any{"method": "item/agentMessage/delta", "params": params}))
	if !t.m.old() {
		rec = rec[:len(rec)-1] + `,"emittedAtMs":` + strconv.FormatInt(time.Now().UnixMilli(), 10) + "}"
	}
	head, tail, _ := strings.Cut(rec, "########")
	var text strings.Builder
	chunk := make([]byte, 0, chunkSize)
	for i := range n {
		num := fmt.Appendf(nil, "%08d", i)
		if text.Len() < 1<<20 {
			text.Write(num)
			text.WriteString(pad)
		}
		chunk = append(append(append(chunk, head...), num...), tail...)
		if len(chunk)+len(rec)+64 > chunkSize || i == n-1 {
			t.m.peer.write(chunk, false) // the newline between two records is the frame's
			chunk = chunk[:0]
			for t.m.peer.queued() > 4<<20 {
				if end := t.wait(t.m.out.written, true); end != goOn {
					return end
				}
			}
			continue
		}
		chunk = append(chunk, '\n')
	}
	t.messageEnd(it, text.String())
	return goOn
}

// unknownDirective sends what no version knows, repeatable by its seed:
// notifications, fields, item types, enum words, and one server request.
func unknownDirective(t *mockTurn, arg string) mockEnd {
	seed, _ := mockCount(arg, 1)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	word := func() string { return fmt.Sprintf("zz%x", r.Uint32()) }
	junk := func() any {
		return []any{nil, true, -1.5e300, word(), []any{word(), []any{}}, map[string]any{word(): map[string]any{}}, "\u2028\U0001f600\\\"\n"}[r.IntN(7)]
	}
	for range 4 + r.IntN(8) {
		switch r.IntN(6) {
		case 0:
			t.m.notify(word()+"/"+word(), map[string]any{word(): junk()})
		case 1:
			t.tell("item/"+word()+"/delta", map[string]any{"itemId": word(), "delta": junk()})
		case 2:
			it := t.item(word(), t.m.newID("zz"), map[string]any{word(): junk(), "status": word()})
			t.started(it)
			t.completed(it)
		case 3:
			t.tell("item/agentMessage/delta", map[string]any{"itemId": word(), "delta": "", word(): junk()})
		case 4:
			t.m.notify("thread/status/changed", map[string]any{"threadId": t.th.ID, "status": map[string]any{"type": word(), word(): junk()}})
		case 5:
			t.m.notify("error", map[string]any{"threadId": t.th.ID, "turnId": t.id, "willRetry": true, "error": map[string]any{"message": word(), "codexErrorInfo": map[string]any{word(): junk()}}})
		}
	}
	said := "answered with an error"
	answered := make(chan struct{})
	t.m.peer.call("item/"+word()+"/requestApproval", map[string]any{"threadId": t.th.ID, "turnId": t.id, "itemId": word(), word(): junk()}, 0, func(result json.RawMessage, err error) {
		if err == nil {
			said = "answered with " + string(result)
		}
		close(answered)
	})
	if end := t.wait(answered, false); end != goOn {
		return end
	}
	t.told("the unknown request was " + said)
	return goOn
}

// lateDirective says something after turn/completed, with the old turn id.
func lateDirective(t *mockTurn, text string) mockEnd {
	t.after = append(t.after, func() { t.lateMessage(text) })
	return goOn
}

// dieDirective ends the process: DIE code [stderr line].
func dieDirective(t *mockTurn, arg string) mockEnd {
	code, line := mockCount(arg, 1)
	if line != "" {
		fmt.Fprintln(t.m.stderr, line)
	}
	t.m.exit(code)
	<-t.m.done
	return gone
}

// killSelfDirective dies by a signal, given by number or by one of these names.
func killSelfDirective(t *mockTurn, arg string) mockEnd {
	n, _ := mockCount(arg, map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "SEGV": 11, "TERM": 15}[strings.TrimPrefix(arg, "SIG")])
	t.m.peer.closeOut(mockFlush)
	signal.Reset(syscall.Signal(n))
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Signal(syscall.Signal(n)) // if it fails we live on, and the test sees that
	}
	<-t.m.done
	return gone
}

// closeOutDirective closes stdout and lives on.
func closeOutDirective(t *mockTurn, _ string) mockEnd {
	t.m.peer.closeOut(mockFlush)
	if c, ok := t.m.out.w.(io.Closer); ok {
		_ = c.Close() // the reader sees the end either way
	}
	return t.wait(nil, false)
}
