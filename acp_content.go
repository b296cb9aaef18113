package main

// acp_content.go owns content blocks both ways. A prompt's blocks become text in one piece for Codex, with files and
// links wrapped so that nothing in them can be taken for the user's own words, and images as parts of their own;
// acp_prompt.go calls readPrompt. What an item brings becomes blocks that any client takes. A prompt's block that can't
// be passed on is refused with its number and what to do, never left out silently; no block goes out that the schema
// doesn't know, nor JSON that a strict parser refuses, nor more of a text than a client shows.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxACPText is how many bytes of text one tool call shows; a client's stream
	// takes 32 MiB a line, its user far less.
	maxACPText = 64 << 10
	// acpHalf of them are kept of each end, with room for the line between them.
	acpHalf = maxACPText/2 - 128
	// maxShownImage is how many bytes a file may have to be shown as an image: in base64 they are maxDiffs.
	maxShownImage = maxDiffs / 4 * 3
)

// resourceOpens begins whatever stands around a resource.
const resourceOpens = "[ACP_RESOURCE"

// acpBlock is one content block, read.
type acpBlock struct {
	text  string // of the user; "" for the others
	image *promptPart
	// A resource or a link.
	link  bool
	attrs []acpAttr
	body  string
}

type acpAttr struct{ name, value string }

// readPrompt reads the blocks of session/prompt. parts is nil where all is text.
func readPrompt(raw json.RawMessage) (text string, parts []promptPart, e *rpcError) {
	if rawKind(raw) != '[' {
		return "", nil, badKind("prompt", "an array of content blocks", raw)
	}
	var blocks []acpBlock
	eachElement(raw, func(el json.RawMessage) {
		if e != nil {
			return
		}
		b, why := readBlock(el)
		if why != "" {
			e = badParams("prompt[%d]%s", len(blocks), why)
		}
		blocks = append(blocks, b)
	})
	if e != nil {
		return "", nil, e
	}
	text, parts = joinBlocks(blocks)
	if strings.TrimSpace(text) == "" && parts == nil {
		return "", nil, badParams("prompt has nothing in it: send at least one block with text, a resource or an image")
	}
	return text, parts, nil
}

// readBlock reads one block. why is what is wrong with it, "" for nothing, as it goes on behind the block's number.
func readBlock(raw json.RawMessage) (b acpBlock, why string) {
	if rawKind(raw) != '{' {
		return b, " must be a content block, an object with a type, not " + kindWord(raw)
	}
	kind, why := blockText(raw, "type", true)
	if why != "" {
		return b, why
	}
	switch kind {
	case "text":
		b.text, why = blockText(raw, "text", true)
	case "image":
		b.image, why = readImage(raw)
	case "audio":
		why = " is audio, which Codex doesn't take: send it as text"
	case "resource_link":
		b.link = true
		for _, name := range []string{"uri", "name", "title", "description", "mimeType"} {
			must := name == "uri" || name == "name"
			text, why := blockText(raw, name, must)
			if why != "" {
				return b, why
			}
			if name == "mimeType" {
				name = "mime"
			}
			if text != "" || must {
				b.attrs = append(b.attrs, acpAttr{name, text})
			}
		}
		if size := rawField(raw, "size"); rawKind(size) == '0' {
			b.attrs = append(b.attrs, acpAttr{"size", string(size)})
		}
	case "resource":
		if b, why = readResource(rawField(raw, "resource")); why != "" {
			why = ".resource" + why
		}
	default:
		why = fmt.Sprintf(".type %q is none of text, image, resource_link, resource", shortName(kind))
	}
	return b, why
}

// blockText reads a string of a block; must: it can't be missing.
func blockText(raw json.RawMessage, name string, must bool) (text, why string) {
	val := rawField(raw, name)
	text, ok := rawString(val)
	if !ok && (must || !isNull(val)) {
		return "", fmt.Sprintf(".%s must be a string, not %s", name, kindWord(val))
	}
	return text, ""
}

// readResource reads what is embedded: text, or bytes that may be an image or text after all.
func readResource(raw json.RawMessage) (b acpBlock, why string) {
	if rawKind(raw) != '{' {
		return b, " must be an object with uri and text or blob, not " + kindWord(raw)
	}
	uri, why := blockText(raw, "uri", true)
	if why != "" {
		return b, why
	}
	mime, why := blockText(raw, "mimeType", false)
	if why != "" {
		return b, why
	}
	b.attrs = []acpAttr{{"uri", uri}}
	if mime != "" {
		b.attrs = append(b.attrs, acpAttr{"mime", mime})
	}
	if b.body, why = blockText(raw, "text", false); why != "" || !isNull(rawField(raw, "text")) {
		return b, why
	}
	blob, ok := rawString(rawField(raw, "blob"))
	if !ok {
		return b, " must have text or blob, a string"
	}
	data, err := base64.StdEncoding.DecodeString(blob)
	switch {
	case err != nil:
		return b, fmt.Sprintf(".blob is not valid base64: %v", err)
	case strings.HasPrefix(mime, "image/"):
		return acpBlock{image: &promptPart{kind: "image", url: "data:" + mime + ";base64," + blob}}, ""
	case utf8.Valid(data) && bytes.IndexByte(data, 0) < 0:
		b.body = string(data)
	default:
		b.body = fmt.Sprintf("(%d bytes that are no text: not shown here, open the uri)", len(data))
	}
	return b, ""
}

// readImage reads an image: its data, else where it is. why says what is wrong.
func readImage(raw json.RawMessage) (part *promptPart, why string) {
	var texts [3]string
	for i, name := range []string{"data", "mimeType", "uri"} {
		if texts[i], why = blockText(raw, name, false); why != "" {
			return nil, why
		}
	}
	data, mime, uri := texts[0], texts[1], texts[2]
	if data == "" {
		switch {
		case uri == "":
			return nil, ".data is missing: an image needs its bytes in base64, or a uri"
		case strings.HasPrefix(strings.ToLower(uri), "file:"):
			path, ok := pathOfURL(uri)
			if !ok {
				return nil, fmt.Sprintf(".uri %q is no path on this machine: send the image's data", shortName(uri))
			}
			return &promptPart{kind: "localImage", path: path}, ""
		case strings.HasPrefix(uri, "https:"), strings.HasPrefix(uri, "data:image/"):
			return &promptPart{kind: "image", url: uri}, ""
		}
		return nil, fmt.Sprintf(".uri %q is none of file:, https: and data: send the image's data", shortName(uri))
	}
	if !strings.HasPrefix(mime, "image/") || strings.ContainsAny(mime, ",; ") {
		return nil, fmt.Sprintf(".mimeType %q is none of an image, such as image/png", shortName(mime))
	}
	if image, err := base64.StdEncoding.DecodeString(data); err != nil || len(image) == 0 {
		return nil, ".data is not valid base64"
	}
	return &promptPart{kind: "image", url: "data:" + mime + ";base64," + data}, ""
}

// joinBlocks puts the blocks together. Text runs on as the user wrote it; what is
// wrapped stands in a paragraph of its own.
func joinBlocks(blocks []acpBlock) (text string, parts []promptPart) {
	marker := blockMarker(blocks)
	var run strings.Builder // text since the last image
	var texts []string
	wrapped := false
	flush := func() {
		if run.Len() > 0 {
			texts = append(texts, run.String())
			parts = append(parts, promptPart{kind: "text", text: run.String()})
			run.Reset()
		}
	}
	for _, b := range blocks {
		if b.image != nil {
			flush()
			parts = append(parts, *b.image)
			continue
		}
		words, wraps := b.text, b.attrs != nil
		if wraps {
			words = wrapResource(&b, marker)
		}
		if words == "" {
			continue
		}
		if (wraps || wrapped) && run.Len() > 0 {
			run.WriteString(gap(run.String()))
		}
		run.WriteString(words)
		wrapped = wraps
	}
	if parts == nil {
		return run.String(), nil
	}
	flush()
	return strings.Join(texts, "\n\n"), parts
}

// gap is what makes a paragraph of what follows.
func gap(s string) string {
	switch {
	case strings.HasSuffix(s, "\n\n"):
		return ""
	case strings.HasSuffix(s, "\n"):
		return "\n"
	}
	return "\n\n"
}

// wrapResource is a resource between lines that its text can't contain, since the marker in them stands nowhere else in
// the prompt. An attribute is a JSON string, so that it can't end its line.
func wrapResource(b *acpBlock, marker string) string {
	name := "ACP_RESOURCE"
	if b.link {
		name = "ACP_RESOURCE_LINK"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "[%s %s", name, marker)
	for _, a := range b.attrs {
		fmt.Fprintf(&out, " %s=%s", a.name, toJSON(a.value))
	}
	out.WriteString("]\n" + b.body)
	if b.body != "" && !strings.HasSuffix(b.body, "\n") {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "[/%s %s]", name, marker)
	return out.String()
}

// blockMarker is a word made of all that the prompt holds, and in none of it. The
// same prompt has the same, so that a model's cache is of use.
func blockMarker(blocks []acpBlock) string {
	sum := sha256.New()
	var texts []string
	for _, b := range blocks {
		texts = append(texts, b.text, b.body)
		for _, a := range b.attrs {
			texts = append(texts, a.value)
		}
	}
	for _, t := range texts {
		fmt.Fprintf(sum, "%d:", len(t))
		sum.Write([]byte(t))
	}
	for {
		marker := hex.EncodeToString(sum.Sum(nil)[:6])
		if !slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, marker) }) {
			return marker
		}
		sum.Write([]byte("again"))
	}
}

// toolBlocks turns what an MCP or dynamic tool answered into content: their blocks are the client's own, if they are
// what they say. hidden are those of which not all is shown.
func toolBlocks(list json.RawMessage) (out, hidden []json.RawMessage) {
	left, media := maxACPText, maxDiffs
	eachElement(list, func(part json.RawMessage) {
		block, whole := part, true
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
			if whole = len(s) <= left; !whole {
				s = cappedText(s)
			}
			if left -= len(s); left >= -maxACPText {
				block = acpTextBlock(s)
			} else {
				block = nil
			}
		case (kind == "image" || kind == "audio") && has("data", "mimeType"):
			block = toJSON(map[string]string{"type": kind, "data": stringField(part, "data"),
				"mimeType": stringField(part, "mimeType")})
		case kind == "inputImage" && has("imageUrl"):
			block = acpImageBlock(stringField(part, "imageUrl"))
		case kind == "resource_link" && has("name", "uri"):
			block = toJSON(map[string]string{"type": kind, "name": stringField(part, "name"),
				"uri": stringField(part, "uri")})
		case kind == "resource" && rawKind(rawField(part, "resource", "uri")) == '"':
			res := map[string]string{"uri": stringField(part, "resource", "uri")}
			for _, k := range []string{"text", "blob", "mimeType"} {
				if v, ok := rawString(rawField(part, "resource", k)); ok {
					res[k] = v
				}
			}
			block = toJSON(map[string]any{"type": kind, "resource": res})
			if _, ok := res["text"]; !ok && res["blob"] == "" {
				block = nil
			}
		default:
			block = nil
		}
		if !whole || block == nil || media < len(block) {
			hidden = append(hidden, part)
		}
		switch {
		case block == nil:
			return
		case media < len(block):
			block = acpTextBlock(fmt.Sprintf("[%s of %d bytes left out]", stringField(part, "type"), len(part)))
		}
		media -= len(block)
		out = append(out, contentOf(block))
	})
	return out, hidden
}

// acpImageBlock is an image as ACP has it: the bytes of a data URL, else a link.
func acpImageBlock(address string) json.RawMessage {
	if head, data, ok := strings.Cut(address, ";base64,"); ok && strings.HasPrefix(head, "data:") {
		mime, _, _ := strings.Cut(strings.TrimPrefix(head, "data:"), ";")
		return toJSON(map[string]string{"type": "image", "data": data, "mimeType": cmp.Or(mime, "image/png")})
	}
	return acpLinkBlock(address)
}

// imageType is the MIME type of an image by its first bytes, "" for what is none of those that any client shows.
func imageType(data []byte) string {
	if len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "image/webp"
	}
	for begins, kind := range map[string]string{"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff": "image/jpeg",
		"GIF8": "image/gif"} {
		if bytes.HasPrefix(data, []byte(begins)) {
			return kind
		}
	}
	return ""
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

// fenced makes a code block of output: clients render a text block as Markdown, which would join its lines and eat its
// stars. The fence is longer than any in the text, so that nothing in it can end the block.
func fenced(s string) string {
	fence, waves := "```", "~~~"
	for strings.Contains(s, fence) {
		fence += fence // few steps, however long a run of them the text has
	}
	for strings.Contains(s, waves) {
		waves += waves
	}
	if len(waves) < len(fence) {
		fence = waves
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return fence + "\n" + s + fence
}

// clientJSON makes any JSON fit for every client's parser: some refuse half of
// a surrogate pair. What is too long is told by its beginning.
func clientJSON(raw json.RawMessage) json.RawMessage {
	switch {
	case isNull(raw):
		return nil
	case len(raw) > maxACPText:
		return toJSON(map[string]any{"truncated": true, "bytes": len(raw), "start": clipUTF8(string(raw), 4<<10)})
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
