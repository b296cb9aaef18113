package main

// wire_json.go owns the reading and writing of raw JSON without reflection: validity, the fields of an object, the
// elements of an array, strings. Every frame passes here, thousands a second, and most of each one is forwarded as it
// is; most of its bytes are a string's, so strings are looked at eight bytes at a time, and what is rare is left to
// encoding/json, which is several times slower. It is pure; the peer, the drivers, the fronts and whoever builds raw
// JSON call it. It must never accept what encoding/json refuses nor read anything else in it, or the other way round:
// FuzzScan holds it to that.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strings"
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

// blankMark puts blanks in the place of a byte order mark, which editors and shells of Windows begin a file with.
func blankMark(b []byte) []byte {
	if bytes.HasPrefix(b, []byte("\ufeff")) {
		copy(b, "   ")
	}
	return b
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
	case c == '{' || c == '[':
		end := c + 2 // } or ]
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == end {
			return i + 1, true
		}
		for ok := true; ; i = skipSpace(b, i+1) {
			if c == '{' {
				if _, i, ok = scanKey(b, i); !ok {
					return i, false
				}
			}
			if i, ok = scanValue(b, i, depth+1); !ok {
				return i, false
			}
			i = skipSpace(b, i)
			if i < len(b) && b[i] == end {
				return i + 1, true
			}
			if i >= len(b) || b[i] != ',' {
				return i, false
			}
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

// scanKey returns the index behind the key that begins at i, and that of the key's value.
func scanKey(b []byte, i int) (end, at int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return i, i, false
	}
	end, ok = scanString(b, i)
	if at = skipSpace(b, end); !ok || at >= len(b) || b[at] != ':' {
		return end, at, false
	}
	return end, skipSpace(b, at+1), true
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

// scanString is scanValue for the string that begins at i.
func scanString(b []byte, i int) (int, bool) {
	for i = plainTo(b, i+1); i < len(b); i = plainTo(b, i+1) {
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < 0x20:
			return i, false
		case c == '\\':
			i++
			if i >= len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(b)-i < 5 {
					return i, false
				}
				for _, h := range b[i+1 : i+5] {
					if !(h >= '0' && h <= '9' || h >= 'a' && h <= 'f' || h >= 'A' && h <= 'F') {
						return i, false
					}
				}
				i += 4
			default:
				return i, false
			}
		}
	}
	return i, false
}

// plainTo returns the index from i on of the first byte that means something
// in a string: a quote, a backslash or a control character.
func plainTo(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// special has a bit set in the lowest byte of x that is a quote, a backslash
// or a control character; what stands above that is not exact.
func special(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^ones*'"', x^ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*0x20)&^x) & tops
}

// fields walks over the fields of an object: key and val are those of the field that next has come to. The zero value
// has none.
type fields struct {
	b   []byte // the object, nil behind its last field
	i   int    // where in b the next key begins
	key []byte // decoded
	val []byte // raw
	at  int    // where val begins in the object
	bad bool   // what was to be walked over is no object, or not whole
}

// fieldsOf begins to walk over obj, which must be valid JSON where the values matter.
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
	b := f.b
	if f.bad || b == nil {
		return false
	}
	f.bad = true
	nameEnd, at, ok := scanKey(b, f.i)
	if !ok {
		return false
	}
	end, ok := scanValue(b, at, 0)
	if !ok {
		return false
	}
	name := b[f.i:nameEnd]
	if f.key = name[1 : len(name)-1]; bytes.IndexByte(f.key, '\\') >= 0 {
		key, _ := rawString(name)
		f.key = []byte(key)
	}
	f.val, f.at = b[at:end:end], at
	i := skipSpace(b, end)
	switch {
	case i < len(b) && b[i] == ',':
		f.i, f.bad = skipSpace(b, i+1), false
	case i < len(b) && b[i] == '}':
		f.b, f.bad = nil, false
	}
	return true
}

// eachField calls f with every key (unquoted) and raw value of the object obj, in order, until f returns false. It
// returns errBadJSON when obj isn't an object. obj must be valid JSON where the values matter.
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

// mapFields is the object obj with its fields as f has them, in their order. What is no object stays as it is.
func mapFields(obj []byte, f func(key string, val json.RawMessage) (string, json.RawMessage)) json.RawMessage {
	out := make([]byte, 0, len(obj)+64)
	w := fieldsOf(obj)
	for w.next() {
		if len(out) > 0 {
			out = append(out, ',')
		}
		key, val := f(string(w.key), w.val)
		out = append(append(appendJSONString(out, key), ':'), val...)
	}
	if w.bad {
		return obj
	}
	return append(append([]byte{'{'}, out...), '}')
}

// plainKeys is a value with all its objects' keys without underscores: encoding/json, which takes keys in any case,
// then reads limit_id and limitId into the same field.
func plainKeys(v json.RawMessage) json.RawMessage {
	return mapFields(v, func(key string, val json.RawMessage) (string, json.RawMessage) {
		return strings.ReplaceAll(key, "_", ""), plainKeys(val)
	})
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

// rawStrings are the elements of a raw array as strings, "" for what is none.
func rawStrings(arr json.RawMessage) (out []string) {
	eachElement(arr, func(raw json.RawMessage) {
		s, _ := rawString(raw)
		out = append(out, s)
	})
	return out
}

// rawField returns the raw value at a path of keys, nil if a step is missing or no object.
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

// rawKind returns the first byte of a raw value: '{', '[', '"', 't', 'f', 'n', '0' for any number, and 0 for nothing.
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

// rawString decodes a raw JSON string; false if raw is something else.
func rawString(raw []byte) (string, bool) {
	if end, ok := scanString(raw, 0); len(raw) == 0 || raw[0] != '"' || !ok || end != len(raw) {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	switch {
	case !utf8.Valid(inner) || bytes.Contains(inner, []byte(`\u`)):
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case bytes.IndexByte(inner, '\\') < 0:
		return string(inner), true
	}
	var out strings.Builder
	out.Grow(len(inner))
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			out.Write(inner)
			return out.String(), true
		}
		out.Write(inner[:i])
		c := inner[i+1]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		}
		out.WriteByte(c)
		inner = inner[i+2:]
	}
}

// rawStringLike is rawString for a value that is likely to be like: then it is that string and costs no memory.
func rawStringLike(raw []byte, like string) (string, bool) {
	if len(raw) == len(like)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == like && bytes.IndexByte(raw, '\\') < 0 {
		return like, true
	}
	return rawString(raw)
}

// appendJSONString appends s as a JSON string, invalid UTF-8 replaced.
func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		if i+8 <= len(s) {
			x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
				uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56 // one load
			if x&0x8080808080808080 == 0 && special(x) == 0 {
				i += 8
				continue
			}
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		} else if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		i++
		from = i
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			if c >= utf8.RuneSelf {
				dst = append(dst, "\uFFFD"...)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

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

// deref is what a pointer points to, zero for nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
