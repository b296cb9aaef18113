package main

// acp_output_test.go holds a command's output to its limits: how much of it,
// how often, and fenced so that nothing in it ends the block.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestACPOutputKeepsHeadAndTail(t *testing.T) {
	for _, total := range []int{0, 10, acpHalf, 2 * acpHalf, 2*acpHalf + 1, maxACPText, 3 << 20} {
		for _, piece := range []int{1 << 20, 7001, 100} {
			t.Run(fmt.Sprint(total, " by ", piece), func(t *testing.T) {
				var all strings.Builder
				for i := 0; all.Len() < total; i++ {
					fmt.Fprintf(&all, "line %d äöü\n", i)
				}
				text := all.String()
				var o acpOutput
				for rest := text; rest != ""; {
					n := min(piece, len(rest))
					o.add(rest[:n])
					rest = rest[n:]
				}
				got := o.text()
				if got != cappedText(text) {
					t.Fatal("in pieces it is another text than as a whole")
				}
				if len(text) <= 2*acpHalf {
					want(t, got, text)
					return
				}
				head, rest, cut := strings.Cut(got, "\n[… ")
				var left int
				fmt.Sscan(rest, &left)
				_, tail, _ := strings.Cut(rest, "left out …]\n")
				if !cut || !utf8.ValidString(got) || len(got) > maxACPText || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
					t.Errorf("head of %d, tail of %d bytes", len(head), len(tail))
				}
				if n := len(text) - len(head) - len(tail); left != n && left != n-1 { // the line end of the head is part of the note
					t.Errorf("says %d bytes left out of %d, head %d, tail %d", left, len(text), len(head), len(tail))
				}
				if cap(o.head)+cap(o.tail) > 6*acpHalf && piece < 1<<20 {
					t.Errorf("keeps %d bytes", cap(o.head)+cap(o.tail))
				}
			})
		}
	}
}

func TestFenced(t *testing.T) {
	for text, fence := range map[string]string{
		"plain":                 "```",
		"a `b` c":               "```",
		"```\ncode\n```\n":      "~~~",
		"``` and ~~~~":          "````",
		"`````` and ~~~":        "~~~~",
		"~~~":                   "```",
		"":                      "```",
		"ends with a newline\n": "```",
	} {
		got := fenced(text)
		if !strings.HasPrefix(got, fence+"\n") || !strings.HasSuffix(got, "\n"+fence) || strings.Count(got, fence) != 2 || !strings.Contains(got, text) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestACPOutputIsPaced: all that was printed so far, every 200 ms at most; none
// while the client's output waits; the whole at the end.
func TestACPOutputIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newACPRig(t, acpEncoding{})
		r.begin()
		r.item("started", `{"type":"commandExecution","id":"c","command":"make","status":"inProgress","commandActions":[{"type":"unknown","command":"make"}]}`)
		r.news()
		start := time.Now()
		var at []time.Duration
		seen := ""
		for i := range 1000 {
			r.note("item/commandExecution/outputDelta", fmt.Sprintf(`{"turnId":"t1","itemId":"c","delta":"%d\n"}`, i))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			r.crowd(i > 500)
			for line := range strings.Lines(r.news()) {
				if rawField([]byte(line), "content") == nil {
					continue
				}
				at = append(at, time.Since(start).Round(time.Millisecond))
				seen = stringField(contentAt(line, 0), "content", "text")
			}
		}
		want(t, fmt.Sprint(at), "[20ms 220ms 420ms]")
		if !strings.HasPrefix(seen, "```\n0\n1\n") || !strings.HasSuffix(seen, "\n419\n```") {
			t.Errorf("saw %q", seen)
		}
		r.crowd(false)
		time.Sleep(time.Second)
		if got := r.news(); strings.Count(got, "\n") != 0 || !strings.Contains(got, `\n999\n`) {
			t.Errorf("got:\n%s", got)
		}
		r.item("completed", `{"type":"commandExecution","id":"c","command":"make","status":"failed","exitCode":2,"durationMs":1000,"aggregatedOutput":"all of it\n"}`)
		r.want(`{"sessionUpdate":"tool_call_update","toolCallId":"codex:T:t1:c","status":"failed","content":[{"type":"content","content":{"type":"text","text":"` + "```" + `\nall of it\n` + "```" + `"}},{"type":"content","content":{"type":"text","text":"exit code 2"}}],"rawOutput":{"exitCode":2,"durationMs":1000,"status":"failed","output":"all of it\n"}}`)
		time.Sleep(time.Second)
		r.want("")
	})
}

func contentAt(update string, n int) (out json.RawMessage) {
	i := 0
	eachElement(rawField([]byte(update), "content"), func(c json.RawMessage) {
		if i == n {
			out = c
		}
		i++
	})
	return out
}

// TestACPBadBytes: whatever a command prints or a tool answers, the client gets
// JSON in UTF-8. The rig checks each update.
func TestACPBadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, bad := range []string{`\u0000`, `\ud800`, `x\udc00y`, `\ud83d\ude00`, "\xff\xfe", "\xe2\x82", `\u001b[31m`} {
			r := newACPRig(t, acpEncoding{})
			r.begin()
			r.item("started", `{"type":"commandExecution","id":"c","command":"echo `+bad+`","status":"inProgress"}`)
			r.note("item/commandExecution/outputDelta", `{"turnId":"t1","itemId":"c","delta":"`+bad+`"}`)
			r.note("item/agentMessage/delta", `{"turnId":"t1","itemId":"m","delta":"<`+bad+`>"}`)
			r.note("item/reasoning/textDelta", `{"turnId":"t1","itemId":"n","delta":"<`+bad+`>"}`)
			r.item("completed", `{"type":"mcpToolCall","id":"d","server":"s`+bad+`","tool":"t","status":"completed","arguments":{"a`+bad+`":"`+bad+`"},
				"result":{"content":[{"type":"text","text":"`+bad+`"},{"type":"image","data":"`+bad+`","mimeType":"image/png"}],"structuredContent":{"a":"`+bad+`"}}}`)
			r.item("completed", `{"type":"fileChange","id":"p","changes":[{"path":"/w/a`+bad+`","kind":{"type":"add"},"diff":"`+bad+`"}],"status":"completed"}`)
			r.ends("completed")
			for _, u := range r.all() {
				var v any
				if err := json.Unmarshal([]byte(u), &v); err != nil || !utf8.ValidString(u) || !cleanJSON([]byte(u)) {
					t.Errorf("%q: %s", bad, u)
				}
			}
		}
	})
}

// BenchmarkACPOutput is what a flood of output costs: each piece of it, and one
// update in 200 ms that tells 64 KiB.
func BenchmarkACPOutput(b *testing.B) {
	x := newACPEncoder(acpEncoding{Cwd: "/w", Send: func([]byte) bool { return true }})
	t := &acpTool{id: "c", status: callRunning}
	piece := strings.Repeat("a line of output that is told\n", 40)
	b.Run("piece", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.printed.acpOutput.add(piece)
		}
	})
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			x.calls.tellPrinted(t, time.Time{})
		}
	})
}
