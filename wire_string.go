package main

// wire_string.go owns JSON strings: finding their end, decoding them, writing
// them. Most bytes that pass through here are a string's, so it looks at eight
// at a time and leaves encoding/json, several times slower, what is rare. It is
// pure; wire_scan.go and everybody who reads or builds raw JSON call it. It must
// read what encoding/json reads, which FuzzScan holds it to.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	_ "embed"
	"fmt"
	"unicode"
)

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
// in a string: a quote, a backslash or a control character. It looks at eight
// bytes at a time: strings are most of what comes.
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

// rawString decodes a raw JSON string; false if raw is something else.
func rawString(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if end, ok := scanString(raw, 0); !ok || end != len(raw) {
		return "", false
	}
	if !utf8.Valid(inner) {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	return unescaped(inner), true
}

// rawStringLike is rawString for a value that is likely to be like: then it is
// that string and costs no memory.
func rawStringLike(raw []byte, like string) (string, bool) {
	if len(raw) == len(like)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == like && bytes.IndexByte(raw, '\\') < 0 {
		return like, true
	}
	return rawString(raw)
}

// unescaped decodes the inside of a string that was scanned, as encoding/json
// does: half of a surrogate pair becomes U+FFFD.
func unescaped(in []byte) string {
	var out strings.Builder
	out.Grow(len(in))
	for len(in) > 0 {
		i := bytes.IndexByte(in, '\\')
		if i < 0 || i+1 >= len(in) {
			out.Write(in)
			break
		}
		out.Write(in[:i])
		c := in[i+1]
		in = in[i+2:]
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
		case 'u':
			r := hexRune(in)
			in = in[min(4, len(in)):]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(in) >= 6 && in[0] == '\\' && in[1] == 'u' {
					pair = utf16.DecodeRune(r, hexRune(in[2:]))
				}
				if r = pair; r != utf8.RuneError {
					in = in[6:]
				}
			}
			out.WriteRune(r)
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}

// hexRune reads the four digits of a \u.
func hexRune(in []byte) rune {
	if len(in) < 4 {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(in[:4]), 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
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

// quoteFact is a JSON string on one line, in which nothing can look like a tag, a line's end or another character than
// it is; null for nil (FR-2.4).
func quoteFact(s *string) string {
	if s == nil {
		return "null"
	}
	text, err := json.Marshal(*s)
	if err != nil {
		return "null" // a string can always be marshalled
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case high != utf8.RuneError:
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
