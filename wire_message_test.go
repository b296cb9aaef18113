package main

// wire_message_test.go holds what the log tells of the wire to NFR-5: ids and times
// at debug, whole messages at trace, and what it never tells, at whatever
// level.

import (
	"bytes"
	"strings"
	"testing"
)

func TestTraceOf(t *testing.T) {
	const (
		call  = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"codex-reply","arguments":{"agent_id":"codex:bcdfghj","prompt":"private words, password=hunter2hunter2"}}}`
		item  = `{"method":"item/completed","params":{"threadId":"t1","turnId":"u1","item":{"id":"i1","text":"private words"}}}`
		turn  = `{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1"}}}`
		piece = `{"method":"item/agentMessage/delta","params":{"threadId":"t1","itemId":"i1","delta":"private words"}}`
		chunk = `{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"text":"private words"}}}}`
		event = `{"method":"codex/event","params":{"msg":{"type":"agent_message_delta","delta":"private words"}}}`
		told  = `{"method":"codex/event","params":{"_meta":{"agent_id":"codex:bcdfghj","threadId":"t1"},"msg":{"type":"agent_message","message":"private words"}}}`
		ended = `{"id":7,"result":{"content":[],"structuredContent":{"agent_id":"codex:bcdfghj","threadId":"t1","turn_id":"u1","content":"private words"}}}`
		began = `{"method":"thread/started","params":{"thread":{"id":"t1","preview":"private words"}}}`
		fail  = `{"id":"a","error":{"code":-32600,"message":"private words"}}`
	)
	tests := []struct {
		name, level, rec string
		want             []string // "" for nothing
		never            string
	}{
		{"info tells nothing", "info", call, []string{""}, ""},
		{"a call", "debug", call, []string{"level=debug msg=message side=client dir=< bytes=", "method=tools/call request=7 tool=codex-reply agent=codex:bcdfghj"}, "private"},
		{"an item", "debug", item, []string{"method=item/completed thread=t1 turn=u1 item=i1"}, "private"},
		{"a turn's end", "debug", turn, []string{"method=turn/completed thread=t1 turn=u1"}, ""},
		{"an event that is forwarded", "debug", told, []string{"method=codex/event agent=codex:bcdfghj event=agent_message thread=t1"}, "private"},
		{"a turn's result", "debug", ended, []string{"request=7 agent=codex:bcdfghj turn=u1 thread=t1"}, "private"},
		{"a thread's start", "debug", began, []string{"method=thread/started thread=t1"}, "private"},
		{"an error", "debug", fail, []string{`request="\"a\"" code=-32600`}, "private"},
		{"a piece at debug", "debug", piece, []string{""}, ""},
		{"no JSON", "debug", `{"a`, []string{`msg="not a message"`, "bytes=3"}, ""},
		{"a frame", "trace", call, []string{"level=trace msg=frame", "private words", "[redacted]", "level=debug msg=message"}, "hunter2"},
		{"a piece at trace", "trace", piece, []string{"level=trace msg=piece", "thread=t1 item=i1"}, "private"},
		{"a piece for an editor", "trace", chunk, []string{"level=trace msg=piece"}, "private"},
		{"a piece of an old event", "trace", event, []string{"level=trace msg=piece"}, "private"},
		// Cut first, the secret's head would be too short to be known as one.
		{"a secret at the cut", "trace", `{"method":"x","params":{"a":"` + strings.Repeat("b ", maxFrameLogged/2-20) + `sk-abcd1234abcd1234abcd"}}`, []string{"msg=frame"}, "sk-abcd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if trace := traceOf(newLogger(&out, tt.level), "client"); trace != nil {
				trace("<", []byte(tt.rec))
			}
			for _, want := range tt.want {
				if want == "" && out.Len() > 0 || !strings.Contains(out.String(), want) {
					t.Errorf("got %q, want %q in it", clip(out.String(), 500), want)
				}
			}
			if tt.never != "" && strings.Contains(out.String(), tt.never) {
				t.Errorf("%q is in %q", tt.never, out.String())
			}
		})
	}
}
