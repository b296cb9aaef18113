package main

// wire_frame_test.go holds the framing of records: both kinds and their detection, the
// size limit, and that a stream goes on behind whatever was too long or no frame.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
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
	for _, c := range []struct{ name, in, want string }{
		{"lines", "{\"a\":1}\n[2]\n", `{"a":1}|[2]`},
		{"last line without end", "{}\n{1}", `{}|{1}`},
		{"CRLF", "{}\r\n{1}\r\n", `{}|{1}`},
		{"blank lines", "\n\r\n  \n{}\n\n\n[]\n", `{}|[]`},
		{"BOM before a line", "\xef\xbb\xbf{}\n", `{}`},
		{"BOM before a header", "\xef\xbb\xbfContent-Length: 2\r\n\r\n{}", `{}`},
		{"garbage is a line", "hello there\n{}\n", `hello there|{}`},
		{"a JSON word isn't a header", "true\n{}\n", `true|{}`},
		{"frames", "Content-Length: 7\r\n\r\n{\"a\":1}Content-Length: 2\r\n\r\n[]", `{"a":1}|[]`},
		{"header names in any case", "cOnTeNt-LeNgTh:2\r\nContent-Type: x\r\n\r\n{}", `{}`},
		{"other header first", "X-A: y\r\nCONTENT-LENGTH : 2\r\n\r\n{}", `{}`},
		{"bare newlines in headers", "Content-Length: 2\n\n{}Content-Length: 2\n\n[]", `{}|[]`},
		{"newlines in a body", "Content-Length: 5\r\n\r\n{\n\n\n}\n\n", "{\n\n\n}"},
		{"blank lines between frames", "Content-Length: 2\r\n\r\n{}\r\n\r\nContent-Length: 2\r\n\r\n[]", `{}|[]`},
		{"a length that is none", "Content-Length: two\r\n\r\nContent-Length: 2\r\n\r\n{}", `<bad header>|{}`},
		{"a negative length", "Content-Length: -2\r\n\r\nContent-Length: 2\r\n\r\n{}", `<bad header>|{}`},
		{"two lengths that differ", "Content-Length: 2\r\nContent-Length: 3\r\n\r\nContent-Length: 2\r\n\r\n{}", `<bad header>|{}`},
		{"no length at all", "Content-Type: x\r\n\r\nContent-Length: 2\r\n\r\n{}", `<bad header>|{}`},
		{"a cut body", "Content-Length: 9\r\n\r\n{}", `<unexpected EOF>`},
		{"a cut header", "Content-Length: 9\r\n", `<unexpected EOF>`},
		{"a line over the limit", strings.Repeat("x", 21) + "\n{}\n", `<too long>|{}`},
		{"a line at the limit", strings.Repeat("x", 20) + "\r\n{}\n", strings.Repeat("x", 20) + `|{}`},
		{"a frame over the limit", "Content-Length: 21\r\n\r\n" + strings.Repeat("x", 21) + "Content-Length: 2\r\n\r\n{}", `<too long>|{}`},
		{"a last line over the limit", strings.Repeat("x", 50), `<too long>`},
	} {
		for _, slow := range []bool{false, true} {
			var r io.Reader = strings.NewReader(c.in)
			if slow {
				r = iotest.OneByteReader(r)
			}
			if got := strings.Join(readAll(newFrameReader(r, 20, framingUnknown)), "|"); got != c.want {
				t.Errorf("%s (byte by byte: %v): got %q, want %q", c.name, slow, got, c.want)
			}
		}
	}
}

// A line longer than the buffer must be skipped without being held.
func TestLongLineIsSkippedAndTheStreamGoesOn(t *testing.T) {
	long := io.MultiReader(io.LimitReader(endless('x'), 5<<20), strings.NewReader("\n{\"after\":1}\n"))
	if got := strings.Join(readAll(newFrameReader(long, 1<<20, framingNewline)), "|"); got != `<too long>|{"after":1}` {
		t.Fatal(got)
	}
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
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
		if bytes.ContainsAny(in, "\n\r") || len(bytes.TrimSpace(in)) == 0 || len(in) > 60 || bytes.HasPrefix(in, []byte("\xef\xbb\xbf")) {
			return
		}
		mode := framingNewline
		if header {
			mode = framingHeader
		}
		rec := bytes.TrimSpace(in)
		got := readAll(newFrameReader(bytes.NewReader(appendFrame(nil, rec, mode)), 64, mode))
		if len(got) != 1 || got[0] != string(rec) {
			t.Fatalf("wrote %q, read %q", rec, got)
		}
	})
}
