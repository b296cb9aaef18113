package main

// mock_startup.go owns what the mock Codex tells of MCP servers: how those of a
// thread start, and the list of those in config.toml with their tools. Threads
// call it on the reading goroutine; it looks on a goroutine of its own, which
// leaves when the process ends. It must never start a server of a thread: the
// first call of a tool does that.

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// startUps tells how a thread's servers start, as far as can be seen without
// starting them: whether the command exists, or somebody listens at the address.
// MOCK_MCP_START in a server's env says more: "slow:MS", "fail:WHY", "cancel" or
// "hang" (it is never ready).
func (m *mockServer) startUps(th *mockThread) {
	names := slices.Sorted(maps.Keys(th.servers))
	names = slices.DeleteFunc(names, func(name string) bool {
		entry, _ := th.servers[name].(map[string]any)
		return entry == nil || entry["enabled"] == false
	})
	for _, name := range names {
		m.serverStatus(th, name, "starting", "")
	}
	if len(names) == 0 {
		m.startedUp(th, nil, nil, nil)
		return
	}
	m.goWork(func() {
		var ready, failed, cancelled []any
		for _, name := range names {
			entry := th.servers[name].(map[string]any)
			how, rest, _ := strings.Cut(mockString(entry, "env", "MOCK_MCP_START"), ":")
			why := mockUnstartable(entry)
			switch how {
			case "hang":
				<-m.done
				return
			case "slow":
				ms, _ := strconv.Atoi(rest)
				select {
				case <-time.After(time.Duration(ms) * time.Millisecond):
				case <-m.done:
					return
				}
			case "fail":
				why = rest
			case "cancel":
				cancelled = append(cancelled, name)
				if !m.old() { // 0.104 tells it in the sum alone
					m.serverStatus(th, name, "cancelled", "")
				}
				continue
			}
			if why != "" {
				failed = append(failed, map[string]any{"server": name, "error": why})
				m.serverStatus(th, name, "failed", "MCP client for `"+name+"` failed to start: MCP startup failed: "+why)
				continue
			}
			ready = append(ready, name)
			m.serverStatus(th, name, "ready", "")
		}
		m.startedUp(th, ready, failed, cancelled)
	})
}

// mockUnstartable says why a server can't start, "" if it may.
func mockUnstartable(entry map[string]any) string {
	if address := mockString(entry, "url"); address != "" {
		u, err := url.Parse(address)
		if err != nil {
			return err.Error()
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443"}[u.Scheme]
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), cmp.Or(port, "80")), time.Second)
		if err != nil {
			return "handshaking with MCP server failed: Send message error Transport: error sending request for url (" + address + "), when send initialize request"
		}
		_ = c.Close() // it only was to be seen
		return ""
	}
	if _, err := exec.LookPath(mockString(entry, "command")); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return "No such file or directory (os error 2)"
		}
		return err.Error()
	}
	return ""
}

func (m *mockServer) serverStatus(th *mockThread, name, status, why string) {
	if m.tellsEvents() {
		state := map[string]any{"state": status}
		if why != "" {
			state["error"] = why
		}
		m.event(th.ID, "", "mcp_startup_update", map[string]any{"server": name, "status": state})
		return
	}
	m.tell(th, mockStatusMethod, map[string]any{"threadId": th.ID, "name": name, "status": status, "error": mockNull(why), "failureReason": nil})
}

const mockStatusMethod = "mcpServer/startupStatus/updated"

// startedUp is 0.104's sum.
func (m *mockServer) startedUp(th *mockThread, ready, failed, cancelled []any) {
	if m.tellsEvents() {
		m.event(th.ID, "", "mcp_startup_complete", map[string]any{"ready": append([]any{}, ready...), "failed": append([]any{}, failed...), "cancelled": append([]any{}, cancelled...)})
	}
}

// goWork runs what waits for servers, unless the process ends. It ends by itself
// or with the process, which waits for it.
func (m *mockServer) goWork(work func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.turns.Go(work)
	}
}

// serverList asks every server of config.toml for its tools, as the real ones do.
func (m *mockServer) serverList(msg *message) {
	m.home.load()
	servers, _ := m.home.config["mcp_servers"].(map[string]any)
	m.goWork(func() {
		data := []any{}
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			entry, _ := servers[name].(map[string]any)
			data = append(data, m.serverView(name, entry))
		}
		m.page(msg, data)
	})
}

// serverView is one entry of the list.
func (m *mockServer) serverView(name string, entry map[string]any) map[string]any {
	tools, failure := map[string]any{}, any(nil)
	v := map[string]any{"name": name, "resources": []any{}, "resourceTemplates": []any{}, "authStatus": "unsupported"}
	if m.new() {
		for _, k := range []string{"runtimeStatus", "pluginId", "httpOrigin", "serverInfo", "serverCapabilities", "toolListMeta"} {
			v[k] = nil
		}
	}
	if entry["enabled"] != false && mockString(entry, "command") != "" {
		s, err := m.startServer("", entry)
		if err == nil {
			err = s.greet(m, mockSeconds(entry, "startup_timeout_sec", 10*time.Second))
			for _, tool := range s.listed {
				tools[stringField(tool, "name")] = tool
			}
			_ = s.stdin.Close() // gone already is as good
			late := time.AfterFunc(mockServerEnd, s.kill)
			<-s.ended
			late.Stop()
			if m.new() && s.info != nil {
				v["serverInfo"], v["serverCapabilities"] = s.info, map[string]any{"tools": map[string]any{}}
			}
		}
		if err != nil {
			failure = "MCP startup failed: " + err.Error()
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
				failure = "MCP startup failed: No such file or directory (os error 2)"
			}
		}
	}
	v["tools"] = tools
	if m.new() {
		v["toolsError"] = failure
	}
	return v
}
