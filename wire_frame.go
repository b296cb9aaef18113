package main

// wire_frame.go owns byte records on a stream: newline-delimited JSON and Content-Length frames, told apart by the
// stream's first bytes, with one size limit. It is pure over io: it knows nothing of JSON-RPC. The peer calls it from
// exactly one reading and one writing goroutine. It must never let one bad or oversized record end the stream.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// maxRecord is the largest record in bytes that is read from either side.
const maxRecord = 64 << 20

// framing is how records are told apart on a stream.
type framing int

const (
	framingUnknown framing = iota // nothing read yet; written as newline
	framingNewline                // one JSON text a line
	framingHeader                 // Content-Length: N, blank line, N bytes
)

// recordTooLong is returned by read for a record over the limit. The record
// has been skipped and the next read goes on behind it.
type recordTooLong struct {
	limit int
	head  []byte // how the record begins
}

func (e *recordTooLong) Error() string {
	return fmt.Sprintf("record is longer than the limit of %d bytes (%d MiB)", e.limit, e.limit>>20)
}

// errBadHeader is returned by read for a header block without a usable
// Content-Length. Reading goes on at the next block that has one.
var errBadHeader = errors.New("frame header has no valid Content-Length")

// frameReader cuts a stream into records.
type frameReader struct {
	r     *bufio.Reader
	limit int          // bytes of the largest record that is read
	mode  atomic.Int32 // the framing; the reading goroutine changes it, once
	begun bool         // the stream's first bytes were looked at
	slab  []byte       // room for the next short records
}

// Records up to slabRecord are cut from slabs: thousands of deltas a second
// would each be an allocation. A record that is kept keeps its slab.
const (
	slabSize   = 16 << 10
	slabRecord = 2 << 10
)

// newFrameReader reads records of at most limit bytes. With mode framingUnknown the stream's first bytes decide; the
// child side passes framingNewline, the only framing Codex speaks (FR-1.2).
func newFrameReader(r io.Reader, limit int, mode framing) *frameReader {
	f := &frameReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
	f.mode.Store(int32(mode))
	return f
}

// seen is the framing the stream turned out to have. Any goroutine may ask.
func (f *frameReader) seen() framing { return framing(f.mode.Load()) }

// drained reports that the next read will ask the stream.
func (f *frameReader) drained() bool { return f.r.Buffered() == 0 }

// read returns the next record without its framing; the slice belongs to the caller. Besides io errors it returns
// *recordTooLong and errBadHeader, after both of which reading can go on.
func (f *frameReader) read() ([]byte, error) {
	if !f.begun {
		f.begun = true
		if b, _ := f.r.Peek(3); bytes.Equal(b, []byte("\xef\xbb\xbf")) {
			_, _ = f.r.Discard(3)
		}
	}
	for {
		if f.seen() == framingHeader {
			return f.readHeaderFrame()
		}
		line, err := f.readLine(f.limit)
		if err != nil {
			return nil, err
		}
		rec := bytes.TrimSpace(line)
		if len(rec) == 0 {
			continue // blank lines separate records and mean nothing
		}
		if f.seen() == framingUnknown {
			if headerLine.Match(rec) {
				f.mode.Store(int32(framingHeader))
				return f.readHeaderFrom(string(rec))
			}
			f.mode.Store(int32(framingNewline))
		}
		return rec, nil
	}
}

// headerLine tells a header line from JSON: a JSON text never begins with a bare word and a colon.
var headerLine = regexp.MustCompile(`^[A-Za-z-]+[ \t]*:`)

// readLine reads up to and without the next newline. A last line without one counts. Past limit the rest of the line is
// skipped, holding no more than the buffer in memory.
func (f *frameReader) readLine(limit int) ([]byte, error) {
	var line []byte
	var long *recordTooLong
	for {
		part, err := f.r.ReadSlice('\n')
		switch {
		case long != nil:
		case len(line)+len(part) > limit+2: // the line end doesn't count
			if line == nil {
				line = part
			}
			long, line = newTooLong(limit, line), nil
		case line == nil:
			line = f.keep(part)
		default:
			line = append(line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && (len(line) > 0 || long != nil):
		case err != nil:
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if long == nil && len(line) > limit {
			long = newTooLong(limit, line)
		}
		if long != nil {
			return nil, long
		}
		return line, nil
	}
}

// newTooLong keeps how a record begins that is let go: its id may tell who sent it.
func newTooLong(limit int, line []byte) *recordTooLong {
	const most = 256
	return &recordTooLong{limit, bytes.Clone(line[:min(most, len(line))])}
}

// keep copies a part of the buffer.
func (f *frameReader) keep(part []byte) []byte {
	if len(part) > slabRecord {
		return bytes.Clone(part)
	}
	if len(part) > cap(f.slab)-len(f.slab) {
		f.slab = make([]byte, 0, slabSize)
	}
	from := len(f.slab)
	f.slab = append(f.slab, part...)
	return f.slab[from:len(f.slab):len(f.slab)]
}

func (f *frameReader) readHeaderFrame() ([]byte, error) {
	for {
		line, err := f.readLine(64 << 10)
		if err != nil {
			var long *recordTooLong
			if errors.As(err, &long) {
				return nil, errBadHeader
			}
			return nil, err
		}
		if s := strings.TrimSpace(string(line)); s != "" {
			return f.readHeaderFrom(s)
		}
	}
}

// readHeaderFrom reads the rest of a header block whose first line is first, then the body.
func (f *frameReader) readHeaderFrom(first string) ([]byte, error) {
	length, seen, bad := 0, false, false
	for line := first; line != ""; {
		name, value, ok := strings.Cut(line, ":")
		if strings.EqualFold(strings.TrimSpace(name), "content-length") && ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil || n < 0 || n > 1<<50 || (seen && int(n) != length) {
				bad = true
			}
			length, seen = int(n), true
		}
		next, err := f.readLine(64 << 10)
		if err != nil {
			if err == io.EOF {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, errBadHeader
		}
		line = strings.TrimSpace(string(next))
	}
	if !seen || bad {
		return nil, errBadHeader
	}
	if length > f.limit {
		if _, err := io.CopyN(io.Discard, f.r, int64(length)); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, &recordTooLong{limit: f.limit}
	}
	// Grow with what arrives: a header alone must not cost 64 MiB.
	var body bytes.Buffer
	if _, err := io.CopyN(&body, f.r, int64(length)); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return bytes.TrimSpace(bytes.TrimPrefix(body.Bytes(), []byte("\xef\xbb\xbf"))), nil
}

// appendFrame adds rec, framed, to dst. rec must hold no raw newline when the
// framing is newline; everything we marshal is on one line.
func appendFrame(dst, rec []byte, mode framing) []byte {
	if mode == framingHeader {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(rec)), 10)
		dst = append(dst, "\r\n\r\n"...)
		return append(dst, rec...)
	}
	dst = append(dst, rec...)
	return append(dst, '\n')
}
