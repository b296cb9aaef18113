module github.com/randlee/atm-agent-mcp

go 1.25.0

require (
	github.com/rogpeppe/go-internal v1.14.1
	golang.org/x/sys v0.38.0
)

require golang.org/x/tools v0.26.0 // indirect
