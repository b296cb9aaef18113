// Command atm-agent-mcp makes Codex agents teammates of any MCP client.
package main

import "os"

func main() { os.Exit(0) }
