package main

// wire_scan.go owns the reading of raw JSON without reflection: validity, the
// fields of an object, the elements of an array; wire_string.go has the strings.
// Every frame passes here, thousands a second, and most of each one is
// forwarded as it is. It is pure; wire_peer.go, the drivers and the fronts call it.
// It must never accept what encoding/json.Valid refuses, or the other way round.

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest, as in encoding/json.
const maxDepth = 10000

var errBadJSON = errors.New("not valid JSON")

// validJSON reports whether b is exactly one JSON text in valid UTF-8.
func validJSON(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	i := skipSpace(b, 0)
	end, ok := scanValue(b, i, 0)
	return ok && skipSpace(b, end) == len(b)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// scanValue returns the index behind the value that begins at i.
func scanValue(b []byte, i, depth int) (int, bool) {
	if i >= len(b) || depth > maxDepth {
		return i, false
	}
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '{':
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			return i + 1, true
		}
		for {
			var ok bool
			if i >= len(b) || b[i] != '"' {
				return i, false
			}
			if i, ok = scanString(b, i); !ok {
				return i, false
			}
			i = skipSpace(b, i)
			if i >= len(b) || b[i] != ':' {
				return i, false
			}
			if i, ok = scanValue(b, skipSpace(b, i+1), depth+1); !ok {
				return i, false
			}
			i = skipSpace(b, i)
			if i < len(b) && b[i] == '}' {
				return i + 1, true
			}
			if i >= len(b) || b[i] != ',' {
				return i, false
			}
			i = skipSpace(b, i+1)
		}
	case c == '[':
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == ']' {
			return i + 1, true
		}
		for {
			var ok bool
			if i, ok = scanValue(b, i, depth+1); !ok {
				return i, false
			}
			i = skipSpace(b, i)
			if i < len(b) && b[i] == ']' {
				return i + 1, true
			}
			if i >= len(b) || b[i] != ',' {
				return i, false
			}
			i = skipSpace(b, i+1)
		}
	case c == 't':
		return scanWord(b, i, "true")
	case c == 'f':
		return scanWord(b, i, "false")
	case c == 'n':
		return scanWord(b, i, "null")
	case c == '-' || c >= '0' && c <= '9':
		return scanNumber(b, i)
	}
	return i, false
}

func scanWord(b []byte, i int, w string) (int, bool) {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return i, false
	}
	return i + len(w), true
}

func scanNumber(b []byte, i int) (int, bool) {
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}

// fields walks over the fields of an object. The zero value is done.
type fields struct {
	b        []byte
	i        int
	key, val []byte // decoded, and raw
	at       int    // where val begins in the object
	bad      bool   // b is no object, or not whole
}

// fieldsOf begins to walk over obj, which must be valid JSON where the values
// matter.
func fieldsOf(obj []byte) fields {
	f := fields{b: obj, i: skipSpace(obj, 0)}
	if f.i >= len(obj) || obj[f.i] != '{' {
		f.bad = true
		return f
	}
	f.i = skipSpace(obj, f.i+1)
	if f.i < len(obj) && obj[f.i] == '}' {
		f.b = nil
	}
	return f
}

// next goes to the next field. false: there is none, or f.bad.
func (f *fields) next() bool {
	b, i := f.b, f.i
	if f.bad || b == nil {
		return false
	}
	f.bad = true
	if i >= len(b) || b[i] != '"' {
		return false
	}
	end, ok := scanString(b, i)
	if !ok {
		return false
	}
	if f.key = b[i+1 : end-1]; bytes.IndexByte(f.key, '\\') >= 0 {
		f.key = []byte(unescaped(f.key))
	}
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return false
	}
	i = skipSpace(b, i+1)
	if end, ok = scanValue(b, i, 0); !ok {
		return false
	}
	f.val, f.at = b[i:end:end], i
	i = skipSpace(b, end)
	switch {
	case i < len(b) && b[i] == ',':
		f.i, f.bad = skipSpace(b, i+1), false
	case i < len(b) && b[i] == '}':
		f.b, f.bad = nil, false
	}
	return true
}

// eachField calls f with every key (unquoted) and raw value of the object
// obj, in order, until f returns false. It returns errBadJSON when obj isn't
// an object. obj must be valid JSON where the values matter.
func eachField(obj []byte, f func(key string, val json.RawMessage) bool) error {
	w := fieldsOf(obj)
	for w.next() {
		if !f(string(w.key), w.val) {
			return nil
		}
	}
	if w.bad {
		return errBadJSON
	}
	return nil
}

// eachElement calls f with every element of a raw array.
func eachElement(arr json.RawMessage, f func(json.RawMessage)) {
	i := skipSpace(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return
	}
	for i = skipSpace(arr, i+1); i < len(arr) && arr[i] != ']'; i = skipSpace(arr, i) {
		end, ok := scanValue(arr, i, 0)
		if !ok {
			return
		}
		f(json.RawMessage(arr[i:end:end]))
		if i = skipSpace(arr, end); i < len(arr) && arr[i] == ',' {
			i++
		}
	}
}

// rawField returns the raw value at a path of keys, nil if a step is missing
// or no object.
func rawField(obj json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		var found json.RawMessage
		for f := fieldsOf(obj); f.next(); { // the last of two equal keys counts, as in encoding/json
			if string(f.key) == name {
				found = f.val
			}
		}
		if found == nil {
			return nil
		}
		obj = found
	}
	return obj
}

// stringField returns the string at path, "" where there is none.
func stringField(obj json.RawMessage, path ...string) string {
	s, _ := rawString(rawField(obj, path...))
	return s
}

// rawKind returns the first byte of a raw value: '{', '[', '"', 't', 'f',
// 'n', '0' for any number, and 0 for nothing.
func rawKind(raw []byte) byte {
	i := skipSpace(raw, 0)
	if i >= len(raw) {
		return 0
	}
	if c := raw[i]; c == '-' || c >= '0' && c <= '9' {
		return '0'
	}
	return raw[i]
}

// isNull reports an absent or null value.
func isNull(raw []byte) bool { k := rawKind(raw); return k == 0 || k == 'n' }

// toJSON marshals what we built ourselves, on one line, without HTML escapes.
// A value that can't be marshalled is a broken invariant.
func toJSON(v any) json.RawMessage {
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	if s, ok := v.(string); ok {
		return appendJSONString(make([]byte, 0, len(s)+len(s)/8+2), s)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("BUG: marshalling our own value: " + err.Error())
	}
	return json.RawMessage(bytes.TrimRight(buf.Bytes(), "\n"))
}
