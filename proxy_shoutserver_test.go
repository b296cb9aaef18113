package main

// proxy_shoutserver_test.go is somebody's MCP server with one tool, which says in
// capitals what it is given and says nothing of what it may harm: so Codex asks
// before it is called. The test binary is that server where its environment says so.

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

const shoutServerVar = "ATM_TEST_SHOUT_SERVER"

// shoutServer serves until its stdin ends.
func shoutServer(in io.Reader, out io.Writer) int {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := lines.Bytes()
		id := rawField(m, "id")
		if id == nil {
			continue
		}
		var result any = map[string]any{}
		switch stringField(m, "method") {
		case "initialize":
			result = map[string]any{"protocolVersion": stringField(m, "params", "protocolVersion"), "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "shout", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": "shout", "description": "Says a text in capitals", "inputSchema": map[string]any{
				"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}, "required": []string{"text"}}}}}
		case "tools/call":
			text := strings.ToUpper(stringField(m, "params", "arguments", "text"))
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, toJSON(result))
	}
	return 0
}
