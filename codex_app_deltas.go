package main

// codex_app_deltas.go owns the reading of a delta that is like the one before it: the
// same record but for its text and the time at its end. In a burst thousands a second
// are, and comparing costs a fraction of parsing: with it an editor gets a burst at
// 0.64 of the child's own rate, without it at 0.43. The driver calls this file on the
// reading goroutine, for every record. It must never make another event of a record than
// codex_app_events.go does; a record that it isn't sure of is parsed.

import (
	"bytes"
	"unicode/utf8"
)

// maxDeltaRecord is how many bytes a record may have that the next ones are compared with.
const maxDeltaRecord = 64 << 10

// deltaRun knows the last delta that was parsed.
type deltaRun struct {
	rec  []byte // the record that same has just refused, for learn
	like event  // what was made of the last delta, without its text; its kind is evDelta once there is one
	head []byte // that delta's record up to the quote before its text
	tail []byte // the record from the quote behind the text, up to a number at its end
	num  int    // digits of that number (emittedAtMs of 0.169), 0: there is none
	at   int    // where the record's params begin
	back int    // how many bytes follow the params
}

// same makes the event of a record that is like the last. false: it isn't.
func (d *deltaRun) same(rec []byte) (e event, ok bool) {
	d.rec = nil
	if len(rec) > maxDeltaRecord { // nor is it kept until the next one comes
		return e, false
	}
	end := len(rec) - d.num - min(d.num, 1) // a brace follows the number
	from, to := len(d.head), end-len(d.tail)
	if d.like.kind != evDelta || to < from || !bytes.Equal(rec[:from], d.head) ||
		!bytes.Equal(rec[to:end], d.tail) || !isTime(rec[end:], d.num) {
		d.rec = rec
		return e, false
	}
	if stop, whole := scanString(rec, from-1); !whole || stop != to+1 || !utf8.Valid(rec[from:to]) {
		d.rec = rec
		return e, false
	}
	e = d.like
	e.raw, e.delta = rec[d.at:len(rec)-d.back:len(rec)-d.back], rec[from-1:to+1:to+1]
	e.text, _ = rawString(e.delta)
	return e, true
}

// isTime reports a number of n digits and the brace behind it, or with n 0
// nothing.
func isTime(b []byte, n int) bool {
	if n == 0 {
		return len(b) == 0
	}
	for _, c := range b[:n] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return b[0] != '0' && b[n] == '}'
}

// learn takes the event that was made of the record that same refused.
func (d *deltaRun) learn(e *event) {
	rec := d.rec
	if rec == nil || e.kind != evDelta || rawKind(e.delta) != '"' || !utf8.Valid(rec) {
		return
	}
	paramsAt, paramsEnd := fieldAt(rec, "params")
	from, to := fieldAt(rec[paramsAt:paramsEnd], "delta")
	from, to = paramsAt+from+1, paramsAt+to-1 // within the quotes
	if from > to || string(rec[paramsAt:paramsEnd]) != string(e.raw) {
		return
	}
	tail, num := rec[to:], 0
	if n := len(tail) - 1; tail[n] == '}' && paramsEnd < len(rec)-1 { // a number inside of params is no time
		for num < n && tail[n-1-num] >= '0' && tail[n-1-num] <= '9' {
			num++
		}
		if num > 0 && tail[n-1-num] == ':' {
			tail = tail[:n-num]
		} else {
			num = 0
		}
	}
	d.like, d.num, d.at, d.back = *e, num, paramsAt, len(rec)-paramsEnd
	d.like.text, d.like.raw, d.like.delta = "", nil, nil
	d.head, d.tail = append(d.head[:0], rec[:from]...), append(d.tail[:0], tail...)
}

// fieldAt is where an object's field has its value: of two of a name the last,
// as everywhere. Without one it is an empty place.
func fieldAt(obj []byte, key string) (from, to int) {
	for f := fieldsOf(obj); f.next(); {
		if string(f.key) == key {
			from, to = f.at, f.at+len(f.val)
		}
	}
	return from, to
}
