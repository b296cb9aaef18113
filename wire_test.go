package main

// wire_test.go holds bytes to JSON-RPC: the framing of records, the reader of raw JSON against encoding/json (both
// fuzzed), what the log tells of the wire and what it never tells (NFR-5), bad records from a client and from a child,
// calls that end exactly once, and an outgoing queue that drops only what may be dropped.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// readAll lists what a reader yields: records as they are, errors in < >.
func readAll(f *frameReader) []string {
	var out []string
	for range 100 {
		rec, err := f.read()
		var long *recordTooLong
		switch {
		case err == io.EOF:
			return out
		case errors.As(err, &long):
			out = append(out, "<too long>")
		case err == errBadHeader:
			out = append(out, "<bad header>")
		case err != nil:
			return append(out, "<"+err.Error()+">")
		default:
			out = append(out, string(rec))
		}
	}
	return append(out, "<endless>")
}

func TestFrames(t *testing.T) {
	const frame = "Content-Length: 2\r\n\r\n{}"
	x20 := strings.Repeat("x", 20)
	for _, c := range []struct{ name, in, want string }{
		{"lines", "{\"a\":1}\n[2]\n", `{"a":1}|[2]`},
		{"last line without end, CRLF", "{}\r\n{1}", `{}|{1}`},
		{"blank lines", "\n\r\n  \n{}\n\n\n[]\n", `{}|[]`},
		{"BOM before a line", "\xef\xbb\xbf{}\n", `{}`},
		{"BOM before a header", "\xef\xbb\xbf" + frame, `{}`},
		{"garbage is a line, a JSON word no header", "true\nhello there\n{}\n", `true|hello there|{}`},
		{"frames", "Content-Length: 7\r\n\r\n{\"a\":1}" + frame, `{"a":1}|{}`},
		{"header names in any case", "cOnTeNt-LeNgTh:2\r\nContent-Type: x\r\n\r\n{}", `{}`},
		{"other header first", "X-A: y\r\nCONTENT-LENGTH : 2\r\n\r\n{}", `{}`},
		{"bare newlines in headers", "Content-Length: 2\n\n{}Content-Length: 2\n\n[]", `{}|[]`},
		{"newlines in a body", "Content-Length: 5\r\n\r\n{\n\n\n}\n\n", "{\n\n\n}"},
		{"blank lines between frames", frame + "\r\n\r\n" + frame, `{}|{}`},
		{"a length that is none", "Content-Length: two\r\n\r\n" + frame, `<bad header>|{}`},
		{"a negative length", "Content-Length: -2\r\n\r\n" + frame, `<bad header>|{}`},
		{"two lengths that differ", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n" + frame, `<bad header>|{}`},
		{"no length at all", "Content-Type: x\r\n\r\n" + frame, `<bad header>|{}`},
		{"a cut body", "Content-Length: 9\r\n\r\n{}", `<unexpected EOF>`},
		{"a cut header", "Content-Length: 9\r\n", `<unexpected EOF>`},
		{"a line over the limit", x20 + "x\n{}\n", `<too long>|{}`},
		{"a line at the limit", x20 + "\r\n{}\n", x20 + `|{}`},
		{"a frame over the limit", "Content-Length: 21\r\n\r\n" + x20 + "x" + frame, `<too long>|{}`},
		{"a last line over the limit", x20 + x20, `<too long>`},
		{"a line longer than any buffer", strings.Repeat("x", 5<<20) + "\n{}\n", `<too long>|{}`},
	} {
		for slow, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			if got := strings.Join(readAll(newFrameReader(r, 20, framingUnknown)), "|"); got != c.want {
				t.Errorf("%s (byte by byte: %d): got %.50q, want %q", c.name, slow, got, c.want)
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("{}\n[]\n"), false)
	f.Add([]byte("Content-Length: 2\r\n\r\n{}"), true)
	f.Add([]byte("\xef\xbb\xbf\n\ncontent-length:0\n\n"), false)
	f.Fuzz(func(t *testing.T, in []byte, header bool) {
		whole := readAll(newFrameReader(bytes.NewReader(in), 64, framingUnknown))
		bytewise := readAll(newFrameReader(iotest.OneByteReader(bytes.NewReader(in)), 64, framingUnknown))
		if fmt.Sprint(whole) != fmt.Sprint(bytewise) {
			t.Fatalf("cut differently: %q and %q", whole, bytewise)
		}
		// What we write, we read back.
		rec := bytes.TrimSpace(in)
		if bytes.ContainsAny(in, "\n\r") || len(rec) == 0 || len(in) > 60 ||
			bytes.HasPrefix(in, []byte("\xef\xbb\xbf")) {
			return
		}
		mode := framingNewline
		if header {
			mode = framingHeader
		}
		got := readAll(newFrameReader(bytes.NewReader(appendFrame(nil, rec, mode)), 64, mode))
		if len(got) != 1 || got[0] != string(rec) {
			t.Fatalf("wrote %q, read %q", rec, got)
		}
	})
}

// The reader of raw JSON accepts and finds what encoding/json does, and what it writes is valid UTF-8.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\u00e9\n",null,true,{}],"a":2}`, `"\ud800"`, `01`, `1.`,
		`{"a" :1 , "b":[ ]}`, `[1,]`, "\"\x01\"", `{"\u0061":"b"}`, "\"\xff\"", ` `, `-`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := json.Valid(b) && utf8.Valid(b)
		if got := validJSON(b); got != want {
			t.Fatalf("validJSON(%q) = %v", b, got)
		}
		if !want {
			_ = eachField(b, func(string, json.RawMessage) bool { return true }) // must not panic
			return
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(b, &m) == nil && m != nil {
			got := map[string]json.RawMessage{}
			err := eachField(b, func(k string, v json.RawMessage) bool { got[k] = v; return true })
			if err != nil || len(got) != len(m) {
				t.Fatalf("eachField(%q): %v, %d fields, want %d", b, err, len(got), len(m))
			}
			for k, v := range m {
				if string(got[k]) != string(v) || string(rawField(b, k)) != string(v) {
					t.Fatalf("field %q of %q: %q, want %q", k, b, got[k], v)
				}
			}
		}
		var s string
		if rawKind(b) == '"' && json.Unmarshal(b, &s) == nil {
			if got, ok := rawString(bytes.TrimSpace(b)); !ok || got != s {
				t.Fatalf("rawString(%q) = %q, want %q", b, got, s)
			}
		}
		var back string
		if err := json.Unmarshal(appendJSONString(nil, string(b)), &back); err != nil || back != string(b) {
			t.Fatalf("appendJSONString(%q) reads back %q, %v", b, back, err)
		}
	})
}

func TestRawJSON(t *testing.T) {
	want(t, string(appendJSONString(nil, "a\xffb<\u2028")), "\"a\uFFFDb<\u2028\"")
	obj := json.RawMessage(`{"a":{"b":{"c":"x"}},"n":null}`)
	want(t, stringField(obj, "a", "b", "c"), "x")
	if rawField(obj, "a", "x", "c") != nil || rawField(obj, "n", "c") != nil || !isNull(rawField(obj, "n")) {
		t.Error("missing steps")
	}
}

// The log has ids and times at debug and whole messages at trace; nobody's words at debug, and a secret at no level.
func TestTraceOf(t *testing.T) {
	const (
		call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"codex-reply",` +
			`"arguments":{"agent_id":"codex:bcdfghj","prompt":"private words, password=hunter2hunter2"}}}`
		item = `{"method":"item/completed","params":{"threadId":"t1","turnId":"u1","item":{"id":"i1","t":"private"}}}`
		turn = `{"method":"turn/completed","params":{"threadId":"t1","turn":{"id":"u1"}}}`
		told = `{"method":"codex/event","params":{"_meta":{"agent_id":"codex:bcdfghj","threadId":"t1"},` +
			`"msg":{"type":"agent_message","message":"private words"}}}`
		ended = `{"id":7,"result":{"content":[],"structuredContent":{"agent_id":"codex:bcdfghj","threadId":"t1",` +
			`"turn_id":"u1","content":"private words"}}}`
		began = `{"method":"thread/started","params":{"thread":{"id":"t1","preview":"private words"}}}`
		fail  = `{"id":"a","error":{"code":-32600,"message":"private words"}}`
		piece = `{"method":"item/agentMessage/delta","params":{"threadId":"t1","itemId":"i1","delta":"private words"}}`
		chunk = `{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk",` +
			`"content":{"text":"private words"}}}}`
		event = `{"method":"codex/event","params":{"msg":{"type":"agent_message_delta","delta":"private words"}}}`
	)
	// Cut first, the secret's head would be too short to be known as one.
	atCut := `{"method":"x","params":{"a":"` + strings.Repeat("b ", maxFrameLogged/2-20) + `sk-abcd1234abcd1234abcd"}}`
	for _, tt := range []struct{ level, rec, want, also, never string }{
		{"debug", call, "level=debug msg=message side=client dir=< bytes=",
			"method=tools/call request=7 tool=codex-reply agent=codex:bcdfghj", "private"},
		{"debug", item, "method=item/completed thread=t1 turn=u1 item=i1", "", "private"},
		{"debug", turn, "method=turn/completed thread=t1 turn=u1", "", "private"},
		{"debug", told, "method=codex/event agent=codex:bcdfghj event=agent_message thread=t1", "", "private"},
		{"debug", ended, "request=7 agent=codex:bcdfghj thread=t1 turn=u1", "", "private"},
		{"debug", began, "method=thread/started thread=t1", "", "private"},
		{"debug", fail, `request="\"a\"" code=-32600`, "", "private"},
		{"debug", `{"a`, `msg="not a message"`, "bytes=3", "private"},
		{"trace", call, "level=trace msg=frame", "private words, password=[redacted]", "hunter2"},
		{"trace", piece, "level=trace msg=piece", "thread=t1 item=i1", "private"},
		{"trace", chunk, "level=trace msg=piece", "", "private"},
		{"trace", event, "level=trace msg=piece", "", "private"},
		{"trace", atCut, "msg=frame", "", "sk-abcd"},
		{"debug", piece, "", "", "="}, // nothing at all
		{"info", call, "", "", "="},
	} {
		var out bytes.Buffer
		if trace := traceOf(newLogger(&out, tt.level), "client"); trace != nil {
			trace("<", []byte(tt.rec))
		}
		if got := out.String(); !strings.Contains(got, tt.want) || !strings.Contains(got, tt.also) ||
			strings.Contains(got, tt.never) {
			t.Errorf("%s of %.80s: got %.500q, want %q and %q in it, never %q", tt.level, tt.rec, got, tt.want, tt.also,
				tt.never)
		}
	}
}

// wire is the other side of a peer under test: what it writes, line by line, and what can be written to it.
type wire struct {
	t    *testing.T
	to   *io.PipeWriter
	out  *bufio.Reader
	seen []string // the notifications that came
}

// newWire starts a peer that answers every request with its params.
func newWire(t *testing.T, o peerOptions) (*peer, *wire) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	w := &wire{t: t, to: inW, out: bufio.NewReaderSize(outR, 1<<20)}
	var p *peer
	o.handle = func(m *message) {
		if m.isRequest() {
			p.reply(m.id, m.params)
			return
		}
		w.seen = append(w.seen, m.method)
	}
	p = newPeer(inR, outW, o)
	t.Cleanup(func() { inW.Close(); outR.Close(); p.closeOut(time.Second) })
	go p.run()
	return p, w
}

func (w *wire) send(line string) {
	w.t.Helper()
	_, err := io.WriteString(w.to, line+"\n")
	wantNil(w.t, err)
}

// wantLine wants a part of the next line that the peer writes.
func (w *wire) wantLine(why, want string) {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	wantNil(w.t, err)
	if !strings.Contains(line, want) {
		w.t.Errorf("%s\n got  %s\n want %s", why, line, want)
	}
}

func TestPeerAnswersBadRecordsAndGoesOn(t *testing.T) {
	_, w := newWire(t, peerOptions{strict: true})
	for _, c := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":1}}`, `{"jsonrpc":"2.0","id":0,"result":{"a":1}}`},
		{`{"jsonrpc":"2.0","id":"0","method":"m","params":[]}`, `{"jsonrpc":"2.0","id":"0","result":[]}`},
		{`{"jsonrpc":"2.0","id":1e2,"method":"m","params":1}`, `{"jsonrpc":"2.0","id":1e2,"result":1}`},
		{`{"jsonrpc":"2.0",`, `"code":-32700`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `not valid UTF-8`},
		{`42`, `"code":-32600`},
		{`{}`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":7}`, `"id":7,"error":{"code":-32600`},
		{`{"id":7,"method":"m"}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":7,"method":"m"}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":5}`, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"m","result":1}`, `"id":7,"error":{"code":-32600`},
		{`[]`, `"id":null,"error":{"code":-32600,"message":"Invalid Request: batches are not served; send the`},
		{` [{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`,
			`"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":"big","method":"m","params":"` + strings.Repeat("x", maxRecord) + `"}`,
			`"id":"big","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":8,"method":"m","params":"still here"}`, `"id":8,"result":"still here"`},
	} {
		w.send(c.in)
		w.wantLine(clip(c.in, 100), c.want)
	}
}

// Of a record over the limit there is only the beginning. Its sender is answered where that says who it is; the id of
// an answer is one of ours.
func TestHeadOfALongRecord(t *testing.T) {
	for head, id := range map[string]string{`{"jsonrpc":"2.0","id":"big","method":"m","params":{"a":"xx`: `"big"`,
		`{"method":"m","id":[1],"params":"xx`: "", `{"jsonrpc":"2.0","id":1,"result":"xx`: ""} {
		want(t, string(headID([]byte(head))), id)
	}
}

func TestPeerToleratesAnythingFromAChild(t *testing.T) {
	_, w := newWire(t, peerOptions{noVersion: true, mode: framingNewline})
	for _, junk := range []string{"log line", "{", "[]", "[1]", "{}", `{"id":99,"result":{}}`, `{"id":"x","result":{}}`,
		`{"method":"note"}`} {
		w.send(junk)
	}
	w.send(`{"id":0,"method":"ping","params":"pong"}`)
	w.wantLine("ping", `{"id":0,"result":"pong"}`)
	want(t, fmt.Sprint(w.seen), "[note]")
}

func TestCallEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWire(t, peerOptions{maxInFlight: 2})
		ends := make(chan string, 100)
		call := func(name string, timeout time.Duration) {
			p.call(name, nil, timeout, func(res json.RawMessage,
				err error) {
				ends <- fmt.Sprintf("%s: %s %v", name, res, err)
			})
		}
		wantEnds := func(ended ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for range len(ends) {
				got = append(got, <-ends)
			}
			want(t, strings.Join(got, ", "), strings.Join(ended, ", "))
		}
		call("a", time.Second)
		call("b", 2*time.Second)
		call("c", 500*time.Millisecond) // waits for a slot, and gives up before it has one
		call("d", 10*time.Second)       // gets a's slot when a gives up
		w.wantLine("a", `"method":"a"`)
		w.wantLine("b", `"method":"b"`)
		time.Sleep(1100 * time.Millisecond) // the bubble's clock
		w.wantLine("d, not c", `"id":4,"method":"d"`)
		wantEnds("c:  "+errNotSent.Error(), "a:  "+errCallTimeout.Error())
		w.send(`{"jsonrpc":"2.0","id":1,"result":"late"}`)
		w.send(`{"jsonrpc":"2.0","id":2,"error":{"code":5,"message":"no"}}`)
		w.send(`{"jsonrpc":"2.0","id":2,"result":"again"}`)
		wantEnds("b:  no")
		w.to.Close()
		wantEnds("d:  " + errPeerGone.Error())
		call("e", time.Second)
		wantEnds("e:  " + errPeerGone.Error())
	})
}

// A client that stops reading costs the budget and no more, but for one large record. Deltas leave room for what ended
// and began; answers are kept.
func TestOutboxDropsOnlyWhatMayBeDropped(t *testing.T) {
	r, w := io.Pipe()
	o := newOutbox(w, 1000, nil)
	small, large := []byte(strings.Repeat("x", 99)), []byte(strings.Repeat("y", 5000))
	taken := 0
	for range 50 {
		if o.put(small, framingNewline, dropFirst) {
			taken++
		}
	}
	end, big, late := o.put(small, framingNewline, dropLast), o.put(large, framingNewline, dropLast),
		o.put(small, framingNewline, dropLast)
	if answer := o.put([]byte("answer"), framingNewline, keepAlways); taken != 7 || !end || !big || late || !answer {
		t.Errorf("%d deltas, an end %v, a large one %v, one past the budget %v, an answer %v", taken, end, big, late,
			answer)
	}
	go func() { o.close(time.Minute); w.Close() }()
	all, err := io.ReadAll(r)
	wantNil(t, err)
	if lines := strings.Split(strings.TrimSpace(string(all)), "\n"); len(lines) != 10 || lines[9] != "answer" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
	if o.put(small, framingNewline, keepAlways) {
		t.Error("put after close")
	}
}

func TestOutboxEndsWithItsReader(t *testing.T) {
	r, w := io.Pipe()
	told := make(chan error, 1)
	o := newOutbox(w, 1000, func(err error) { told <- err })
	r.Close()
	o.put([]byte("x"), framingNewline, keepAlways)
	if err := <-told; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if o.put([]byte("y"), framingNewline, keepAlways) || o.size() != 0 {
		t.Error("a dead outbox takes records")
	}
}
