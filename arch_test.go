package main

// arch_test.go holds the house to its plan: the layer of every file, and what no
// file may have. A new file needs a row below and in CONTRIBUTING.md, and a row
// that has to move up says that the plan has changed. arch_check_test.go has
// the checker; it is checked itself here, with sources that break each rule.

import (
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// house is the file table: a file of layer N names only what layers ≤ N declare.
func house() archRules {
	return archRules{
		layers: []layerRow{
			{0, "sys_*.go watch.go watch_*.go disk.go log.go audit.go"},
			{0, "toml.go tomlscan.go frontmatter.go frontvalue.go gitconfig.go shellwords.go"},
			{0, "clip.go frame.go scan.go rawstring.go outbox.go"},
			{1, "peer.go message.go"},
			{1, "config.go settings.go layers.go paths.go overrides.go agentfile.go"},
			{1, "registry.go record.go journal.go writer.go lease.go mail.go mailfile.go mailmsg.go mailspool.go mailenvelope.go team.go teamfile.go teamlock.go lockqueue.go roster.go members.go recipients.go repo.go prompt.go"},
			{2, "turn.go machine.go turnrun.go clock.go postbox.go approval.go backend.go child.go probe.go atmtools.go"},
			{2, "policy.go codexconfig.go argspec.go atmspec.go"},
			{3, "childlink.go codexapp*.go codexmcp*.go"},
			{3, "session.go sessionturn.go sessionasks.go sessionback.go sessionend.go hub.go hubend.go hubcalls.go hubclose.go waits.go kept.go keptfiles.go resume.go post.go mailroom.go mailfetch.go sessionmail.go sessiontools.go sessionclient.go sessionoffer.go hubclient.go slot.go opening.go opener.go retune.go ledger.go views.go"},
			{4, "clientlink.go tools.go toolargs.go results.go mcp*.go progress.go elicit.go wirelog.go codexevent.go codexitem.go toolserver.go acp.go acp_*.go"},
			{5, "proxy.go mock*.go"},
			{6, "doctor.go doctorchecks.go configcmd.go demo.go sessions.go summary.go screen.go completion.go auditcmd.go acpcmd.go help.go main.go"},
		},
		interfaces: []string{"backend", "front"},
		vars:       []string{"version"},
		maxLines:   600,
		sys:        "sys_*.go watch_*.go",
		only: []onlyRow{
			// The mock is what drivers are tested with: it may share none of their views.
			{"mock*.go", "frame.go scan.go rawstring.go outbox.go peer.go message.go"},
		},
	}
}

func TestArchitecture(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			files := goFiles(t, ".", goos)
			var exports map[string]string // nil: see archRules.check
			if goos == runtime.GOOS {
				exports = exportData(t, files)
			}
			for _, problem := range house().check(files, exports) {
				t.Error(problem)
			}
		})
	}
}

// goFiles reads what is built for an operating system, without tests.
func goFiles(t *testing.T, dir, goos string) map[string]string {
	t.Helper()
	ctx := build.Default
	ctx.GOOS, ctx.CgoEnabled = goos, false
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no Go files in %q: %v", dir, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ours, err := ctx.MatchFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if ours {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(text)
		}
	}
	return files
}

// TestArchitectureCheckerCatches breaks each rule in a small house.
func TestArchitectureCheckerCatches(t *testing.T) {
	rules := archRules{
		layers:     []layerRow{{0, "low.go sys_*.go"}, {1, "mid.go peer.go"}, {2, "high.go main.go"}},
		interfaces: []string{"backend"},
		vars:       []string{"version"},
		maxLines:   20,
		sys:        "sys_*.go",
		only:       []onlyRow{{"peer.go", "low.go"}},
	}
	const high = "package main\ntype top struct{ field int }\nfunc (top) method() {}\nfunc newTop() top { return top{} }\nconst limit = 1\n"
	tests := []struct {
		name  string
		files map[string]string
		want  []string // parts of the problems, in order; none: it is fine
	}{
		{"downward", map[string]string{"low.go": "package main\nfunc low() {}\n", "high.go": "package main\nfunc high() { low() }\n"}, nil},
		{"same layer", map[string]string{"mid.go": "package main\nfunc mid() { peer() }\n", "peer.go": "package main\nfunc peer() {}\n"}, nil},
		{"upward type", map[string]string{"low.go": "package main\nfunc low(t *top) {}\n", "high.go": high},
			[]string{"low.go:2: layer 0 names top of high.go, layer 2"}},
		{"upward function", map[string]string{"mid.go": "package main\nfunc mid() { _ = newTop() }\n", "high.go": high},
			[]string{"mid.go:2: layer 1 names newTop"}},
		{"upward constant", map[string]string{"mid.go": "package main\nconst m = limit\n", "high.go": high}, []string{"names limit"}},
		{"a method without its type's name", map[string]string{
			"mid.go": "package main\nfunc mid() { below().method() }\n", "low.go": "package main\n",
			"peer.go": "package main\n", "high.go": high + "func below() top { return top{} }\n",
		}, []string{"mid.go:2: layer 1 names below", "mid.go:2: layer 1 names method"}},
		{"only", map[string]string{"peer.go": "package main\nfunc peer() { low(); mid() }\n", "mid.go": "package main\nfunc mid() {}\n",
			"low.go": "package main\nfunc low() {}\n"}, []string{"peer.go:2: names mid of mid.go, but may only use low.go"}},
		{"no row", map[string]string{"extra.go": "package main\n"}, []string{"extra.go: has no row"}},
		{"variable", map[string]string{"low.go": "package main\nvar count int\nvar table = map[string]int{}\n"},
			[]string{"low.go:2: package-level variable count", "low.go:3: package-level variable table"}},
		{"allowed variables", map[string]string{"low.go": `package main
import ("embed"; "errors"; "fmt"; "regexp")
var errA = errors.New("a")
var (
	errB, errC = fmt.Errorf("b"), errors.New("c")
	word = regexp.MustCompile("a")
	version = "dev"
)
type fault struct{ code int }
func (*fault) Error() string { return "" }
var errD = &fault{1}
var errE error = &fault{2}
//go:embed x
var files embed.FS
var _ backend = (*fault)(nil)
type backend interface{ Error() string }
`}, nil},
		{"a variable that looks like an error", map[string]string{"low.go": "package main\nvar errCount = 1\n"}, []string{"errCount"}},
		{"a regexp in disguise", map[string]string{"low.go": "package main\ntype r struct{}\nfunc (r) MustCompile(string) int { return 0 }\nvar regexp r\nvar x = regexp.MustCompile(\"\")\n"},
			[]string{"variable regexp", "variable x"}},
		{"interface", map[string]string{"low.go": "package main\ntype reader interface{ Read() }\nfunc f() { type inner interface{ X() } }\n"},
			[]string{"low.go:2: interface reader", "low.go:3: interface inner"}},
		{"allowed interface", map[string]string{"low.go": "package main\ntype backend interface{ stop() }\n"}, nil},
		{"exit", map[string]string{"low.go": "package main\nimport (\n\tquit \"os\"\n\t\"log\"\n)\nfunc f() { quit.Exit(1) }\nfunc g() { log.Fatalf(\"\") }\nvar errX = error(nil)\nfunc h() { stop := quit.Exit; stop(1) }\n"},
			[]string{"low.go:6: os.Exit", "low.go:7: log.Fatalf", "low.go:9: os.Exit"}},
		{"exit in main", map[string]string{"main.go": "package main\nimport \"os\"\nfunc main() { os.Exit(0) }\n"}, nil},
		{"main elsewhere", map[string]string{"low.go": "package main\nimport \"os\"\nfunc main() { os.Exit(0) }\n"}, []string{"low.go:3: os.Exit"}},
		{"init", map[string]string{"low.go": "package main\nfunc init() {}\ntype t struct{}\nfunc (t) init() {}\n"}, []string{"low.go:2: func init"}},
		{"long", map[string]string{"low.go": "package main\n" + strings.Repeat("\n", 20)}, []string{"low.go: 21 lines"}},
		{"foreign import", map[string]string{"low.go": "package main\nimport _ \"github.com/x/y\"\n"}, []string{"low.go:2: imports github.com/x/y"}},
		{"x/sys in the wrong file", map[string]string{"low.go": "package main\nimport _ \"golang.org/x/sys/unix\"\n"}, []string{"low.go:2: imports golang.org/x/sys/unix"}},
		{"x/sys in the right file", map[string]string{"sys_unix.go": "package main\nimport \"golang.org/x/sys/unix\"\nfunc f() { unix.Kill(0, 0) }\n"}, nil},
		{"syntax", map[string]string{"low.go": "package main\nfunc {\n"}, []string{"low.go:2"}},
		{"type error", map[string]string{"low.go": "package main\nvar errX error = 1\n"}, []string{"low.go:2: cannot use"}},
	}
	exports := exportData(t, map[string]string{"x.go": `package x; import (_ "embed"; _ "errors"; _ "fmt"; _ "log"; _ "os"; _ "regexp")`})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := rules.check(tt.files, exports)
			if strings.Contains(tt.name, "x/sys") || tt.name == "foreign import" {
				got = rules.check(tt.files, nil) // nobody has export data of these
			}
			if len(got) != len(tt.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("problem %d is %q, want %q in it", i, got[i], want)
				}
			}
		})
	}

	// Without export data, as for other systems, only types that come out of an
	// import are unknown: everything the rules look at must still be found.
	for _, tt := range tests {
		if tt.name == "type error" || tt.name == "allowed variables" {
			continue
		}
		t.Run("blind "+tt.name, func(t *testing.T) {
			if got := rules.check(tt.files, nil); len(got) != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
		})
	}
}

// TestContributingListsEveryFile: the file table of CONTRIBUTING.md has a row
// with each file and its layer, and none of a file that is gone.
func TestContributingListsEveryFile(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d) \\| `(\\w+\\.go)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed[row[2]] = row[1]
	}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for name := range goFiles(t, ".", goos) {
			layer, _ := house().layerOf(name)
			if listed[name] != strconv.Itoa(layer) {
				t.Errorf("%s: its row in CONTRIBUTING.md has layer %q, want %d", name, listed[name], layer)
			}
		}
	}
	for name := range listed {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("CONTRIBUTING.md has a row for a file that is gone: %v", err)
		}
	}
}

// TestHouseHasOneRowForEach: the first row wins, so a second would be dead.
func TestHouseHasOneRowForEach(t *testing.T) {
	var seen []string
	for _, row := range house().layers {
		for _, name := range strings.Fields(row.files) {
			if slices.Contains(seen, name) {
				t.Errorf("%s has two rows", name)
			}
			seen = append(seen, name)
		}
	}
}
