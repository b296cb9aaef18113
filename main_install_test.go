package main

// main_install_test.go proves the two ways in which this program gets elsewhere: the
// `go install` line of the README, and a copy in somebody's monorepo. Both build
// with the network off; they need a Go toolchain and the module cache that the
// tests themselves were built from.

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// goTool runs the go command in dir with the network off, unless env opens it.
func goTool(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append([]string{"GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local"}, env...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// shippedFiles are the files that a build needs: no tests and no test data.
func shippedFiles(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && path != "prompts":
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		case strings.HasSuffix(path, ".go") || filepath.Dir(path) == "prompts" || path == "go.mod" || path == "go.sum" || path == "LICENSE":
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 50 {
		t.Fatalf("only %d files to ship", len(names))
	}
	return names
}

func printedVersion(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		t.Fatalf("%s version: %v", program, err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func programName() string {
	if runtime.GOOS == "windows" {
		return "atm-agent-mcp.exe"
	}
	return "atm-agent-mcp"
}

// fileURL is a directory as GOPROXY takes it.
func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return "file://" + path
}

// TestGoInstallHasAVersion serves this module as v1.2.3 from a directory, as
// the module proxy would, and installs it from there.
func TestGoInstallHasAVersion(t *testing.T) {
	t.Parallel()
	if !longTests() {
		t.Skip("builds the program: set " + longVar)
	}
	const module, version = "github.com/randlee/atm-agent-mcp", "v1.2.3"
	proxy, cache, bin := t.TempDir(), t.TempDir(), t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"list": version + "\n", version + ".mod": string(mod),
		version + ".info": `{"Version":"` + version + `","Time":"2026-01-02T03:04:05Z"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, name := range shippedFiles(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w, err := z.Create(module + "@" + version + "/" + filepath.ToSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")
	goTool(t, t.TempDir(), []string{
		"GOPROXY=" + fileURL(proxy) + "," + fileURL(known), "GOBIN=" + bin,
		"GOMODCACHE=" + cache, "GOFLAGS=-modcacherw", // or the test couldn't remove it
	}, "install", module+"@"+version)
	if got := printedVersion(t, filepath.Join(bin, programName())); got != "atm-agent-mcp 1.2.3" {
		t.Errorf("version prints %q", got)
	}
}

// TestBuildsVendoredInAMonorepo copies what a build needs into a directory of
// another project, as CONTRIBUTING says, vendors the one dependency there, and
// builds without network and without module cache.
func TestBuildsVendoredInAMonorepo(t *testing.T) {
	t.Parallel()
	mono := t.TempDir()
	dir := filepath.Join(mono, "third_party", "atm-agent-mcp")
	if err := os.WriteFile(filepath.Join(mono, "go.mod"), []byte("module example.com/mono\n\ngo 1.25.0\n"), 0o644); err != nil {
		t.Fatal(err) // a module around it must not matter
	}
	for _, name := range shippedFiles(t) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goTool(t, dir, nil, "mod", "vendor")
	found, err := os.ReadDir(filepath.Join(dir, "vendor"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "golang.org modules.txt" {
		t.Errorf("vendored are %s; the program itself needs golang.org/x/sys alone", got)
	}
	if !longTests() {
		return // the build takes longest
	}
	program := filepath.Join(mono, "bin", programName())
	goTool(t, mono, []string{"GOMODCACHE=" + filepath.Join(mono, "no-cache")},
		"build", "-C", "third_party/atm-agent-mcp", "-mod=vendor", "-buildvcs=false", "-o", program, ".")
	if got := printedVersion(t, program); got != "atm-agent-mcp devel" {
		t.Errorf("version prints %q", got)
	}
}
