package main

// acp_blocks.go owns the content blocks that tool calls and messages are made of,
// and what makes foreign text and JSON fit for any client. acp_item.go,
// acp_tool.go and acp_messages.go call it. It must never pass on a block that the
// schema doesn't know, nor JSON that a strict parser refuses.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// toolBlocks turns what an MCP or dynamic tool answered into content: their
// blocks are the client's own, if they are what they say.
func toolBlocks(list json.RawMessage) (out []json.RawMessage) {
	left, media := maxACPText, maxDiffs
	eachElement(list, func(part json.RawMessage) {
		block := part
		has := func(keys ...string) bool {
			for _, k := range keys {
				if rawKind(rawField(part, k)) != '"' {
					return false
				}
			}
			return true
		}
		switch kind := stringField(part, "type"); {
		case (kind == "text" || kind == "inputText") && has("text"):
			s := stringField(part, "text")
			if len(s) > left {
				s = cappedText(s)
			}
			if left -= len(s); left < -maxACPText {
				return
			}
			block = acpTextBlock(s)
		case (kind == "image" || kind == "audio") && has("data", "mimeType"):
			block = toJSON(map[string]string{"type": kind, "data": stringField(part, "data"), "mimeType": stringField(part, "mimeType")})
		case kind == "inputImage" && has("imageUrl"):
			block = acpImageBlock(stringField(part, "imageUrl"))
		case kind == "resource_link" && has("name", "uri"):
			block = toJSON(map[string]string{"type": kind, "name": stringField(part, "name"), "uri": stringField(part, "uri")})
		case kind == "resource" && rawKind(rawField(part, "resource", "uri")) == '"':
			res := map[string]string{"uri": stringField(part, "resource", "uri")}
			for _, k := range []string{"text", "blob", "mimeType"} {
				if v, ok := rawString(rawField(part, "resource", k)); ok {
					res[k] = v
				}
			}
			if _, ok := res["text"]; !ok && res["blob"] == "" {
				return
			}
			block = toJSON(map[string]any{"type": kind, "resource": res})
		default:
			return // in the raw output
		}
		if media < len(block) {
			block = acpTextBlock(fmt.Sprintf("[%s of %d bytes left out]", stringField(part, "type"), len(part)))
		}
		media -= len(block)
		out = append(out, contentOf(block))
	})
	return out
}

// acpImageBlock is an image as ACP has it: the bytes of a data URL, else a link.
func acpImageBlock(address string) json.RawMessage {
	if head, data, ok := strings.Cut(address, ";base64,"); ok && strings.HasPrefix(head, "data:") {
		mime, _, _ := strings.Cut(strings.TrimPrefix(head, "data:"), ";")
		return toJSON(map[string]string{"type": "image", "data": data, "mimeType": cmp.Or(mime, "image/png")})
	}
	return acpLinkBlock(address)
}

func acpLinkBlock(address string) json.RawMessage {
	name := address
	if u, err := url.Parse(address); err == nil && path.Base(u.Path) != "/" && path.Base(u.Path) != "." {
		name = path.Base(u.Path)
	}
	return toJSON(map[string]string{"type": "resource_link", "name": clipChars(name, 200), "uri": address})
}

func acpFileURL(file string) string {
	file = filepath.ToSlash(file)
	return (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(file, "/")}).String() // C:/a too
}

func acpTextBlock(s string) json.RawMessage {
	b := appendJSONString(append(make([]byte, 0, len(s)+len(s)/8+64), `{"type":"text","text":`...), s)
	return append(b, '}')
}

// contentOf makes a block content of a tool call.
func contentOf(block json.RawMessage) json.RawMessage {
	b := append(make([]byte, 0, len(block)+64), `{"type":"content","content":`...)
	return append(append(b, block...), '}')
}

func callText(s string) json.RawMessage { return contentOf(acpTextBlock(s)) }

// fenced makes a code block of output: clients render a text block as Markdown,
// which would join its lines and eat its stars. The fence is longer than any in
// the text, so that nothing in it can end the block.
func fenced(s string) string {
	ticks, waves := longestRun(s, '`'), longestRun(s, '~')
	fence := strings.Repeat("`", max(3, ticks+1))
	if ticks > 2 && waves < ticks {
		fence = strings.Repeat("~", max(3, waves+1))
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return fence + "\n" + s + fence
}

func longestRun(s string, c byte) (longest int) {
	for run, i := 0, 0; i < len(s); i++ {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// clientJSON makes any JSON fit for every client's parser: some refuse half of
// a surrogate pair. What is too long is told by its beginning.
func clientJSON(raw json.RawMessage) json.RawMessage {
	switch {
	case isNull(raw):
		return nil
	case len(raw) > maxACPText:
		return toJSON(struct {
			Truncated bool   `json:"truncated"`
			Bytes     int    `json:"bytes"`
			Start     string `json:"start"`
		}{true, len(raw), clipUTF8(string(raw), 4<<10)})
	case cleanJSON(raw) && json.Valid(raw):
		return raw
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return toJSON(string(raw))
	}
	return toJSON(v)
}

// cleanJSON reports raw JSON, or the inside of a string, that needs no second
// look: valid UTF-8 without escaped surrogates. A pair is one too; it is rare.
func cleanJSON(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for i := 0; ; i += 2 {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 || i+next+1 >= len(raw) {
			return true
		}
		i += next
		if raw[i+1] == 'u' && i+3 < len(raw) && raw[i+2]|0x20 == 'd' && raw[i+3] >= '8' {
			return false
		}
	}
}
