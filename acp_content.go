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
	r := acpBlockReader{raw: raw}
	switch kind := r.text("type", true); kind {
	case "text":
		b.text = r.text("text", true)
	case "image":
		b.image = r.image()
	case "audio":
		r.refuse(" is audio, which Codex doesn't take: send it as text")
	case "resource_link":
		b.link = true
		for _, name := range []string{"uri", "name", "title", "description", "mimeType"} {
			must := name == "uri" || name == "name"
			text := r.text(name, must)
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
		inside := acpBlockReader{raw: rawField(raw, "resource")}
		if b = inside.resource(); inside.why != "" {
			r.refuse(".resource%s", inside.why)
		}
	default:
		r.refuse(".type %q is none of text, image, resource_link, resource", shortName(kind))
	}
	return b, r.why
}

// acpBlockReader reads one object of a prompt.
type acpBlockReader struct {
	raw json.RawMessage
	why string // the first thing that is wrong with the object, as it goes on behind its name; "" for nothing
}

func (r *acpBlockReader) refuse(format string, args ...any) {
	if r.why == "" {
		r.why = fmt.Sprintf(format, args...)
	}
}

// text reads a string; must: it can't be missing.
func (r *acpBlockReader) text(name string, must bool) string {
	val := rawField(r.raw, name)
	text, ok := rawString(val)
	if !ok && (must || !isNull(val)) {
		r.refuse(".%s must be a string, not %s", name, kindWord(val))
	}
	return text
}

// resource reads what is embedded: text, or bytes that may be an image or text after all.
func (r *acpBlockReader) resource() (b acpBlock) {
	if rawKind(r.raw) != '{' {
		r.refuse(" must be an object with uri and text or blob, not %s", kindWord(r.raw))
	}
	b.attrs = []acpAttr{{"uri", r.text("uri", true)}}
	mime := r.text("mimeType", false)
	if mime != "" {
		b.attrs = append(b.attrs, acpAttr{"mime", mime})
	}
	if b.body = r.text("text", false); !isNull(rawField(r.raw, "text")) {
		return b
	}
	blob, ok := rawString(rawField(r.raw, "blob"))
	data, err := base64.StdEncoding.DecodeString(blob)
	switch {
	case !ok:
		r.refuse(" must have text or blob, a string")
	case err != nil:
		r.refuse(".blob is not valid base64: %v", err)
	case strings.HasPrefix(mime, "image/"):
		return acpBlock{image: &promptPart{kind: "image", url: "data:" + mime + ";base64," + blob}}
	case utf8.Valid(data) && bytes.IndexByte(data, 0) < 0:
		b.body = string(data)
	default:
		b.body = fmt.Sprintf("(%d bytes that are no text: not shown here, open the uri)", len(data))
	}
	return b
}

// image reads an image: its data, else where it is.
func (r *acpBlockReader) image() *promptPart {
	data, mime, uri := r.text("data", false), r.text("mimeType", false), r.text("uri", false)
	switch {
	case data != "":
		if !strings.HasPrefix(mime, "image/") || strings.ContainsAny(mime, ",; ") {
			r.refuse(".mimeType %q is none of an image, such as image/png", shortName(mime))
		}
		if image, err := base64.StdEncoding.DecodeString(data); err != nil || len(image) == 0 {
			r.refuse(".data is not valid base64")
		}
		return &promptPart{kind: "image", url: "data:" + mime + ";base64," + data}
	case uri == "":
		r.refuse(".data is missing: an image needs its bytes in base64, or a uri")
	case strings.HasPrefix(strings.ToLower(uri), "file:"):
		path, ok := pathOfURL(uri)
		if !ok {
			r.refuse(".uri %q is no path on this machine: send the image's data", shortName(uri))
		}
		return &promptPart{kind: "localImage", path: path}
	case !strings.HasPrefix(uri, "https:") && !strings.HasPrefix(uri, "data:image/"):
		r.refuse(".uri %q is none of file:, https: and data: send the image's data", shortName(uri))
	}
	return &promptPart{kind: "image", url: uri}
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
		block, whole := json.RawMessage(nil), true
		kind := stringField(part, "type")
		keys := map[string][]string{"text": {"text"}, "inputText": {"text"}, "image": {"data", "mimeType"},
			"audio": {"data", "mimeType"}, "inputImage": {"imageUrl"}, "resource_link": {"name", "uri"}}[kind]
		said := map[string]string{"type": kind}
		for _, key := range keys {
			if val, ok := rawString(rawField(part, key)); ok {
				said[key] = val
			}
		}
		switch {
		case kind == "resource" && rawKind(rawField(part, "resource", "uri")) == '"':
			res := map[string]string{}
			for _, k := range []string{"uri", "text", "blob", "mimeType"} {
				if v, ok := rawString(rawField(part, "resource", k)); ok {
					res[k] = v
				}
			}
			if _, ok := res["text"]; ok || res["blob"] != "" {
				block = toJSON(map[string]any{"type": kind, "resource": res})
			}
		case keys == nil || len(said) <= len(keys): // nothing that is known, or one of its fields is missing
		case kind == "inputImage":
			block = acpImageBlock(said["imageUrl"])
		case keys[0] != "text":
			block = toJSON(said)
		default:
			s := said["text"]
			if whole = len(s) <= left; !whole {
				s = cappedText(s)
			}
			if left -= len(s); left >= -maxACPText {
				block = acpTextBlock(s)
			}
		}
		if !whole || block == nil || media < len(block) {
			hidden = append(hidden, part)
		}
		switch {
		case block == nil:
			return
		case media < len(block):
			block = acpTextBlock(fmt.Sprintf("[%s of %d bytes left out]", kind, len(part)))
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
