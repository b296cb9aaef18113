package main

// arch_check_test.go is the checker behind arch_test.go: sources and rules in,
// problems out. It type-checks with go/types and the compiler's export data, as
// go vet does, so that a method that is called without its type being named is
// seen too. It reads no files, and knows nothing of this program.

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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
	seen     map[string]bool
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
	c := &archCheck{archRules: r, fset: token.NewFileSet(), seen: map[string]bool{}, info: &types.Info{
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
		if n := strings.Compare(a.at.Filename, b.at.Filename); n != 0 {
			return n
		}
		return a.at.Line - b.at.Line
	})
	var texts []string
	for _, p := range c.problems {
		texts = append(texts, p.text)
	}
	return texts
}

func (c *archCheck) problem(pos token.Pos, format string, args ...any) {
	at := c.fset.Position(pos)
	text := fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, fmt.Sprintf(format, args...))
	if !c.seen[text] {
		c.seen[text] = true
		c.problems = append(c.problems, archProblem{at, text})
	}
}

func (c *archCheck) file(f *ast.File) {
	name := c.fset.File(f.Pos()).Name()
	row, ok := c.family(name)
	if !ok {
		c.problems = append(c.problems, archProblem{token.Position{Filename: name},
			name + ": its first word is no family of the house (arch_test.go)"})
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
	if theirs, ok := c.family(from); ok && theirs.name != row.name && !slices.Contains(strings.Fields(row.uses), theirs.name) {
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
		c.problem(imp.Pos(), "imports %s: only the standard library, and golang.org/x/sys in the family %s", path, c.xsys)
	}
}

// variables allows error values, compiled regexps, embedded files, and those of
// the list; the blank name declares nothing.
func (c *archCheck) variables(d *ast.GenDecl, spec *ast.ValueSpec) {
	for _, doc := range []*ast.CommentGroup{d.Doc, spec.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(l *ast.Comment) bool { return strings.HasPrefix(l.Text, "//go:embed ") }) {
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
		c.problem(id.Pos(), "package-level variable %s: only errors, compiled regexps, embeds and %s", id.Name, strings.Join(c.vars, ", "))
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
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if path, err := strconv.Unquote(imp.Path.Value); err == nil && path != "unsafe" {
				paths[path] = true
			}
		}
	}
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "--"}, slices.Sorted(maps.Keys(paths))...)
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return exports
}
