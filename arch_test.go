package main

// arch_test.go holds the house to its plan: twelve families, told by a file's
// first word, each of which names only those above it in the table; and what no
// file may have. A new file needs no row here. The table of files in
// CONTRIBUTING.md is made from the files' own first sentences: run
// `go test -run TestContributingListsEveryFile -update .` after a change of them.
// The checker type-checks with go/types and the compiler's export data, as go vet
// does, so that a method that is called without its type being named is seen too; it
// is checked itself, with sources that break each rule.

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// house is the table of families, from the ground up.
func house() archRules {
	return archRules{
		families: []familyRow{
			{"sys", ""},
			{"wire", "sys"},
			{"config", "sys wire"},
			{"registry", "sys wire config"},
			{"mail", "sys wire config registry"},
			{"codex", "sys wire config registry mail"},
			{"session", "sys wire config registry mail codex"},
			{"mcp", "sys wire config registry mail codex session"},
			{"acp", "sys wire config registry mail codex session"},
			// The mock is what drivers are tested with: it may share none of their views.
			{"mock", "sys wire"},
			{"proxy", "sys wire config registry mail codex session mcp acp mock"},
			{"main", "sys wire config registry mail codex session mcp acp mock proxy"},
		},
		interfaces: []string{"backend", "front"},
		vars:       []string{"version"},
		xsys:       "sys",
	}
}

// update is what a test is run with after a change that is meant: read the difference.
var update = flag.Bool("update", false, "write the golden files and the file table of CONTRIBUTING.md anew")

func TestArchitecture(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			files := goFiles(t, goos)
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
func goFiles(t *testing.T, goos string) map[string]string {
	t.Helper()
	ctx := build.Default
	ctx.GOOS, ctx.CgoEnabled = goos, false
	names, err := filepath.Glob("*.go")
	wantNil(t, err)
	files := map[string]string{}
	for _, name := range names {
		ours, err := ctx.MatchFile(".", name)
		wantNil(t, err)
		if ours && !strings.HasSuffix(name, "_test.go") {
			files[name] = readText(t, name)
		}
	}
	return files
}

// TestArchitectureCheckerCatches breaks each rule in a small house.
func TestArchitectureCheckerCatches(t *testing.T) {
	rules := archRules{
		families: []familyRow{{"sys", ""}, {"low", "sys"}, {"peer", "low"}, {"mid", "sys low peer"},
			{"high", "sys low mid peer"},
			{"main", "sys low peer mid high"}},
		interfaces: []string{"backend"},
		vars:       []string{"version"},
		xsys:       "sys",
	}
	const high = "package main\ntype top struct{ field int }\nfunc (top) method() {}\nfunc newTop() top { return " +
		"top{} }\nconst limit = 1\n"
	tests := []struct {
		name  string
		files map[string]string
		want  []string // parts of the problems, in order; none: it is fine
	}{
		{"downward", map[string]string{"low.go": "package main\nfunc low() {}\n",
			"high.go": "package main\nfunc high() { low() }\n"}, nil},
		{"same family", map[string]string{"mid.go": "package main\nfunc mid() { other() }\n",
			"mid_other.go": "package main\nfunc other() { mid() }\n"}, nil},
		{"upward type", map[string]string{"low.go": "package main\nfunc low(t *top) {}\n", "high.go": high},
			[]string{"low.go:2: family low names top of high.go"}},
		{"upward function", map[string]string{"mid.go": "package main\nfunc mid() { _ = newTop() }\n", "high.go": high},
			[]string{"mid.go:2: family mid names newTop of high.go"}},
		{"upward constant", map[string]string{"mid.go": "package main\nconst m = limit\n", "high.go": high},
			[]string{"names limit"}},
		{"a method without its type's name", map[string]string{
			"mid.go": "package main\nfunc mid() { below().method() }\n", "low.go": "package main\n",
			"peer.go": "package main\n", "high.go": high + "func below() top { return top{} }\n",
		}, []string{"mid.go:2: family mid names below", "mid.go:2: family mid names method"}},
		{"not every family below", map[string]string{"peer.go": "package main\nfunc peer() { low(); sys() }\n",
			"sys_x.go": "package main\nfunc sys() {}\n",
			"low.go":   "package main\nfunc low() {}\n"}, []string{"peer.go:2: family peer names sys of sys_x.go"}},
		{"no family", map[string]string{"extra.go": "package main\n", "lowly.go": "package main\n"},
			[]string{"extra.go:1: its first word", "lowly.go:1: its first word"}},
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
		{"a variable that looks like an error", map[string]string{"low.go": "package main\nvar errCount = 1\n"},
			[]string{"errCount"}},
		{"a regexp in disguise",
			map[string]string{"low.go": "package main\ntype r struct{}\nfunc (r) MustCompile(string) int { return 0 " +
				"}\nvar regexp r\nvar x = regexp.MustCompile(\"\")\n"},
			[]string{"variable regexp", "variable x"}},
		{"interface", map[string]string{"low.go": "package main\ntype reader interface{ Read() }\nfunc f() { type " +
			"inner interface{ X() } }\n"},
			[]string{"low.go:2: interface reader", "low.go:3: interface inner"}},
		{"allowed interface", map[string]string{"low.go": "package main\ntype backend interface{ stop() }\n"}, nil},
		{"exit", map[string]string{"low.go": "package main\nimport (\n\tquit \"os\"\n\t\"log\"\n)\nfunc f() { " +
			"quit.Exit(1) }\nfunc g() { log.Fatalf(\"\") }\nvar errX = error(nil)\nfunc h() { stop := quit.Exit; " +
			"stop(1) }\n"},
			[]string{"low.go:6: os.Exit", "low.go:7: log.Fatalf", "low.go:9: os.Exit"}},
		{"exit in main", map[string]string{"main.go": "package main\nimport \"os\"\nfunc main() { os.Exit(0) }\n"},
			nil},
		{"main elsewhere", map[string]string{"low.go": "package main\nimport \"os\"\nfunc main() { os.Exit(0) }\n"},
			[]string{"low.go:3: os.Exit"}},
		{"init", map[string]string{"low.go": "package main\nfunc init() {}\ntype t struct{}\nfunc (t) init() {}\n"},
			[]string{"low.go:2: func init"}},
		{"foreign import", map[string]string{"low.go": "package main\nimport _ \"github.com/x/y\"\n"},
			[]string{"low.go:2: imports github.com/x/y"}},
		{"x/sys in the wrong file", map[string]string{"low.go": "package main\nimport _ \"golang.org/x/sys/unix\"\n"},
			[]string{"low.go:2: imports golang.org/x/sys/unix"}},
		{"x/sys in the right file",
			map[string]string{"sys_unix.go": "package main\nimport \"golang.org/x/sys/unix\"\nfunc f() { " +
				"unix.Kill(0, 0) }\n"}, nil},
		{"syntax", map[string]string{"low.go": "package main\nfunc {\n"}, []string{"low.go:2"}},
		{"type error", map[string]string{"low.go": "package main\nvar errX error = 1\n"},
			[]string{"low.go:2: cannot use"}},
	}
	exports := exportData(t,
		map[string]string{"x.go": `package x; import (_ "embed"; _ "errors"; _ "fmt"; _ "log"; _ "os"; _ "regexp")`})
	for _, tt := range tests {
		// Without export data, as for other systems, only types that come out of an
		// import are unknown: everything the rules look at must still be found.
		for _, with := range []map[string]string{exports, nil} {
			if foreign := strings.Contains(tt.name, "x/sys") || tt.name == "foreign import"; with != nil && foreign {
				continue // nobody has export data of these
			}
			if typed := tt.name == "type error" || tt.name == "allowed variables"; with == nil && typed {
				continue
			}
			got := rules.check(tt.files, with)
			for i, want := range tt.want {
				if len(got) != len(tt.want) || !strings.Contains(got[i], want) {
					t.Errorf("%s, export data %v: want %q, got\n%s", tt.name, with != nil, tt.want,
						strings.Join(got, "\n"))
					break
				}
			}
			if len(got) > 0 && tt.want == nil {
				t.Errorf("%s, export data %v: want nothing, got\n%s", tt.name, with != nil, strings.Join(got, "\n"))
			}
		}
	}
}

// TestContributingListsEveryFile: the file table of CONTRIBUTING.md is what the
// files say of themselves.
func TestContributingListsEveryFile(t *testing.T) {
	const begin, end = "<!-- files: made from their first sentences by arch_test.go -->\n", "<!-- end of files -->"
	text := readText(t, "CONTRIBUTING.md")
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("CONTRIBUTING.md has no %q and %q", begin, end)
	}
	for _, name := range regexp.MustCompile(`[^*_a-z]([a-z]\w*\.go)\b`).FindAllStringSubmatch(head+tail, -1) {
		if _, err := os.Stat(name[1]); err != nil {
			t.Errorf("CONTRIBUTING.md names %s, and there is no such file", name[1])
		}
	}
	whole := head + begin + fileTable(t) + end + tail
	if *update {
		wantNil(t, os.WriteFile("CONTRIBUTING.md", []byte(whole), 0o644))
	} else if whole != text {
		t.Fatal("the file table of CONTRIBUTING.md is stale: run go test -run TestContributingListsEveryFile -update .")
	}
}

// TestContributingFollowsOneCall: each function on the way of a call is in the file that CONTRIBUTING.md names.
func TestContributingFollowsOneCall(t *testing.T) {
	_, list, _ := strings.Cut(readText(t, "CONTRIBUTING.md"), "```text\ndown")
	list, _, _ = strings.Cut(list, "```")
	steps := regexp.MustCompile(`(?m)^(?:up)? +(\w+\.go)? +(?:(\w+)\.)?(\w+)  `).FindAllStringSubmatch(list, -1)
	for _, aside := range regexp.MustCompile(`(?:(\w+)\.)?(\w+) \((\w+\.go)\)`).FindAllStringSubmatch(list, -1) {
		steps = append(steps, []string{"", aside[3], aside[1], aside[2]})
	}
	file := ""
	for _, step := range steps {
		file = cmp.Or(step[1], file)
		method := `func \(\w+ \*?` + step[2] + `\) `
		if step[2] == "" {
			method = "func "
		}
		if !regexp.MustCompile(`(?m)^` + method + step[3] + `\(`).MatchString(readText(t, file)) {
			t.Errorf("%s has no %s.%s", file, step[2], step[3])
		}
	}
	if len(steps) < 15 {
		t.Errorf("%d functions found in\n%s", len(steps), list)
	}
}

// fileTable lists the files of each family, with the first sentence of each.
func fileTable(t *testing.T) string {
	all := map[string]string{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		maps.Copy(all, goFiles(t, goos))
	}
	var b strings.Builder
	for _, row := range house().families {
		fmt.Fprintf(&b, "\n**%s**\n\n| file | what it holds |\n|---|---|\n", row.name)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if theirs, _ := house().family(name); theirs.name == row.name {
				fmt.Fprintf(&b, "| `%s` | %s |\n", name, firstSentence(t, name, all[name]))
			}
		}
	}
	return b.String() + "\n"
}

// firstSentence is how a file begins to tell what it holds.
func firstSentence(t *testing.T, name, text string) string {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments)
	wantNil(t, err)
	var head *ast.CommentGroup
	for _, c := range f.Comments {
		if c.Pos() > f.Name.Pos() && (head == nil || c.Pos() < head.Pos()) {
			head = c
		}
	}
	if head == nil || len(f.Decls) > 0 && head.Pos() > f.Decls[0].Pos() {
		t.Errorf("%s: no comment under its package clause says what it holds", name)
		return ""
	}
	words := strings.Join(strings.Fields(head.Text()), " ")
	words = strings.TrimPrefix(words, name+" owns ")
	sentence, _, _ := strings.Cut(words+" ", ". ")
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(sentence), "."), "|", `\|`)
}

// archRules is what a flat package is held to.
type archRules struct {
	families   []familyRow
	interfaces []string // the only interface types there are
	vars       []string // variables that may be, besides errors, regexps and embeds
	xsys       string   // the only family that imports golang.org/x/sys
}

// familyRow is one family of files: those whose first word is its name.
type familyRow struct {
	name string
	uses string // the other families that it may name, space separated
}

// family finds the row of a file by the file's first word.
func (r archRules) family(file string) (familyRow, bool) {
	word := file[:strings.IndexAny(file+".", "_.")]
	i := slices.IndexFunc(r.families, func(row familyRow) bool { return row.name == word })
	if i < 0 {
		return familyRow{}, false
	}
	return r.families[i], true
}

// archCheck is one run of the checker.
type archCheck struct {
	archRules
	fset     *token.FileSet
	info     *types.Info
	pkg      *types.Package
	problems []archProblem
}

type archProblem struct {
	at   token.Position
	text string
}

// check returns what is wrong, in the order of files and lines. exports is the
// export data of all imports; without it imported names have no type, which is
// enough for another system's files: their own names are still resolved.
func (r archRules) check(files map[string]string, exports map[string]string) []string {
	c := &archCheck{archRules: r, fset: token.NewFileSet(), info: &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	var parsed []*ast.File
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := parser.ParseFile(c.fset, name, files[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return []string{err.Error()}
		}
		parsed = append(parsed, f)
	}
	conf := types.Config{Importer: blankImporter{}, Error: func(error) {}}
	if exports != nil {
		conf.Importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
			if exports[path] == "" {
				return nil, fmt.Errorf("no export data of %q", path)
			}
			return os.Open(exports[path])
		})
		conf.Error = func(err error) {
			// An unused import or variable is the compiler's matter and hides nothing.
			if e, ok := err.(types.Error); ok && !e.Soft {
				c.problem(e.Pos, "%s", e.Msg)
			}
		}
	}
	c.pkg, _ = conf.Check("main", c.fset, parsed, c.info) // errors went to conf.Error
	for _, f := range parsed {
		c.file(f)
	}
	slices.SortStableFunc(c.problems, func(a, b archProblem) int {
		return cmp.Or(strings.Compare(a.at.Filename, b.at.Filename), a.at.Line-b.at.Line)
	})
	var texts []string
	for _, p := range c.problems {
		if text := fmt.Sprintf("%s:%d: %s", p.at.Filename, p.at.Line, p.text); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

func (c *archCheck) problem(pos token.Pos, format string, args ...any) {
	c.problems = append(c.problems, archProblem{c.fset.Position(pos), fmt.Sprintf(format, args...)})
}

func (c *archCheck) file(f *ast.File) {
	name := c.fset.File(f.Pos()).Name()
	row, ok := c.family(name)
	if !ok {
		c.problem(f.Pos(), "its first word is no family of the house (arch_test.go)")
	}
	for _, imp := range f.Imports {
		c.importSpec(name, imp)
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				for _, spec := range d.Specs {
					c.variables(d, spec.(*ast.ValueSpec))
				}
			}
		case *ast.FuncDecl:
			if d.Name.Name == "init" && d.Recv == nil {
				c.problem(d.Pos(), "func init: nothing runs before main")
			}
		}
		inMain := false
		if d, ok := decl.(*ast.FuncDecl); ok {
			inMain = name == "main.go" && d.Name.Name == "main" && d.Recv == nil
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if _, is := n.Type.(*ast.InterfaceType); is && !slices.Contains(c.interfaces, n.Name.Name) {
					c.problem(n.Pos(), "interface %s: only %s exist", n.Name.Name, strings.Join(c.interfaces, " and "))
				}
			case *ast.SelectorExpr:
				if what := c.exits(n); what != "" && !inMain {
					c.problem(n.Pos(), "%s: only func main exits", what)
				}
			case *ast.Ident:
				if ok {
					c.use(name, row, n)
				}
			}
			return true
		})
	}
}

// use checks one name against what the family of the file that uses it may name.
// Fields and methods are named where they are selected.
func (c *archCheck) use(name string, row familyRow, id *ast.Ident) {
	obj := c.info.Uses[id]
	if obj == nil || obj.Pkg() != c.pkg || !obj.Pos().IsValid() {
		return
	}
	if _, isImport := obj.(*types.PkgName); isImport {
		return
	}
	from := c.fset.Position(obj.Pos()).Filename
	if theirs, ok := c.family(from); ok && theirs.name != row.name &&
		!slices.Contains(strings.Fields(row.uses), theirs.name) {
		c.problem(id.Pos(), "family %s names %s of %s", row.name, id.Name, from)
	}
}

func (c *archCheck) importSpec(name string, imp *ast.ImportSpec) {
	path, err := strconv.Unquote(imp.Path.Value)
	if err != nil {
		return // the parser has told
	}
	first, _, _ := strings.Cut(path, "/")
	switch {
	case !strings.Contains(first, "."): // standard library
	case strings.HasPrefix(path, "golang.org/x/sys/") && strings.HasPrefix(name, c.xsys+"_"):
	default:
		c.problem(imp.Pos(), "imports %s: only the standard library, and golang.org/x/sys in the family %s", path,
			c.xsys)
	}
}

// variables allows error values, compiled regexps, embedded files, and those of
// the list; the blank name declares nothing.
func (c *archCheck) variables(d *ast.GenDecl, spec *ast.ValueSpec) {
	for _, doc := range []*ast.CommentGroup{d.Doc, spec.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(l *ast.Comment) bool {
			return strings.HasPrefix(l.Text, "//go:embed ")
		}) {
			return
		}
	}
	for i, id := range spec.Names {
		if id.Name == "_" || slices.Contains(c.vars, id.Name) {
			continue
		}
		if len(spec.Values) == len(spec.Names) {
			switch c.called(spec.Values[i]) {
			case "errors.New", "fmt.Errorf", "regexp.MustCompile":
				continue
			}
		}
		if obj := c.info.Defs[id]; obj != nil && obj.Type() != nil {
			iface := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
			if t := obj.Type(); t != types.Typ[types.Invalid] && types.Implements(t, iface) {
				continue
			}
		}
		c.problem(id.Pos(), "package-level variable %s: only errors, compiled regexps, embeds and %s", id.Name,
			strings.Join(c.vars, ", "))
	}
}

// called is the imported function that the expression calls, as package.Name.
func (c *archCheck) called(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			return c.imported(sel)
		}
	}
	return ""
}

// imported is the selector's package path and name, "" if it selects from a value.
func (c *archCheck) imported(sel *ast.SelectorExpr) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	pkg, ok := c.info.Uses[id].(*types.PkgName)
	if !ok {
		return ""
	}
	return pkg.Imported().Path() + "." + sel.Sel.Name
}

func (c *archCheck) exits(sel *ast.SelectorExpr) string {
	switch what := c.imported(sel); what {
	case "os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln":
		return what
	}
	return ""
}

// blankImporter knows every package and nothing in it.
type blankImporter struct{}

func (blankImporter) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}

// exportData asks the go command for the export data of what the files import;
// it comes out of the build cache and needs no network.
func exportData(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	paths := map[string]bool{}
	for name, text := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		wantNil(t, err)
		for _, imp := range f.Imports {
			if path, err := strconv.Unquote(imp.Path.Value); err == nil && path != "unsafe" {
				paths[path] = true
			}
		}
	}
	list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "--"}
	out := goTool(t, ".", nil, append(list, slices.Sorted(maps.Keys(paths))...)...)
	exports := map[string]string{}
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return exports
}
