package main

// acp_output_test.go holds what commands print to the text that a client without terminals reads, and to what both ways
// of telling it cost. What a terminal is told, and how that ends, is in testdata/acp/terminals.txt.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// plainOutputs are outputs with sequences, and what is to be read of them.
func plainOutputs() map[string]string {
	return map[string]string{
		"plain\n\ttext ☃\n":                         "plain\n\ttext ☃\n",
		"\x1b[1;31mred\x1b[0m\x1b[K\n":              "red\n",
		"\x1b]0;title\x07a\x1b]8;;x:y\x1b\\b":       "ab",
		"\x1bP1$r0m\x1b\\a\x1b(Bb\x1b=c\x1b7d":      "abcd",
		"\u009b31ma\u009d0;t\u009cb":                "ab",
		"\x1b[31mcut \x1b[":                         "cut ",
		"no end \x1b]0;title\nline":                 "no end \nline",
		"broken \x1b[3\nline \x1b\n\x1b[é":          "broken \nline \né",
		"a\x18b\x1b[\x1ac":                          "abc",
		"10%\r20%\r\x1b[K30%\r\ndone\r\n":           "30%\ndone\n",
		"long line\rshort":                          "short",
		"still there\r":                             "still there",
		"yarn 1\x1b[2K\x1b[1Gyarn 2\x1b[G3\x1b[2G":  "3",
		"|\b/\b-\bok\b\b\b\b\b\bé\b":                "",
		"bell\a nul\x00 del\x7f tab\t":              "bell nul del tab\t",
		"\xff\xfe\x1b[0m\xc2":                       "\xff\xfe\xc2",
		strings.Repeat("x", 3*maxLine) + "\rover\n": strings.Repeat("x", 3*maxLine) + "over\n",
	}
}

func TestACPPlainOutput(t *testing.T) {
	for output, want := range plainOutputs() {
		if got := plainOutput(output); got != want {
			t.Errorf("%.100q became %.100q, want %.100q", output, got, want)
		}
	}
}

// FuzzACPPlainOutput: an output in pieces is the same text as in one, of which nothing is for a terminal.
func FuzzACPPlainOutput(f *testing.F) {
	for output := range plainOutputs() {
		f.Add(output, 3)
	}
	f.Fuzz(func(t *testing.T, output string, piece int) {
		if !utf8.ValidString(output) { // a piece of Codex's ends no character in its middle
			return
		}
		text := plainOutput(output)
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || 0x7f <= r && r <= 0x9f
		}); i >= 0 {
			t.Fatalf("%q became %q", output, text)
		}
		if len(output) < maxLine && plainOutput(text) != text {
			t.Fatalf("%q became %q, and that something else", output, text)
		}
		var p acpPlain
		for rest := []rune(output); len(rest) > 0 && len(output) < maxLine; {
			n := min(max(piece, 1), len(rest))
			p.add(string(rest[:n]))
			rest = rest[n:]
		}
		if got := p.text(); got != text && len(output) < maxLine {
			t.Fatalf("%q in pieces of %d became %q, as a whole %q", output, piece, got, text)
		}
	})
}

// TestACPOutputCosts: however slowly a command prints, its updates together are at most six times its output for a
// client that is told all of it each time. A terminal is told each byte once.
func TestACPOutputCosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		size, piece int
		every       time.Duration
	}{
		{"60 KB in five seconds", 60 << 10, 122, 10 * time.Millisecond},
		{"60 KB in ten minutes", 60 << 10, 100, time.Second},
		{"60 KB in an hour", 60 << 10, 100, 6 * time.Second},
		{"a line a second", 20 << 10, 40, time.Second},
		{"a megabyte at once", 1 << 20, 8 << 10, time.Millisecond},
	} {
		var all strings.Builder
		for i := 0; all.Len() < c.size; i++ {
			fmt.Fprintf(&all, "line %d\n", i)
		}
		output := all.String()
		for _, key := range []string{"", "terminal_output", "terminal_output_delta"} {
			t.Run(c.name+" "+key, func(t *testing.T) {
				playACP(t, acpEncoding{Client: &acpClient{terminal: key}}, func(t *testing.T, r *acpRig) {
					const item = `{"type":"commandExecution","id":"c","command":"make","cwd":"/w","status":`
					r.item("started", item+`"inProgress"}`)
					for rest := output; rest != ""; {
						n := min(c.piece, len(rest))
						r.note("item/commandExecution/outputDelta", `{"turnId":"t1","itemId":"c","delta":`+
							string(toJSON(rest[:n]))+`}`)
						rest = rest[n:]
						time.Sleep(c.every)
						synctest.Wait()
					}
					r.item("completed", item+`"completed","exitCode":0,"aggregatedOutput":`+string(toJSON(output))+`}`)
					bytes, updates, told := 0, 0, ""
					for _, u := range r.all() {
						bytes, updates = bytes+len(u), updates+1
						if key != "" {
							told += stringField([]byte(u), "_meta", key, "data")
						}
					}
					t.Logf("%d updates, %d bytes, of an output of %d", updates, bytes, len(output))
					if key == "" && bytes > 6*len(output) {
						t.Error("that is too much")
					}
					if key != "" && told != output {
						t.Errorf("of %d bytes %d were told", len(output), len(told))
					}
				})
			})
		}
	}
}

// TestACPOutputStandsStill: the last words before a pause are told, though much was told before them.
func TestACPOutputStandsStill(t *testing.T) {
	playACP(t, acpEncoding{}, func(t *testing.T, r *acpRig) {
		r.item("started", `{"type":"commandExecution","id":"c","command":"make","status":"inProgress"}`)
		prints := func(text string) {
			r.note("item/commandExecution/outputDelta", `{"turnId":"t1","itemId":"c","delta":`+string(toJSON(text))+`}`)
		}
		for range 30 {
			prints(strings.Repeat("much of it\n", 100))
			time.Sleep(100 * time.Millisecond)
		}
		prints("Continue? [y/N] ")
		time.Sleep(acpQuiet + acpPace)
		last := ""
		for _, u := range r.all() {
			eachElement(rawField([]byte(u), "content"), func(block json.RawMessage) {
				last = stringField(block, "content", "text")
			})
		}
		if !strings.HasSuffix(last, "Continue? [y/N] \n```") {
			t.Errorf("%d bytes were told, at their end %q", len(last), last[max(0, len(last)-40):])
		}
	})
}

// TestACPTerminalOfAMegabyte: where Codex has left out the middle of an output, its own word on how much stays. Our
// limit once cut exactly that line away, and told of the 30 bytes of it as all that was missing.
func TestACPTerminalOfAMegabyte(t *testing.T) {
	half := strings.Repeat("y\n", 1<<18)
	whole := half + "... 940319 bytes omitted ...\n" + half
	if got := new(acpOutput).end("", whole, nil); got != whole {
		t.Errorf("%d bytes of %d, in their middle %q", len(got), len(whole), got[len(half)-10:len(half)+50])
	}
}

// TestACPTerminalNobodyReads: of what a client lets wait a terminal keeps both ends, and the exit comes all the same.
func TestACPTerminalNobodyReads(t *testing.T) {
	t.Parallel()
	playACP(t, acpEncoding{Client: &acpClient{terminal: "terminal_output"}}, func(t *testing.T, r *acpRig) {
		r.item("started", `{"type":"commandExecution","id":"c","command":"yes","status":"inProgress"}`)
		r.crowd(true)
		for i := range 1000 {
			r.note("item/commandExecution/outputDelta", `{"turnId":"t1","itemId":"c","delta":`+
				string(toJSON(fmt.Sprintf("%07d\n", i)+strings.Repeat("y\n", 2<<10)))+`}`)
			time.Sleep(time.Millisecond)
		}
		if n := len(r.news()); n != 2 { // its announcement, and that it runs
			t.Errorf("%d updates while nobody reads", n)
		}
		r.ends("interrupted")
		end := []byte(r.news()[0])
		data := stringField(end, "_meta", "terminal_output", "data")
		if len(data) > maxACPText || !strings.HasPrefix(data, "0000000\ny\n") ||
			!strings.Contains(data, "bytes left out") ||
			!strings.HasSuffix(data, "\ny\n[interrupted]\n") || rawField(end, "_meta", "terminal_exit") == nil {
			t.Errorf("%d bytes at the end, which begin %.40q", len(data), data)
		}
	})
}
