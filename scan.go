package main

// scan.go owns the reading of raw JSON without reflection: validity, the
// fields of an object, strings in and out. Every frame passes here, thousands
// a second, and most of each one is forwarded as it is. It is pure; peer.go,
// the drivers and the fronts call it. It must never accept what
// encoding/json.Valid refuses, or the other way round.

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

func scanString(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
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

// eachField calls f with every key (unquoted) and raw value of the object
// obj, in order, until f returns false. It returns errBadJSON when obj isn't
// an object. obj must be valid JSON where the values matter.
func eachField(obj []byte, f func(key string, val json.RawMessage) bool) error {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return errBadJSON
	}
	i = skipSpace(obj, i+1)
	for i < len(obj) && obj[i] == '"' {
		end, ok := scanString(obj, i)
		if !ok {
			return errBadJSON
		}
		key := obj[i:end]
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return errBadJSON
		}
		i = skipSpace(obj, i+1)
		if end, ok = scanValue(obj, i, 0); !ok {
			return errBadJSON
		}
		name := string(key[1 : len(key)-1])
		if bytes.IndexByte(key, '\\') >= 0 {
			name, _ = rawString(key)
		}
		if !f(name, json.RawMessage(obj[i:end:end])) {
			return nil
		}
		i = skipSpace(obj, end)
		if i < len(obj) && obj[i] == ',' {
			i = skipSpace(obj, i+1)
			continue
		}
		break
	}
	if i >= len(obj) || obj[i] != '}' {
		return errBadJSON
	}
	return nil
}

// rawField returns the raw value at a path of keys, nil if a step is missing
// or no object.
func rawField(obj json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		var found json.RawMessage
		_ = eachField(obj, func(key string, val json.RawMessage) bool {
			if key == name {
				found = val
			}
			return true // the last of two equal keys counts, as in encoding/json
		})
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

// rawString decodes a raw JSON string; false if raw is something else.
func rawString(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
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

// appendJSONString appends s as a JSON string, invalid UTF-8 replaced.
func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[from:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(append(dst, s[from:i]...), "\uFFFD"...)
			i++
			from = i
			continue
		}
		i += n
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
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("BUG: marshalling our own value: " + err.Error())
	}
	return json.RawMessage(bytes.TrimRight(buf.Bytes(), "\n"))
}
