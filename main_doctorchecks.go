package main

// main_doctorchecks.go owns doctor's looks at files: the program's own, the working directory, the team, prompt and log
// files, the directory of sessions, leases and who holds them, leftovers of crashes, inotify limits. main_doctor.go
// calls them in order. A lease is only looked at, for the microseconds that a look takes, as others do too; no lock
// file is opened for writing, and nothing is removed but the probe.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Fewer are used up by an editor and a few watchers.
	leastInotifyInstances = 64
	leastInotifyWatches   = 8192
	// maxLeasesTold is how many held leases have a line of their own.
	maxLeasesTold = 20
	// staleDirLock is when others take over Claude Code's directory locks (wire/atm-files.md).
	staleDirLock = 10 * time.Second
)

// checkProgram tells which build runs, how it came here, and what its makers have not seen.
func (d *doctor) checkProgram() {
	path, err := os.Executable()
	if real, lerr := filepath.EvalSymlinks(path); err == nil && lerr == nil {
		path = real
	}
	d.ok("%s on %s/%s, %s", version(), runtime.GOOS, runtime.GOARCH, installedBy(path, d.cfg.home, os.Getenv))
	const reports = "what goes wrong here is worth a report: https://github.com/randlee/atm-agent-mcp/issues"
	switch runtime.GOOS {
	case "darwin":
		d.warn("nothing of this release was run on macOS, it was only built for it", reports)
	case "windows":
		d.ok("the tests of this release ran under Wine, not on Windows; %s", reports)
	}
}

// installedBy tells by its place who has put a program there.
func installedBy(path, home string, env func(string) string) string {
	slashed, dir := filepath.ToSlash(path), filepath.Dir(path)
	_, notBundled := os.Stat(filepath.Join(filepath.Dir(dir), "manifest.json"))
	switch {
	case strings.Contains(slashed, "/_npx/"):
		return "fetched by npx, " + path
	case strings.Contains(slashed, "/node_modules/"):
		return "installed by npm, " + path
	case strings.Contains(slashed, "/Cellar/"):
		return "installed by Homebrew, " + path
	case filepath.Base(dir) == "server" && notBundled == nil:
		return "installed as an MCPB bundle, " + path
	case env("GOBIN") != "" && dir == filepath.Clean(env("GOBIN")), filepath.Base(dir) == "bin" &&
		slices.Contains(filepath.SplitList(cmp.Or(env("GOPATH"), filepath.Join(home, "go"))), filepath.Dir(dir)):
		return "installed by go install, " + path
	}
	return path
}

func (d *doctor) checkDirectory() {
	repo := readRepo(d.cfg.cwd)
	if repo.Root == nil {
		d.ok("%s, in no git repository", d.cfg.cwd)
		return
	}
	branch := repo.Head
	if repo.Branch != nil {
		branch = "branch " + *repo.Branch
	}
	d.ok("%s, repository %s, %s", d.cfg.cwd, deref(repo.Name), branch)
}

// checkTeam: without one everything but mail works, so nothing here is a failure.
func (d *doctor) checkTeam() {
	c := d.cfg
	path := filepath.Join(c.teamsRoot, c.team, "config.json")
	for _, dir := range openToAll(c.teamDirs()...) {
		d.warn(dir+" can be written by anybody on this machine, who can then write mail and members", "chmod o-w "+dir)
	}
	if c.teamExists {
		if _, ok := readLeadSession(c.teamsRoot, c.team); !ok {
			d.warn(fmt.Sprintf("%s can't be read", path),
				"make it readable and valid JSON; without it only mail is missing")
			return
		}
		d.ok("%q from %s", c.team, c.teamFrom)
		return
	}
	if c.teamFrom == "default" {
		d.ok("%q, since none was named; there is no such team yet, and only mail needs one", c.team)
		return
	}
	hint := "create it in Claude Code, or name another with --team"
	if names, err := (teamQuery{root: c.teamsRoot}).teamNames(); err == nil && len(names) > 0 {
		hint += fmt.Sprintf("; there are %s%s", strings.Join(names[:min(len(names), 10)], ", "),
			didYouMean(c.team, names))
	}
	d.warn(fmt.Sprintf("%q from %s: there is no %s; everything but mail works", c.team, c.teamFrom, path), hint)
}

// checkPromptFiles: one that can't be read fails every session.
func (d *doctor) checkPromptFiles() {
	for _, f := range []struct{ key, path string }{
		{"base_prompt_file", d.cfg.basePromptFile}, {"extra_instructions_file", d.cfg.extraInstructionsFile},
	} {
		if f.path == "" {
			continue
		}
		if _, err := loadPromptFile(f.path); err != nil {
			d.fail(fmt.Sprintf("%s (%s from %s)", err, f.key, d.cfg.origin[f.key]),
				"write the file, or leave the key out")
			continue
		}
		d.ok("%s: %s", f.key, f.path)
	}
}

// checkLogFile: serve ends at once where it can't open one.
func (d *doctor) checkLogFile() {
	path := d.cfg.logFile
	if path == "" || path == os.DevNull {
		return
	}
	f, err := openOwn(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = probeDir(filepath.Dir(path))
	}
	if err != nil {
		d.fail(fmt.Sprintf("%v (log_file from %s)", err, d.cfg.origin["log_file"]),
			cmp.Or(shortage(err), "name a file that can be written, or leave log_file out to log to stderr"))
		return
	}
	d.ok("%s", path)
}

// checkSessionFiles: leases and records must be written and locked in there.
func (d *doctor) checkSessionFiles() {
	dir := filepath.Join(d.cfg.sessionsRoot, d.cfg.team)
	at, err := nearestDir(dir)
	if err == nil {
		err = probeDir(at)
	}
	if err != nil {
		d.fail(err.Error(), cmp.Or(shortage(err), d.mendSessionDir(cmp.Or(at, dir), dir)))
		return
	}
	if at == dir { // below it, records are made when there are some
		records := filepath.Join(dir, ".records")
		if err := probeIfThere(records); err != nil && d.cfg.persistThreads {
			d.warn(err.Error()+": sessions won't survive their process",
				cmp.Or(shortage(err), "make "+records+" writable"))
		}
	}
	threads := filepath.Join(d.cfg.sessionsRoot, ".threads")
	if err := probeIfThere(threads); err != nil {
		d.fail(err.Error()+": no thread can be locked", cmp.Or(shortage(err),
			"make "+threads+" a directory that you can write"))
		return
	}
	if st, err := os.Stat(d.cfg.sessionsRoot); err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		d.warn(fmt.Sprintf("%s has mode %04o: others on this machine may see what agents were asked",
			d.cfg.sessionsRoot, st.Mode().Perm()), "chmod 700 "+d.cfg.sessionsRoot)
	}
	d.ok("%s can be written and locked", at)
}

// mendSessionDir: what is missing below a directory that isn't yours is to be made; that one is not to be opened.
func (d *doctor) mendSessionDir(at, dir string) string {
	const or = "or set ATM_HOME to a directory that you can write"
	root := d.cfg.sessionsRoot // with .threads in it, which must be yours too
	if st, err := os.Stat(at); at != dir && err == nil && st.IsDir() && runtime.GOOS != "windows" {
		return fmt.Sprintf("sudo mkdir -p %s && sudo chown -R \"$(id -un)\" %s, %s", root, root, or)
	}
	return fmt.Sprintf("make %s a directory that you can write, %s", at, or)
}

// nearestDir is the directory, or the nearest above it that is there: those between are made when they are needed.
func nearestDir(dir string) (string, error) {
	for {
		st, err := os.Stat(dir)
		switch {
		case err == nil && !st.IsDir():
			return dir, fmt.Errorf("%s is a file where a directory must be", dir)
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "not a directory"):
			return dir, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir, err
		}
		dir = up
	}
}

// probeIfThere is for directories that are made when they are needed.
func probeIfThere(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return probeDir(dir)
}

// probeDir writes a file, locks it and removes it.
func probeDir(dir string) error {
	f, err := os.CreateTemp(dir, tempPrefix+"doctor-*")
	if err != nil {
		return fmt.Errorf("writing in %s: %w", dir, errors.Unwrap(err)) // without the name of the probe
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("probe\n"); err != nil {
		return err
	}
	if err := lockFile(f, true, false); err != nil {
		return fmt.Errorf("%w: a filesystem without flock can't hold sessions", err)
	}
	unlockFile(f)
	return nil
}

// checkLeases tells who holds which identity, and what dead processes left.
func (d *doctor) checkLeases() {
	ask, asked := d.flags["identity"]
	dir := filepath.Join(d.cfg.sessionsRoot, d.cfg.team)
	table := newLeases(d.cfg.sessionsRoot, d.cfg.team, d.cfg.persistThreads)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // said with the session files
	}
	book := addressBook{own: newTeamFile(d.cfg.teamsRoot, d.cfg.team, d.cfg.sessionsRoot), root: d.cfg.teamsRoot,
		aliases: d.cfg.aliases, roles: d.cfg.atmRoles}
	if asked {
		if taken := book.strange(ask); taken != nil {
			d.fail(fmt.Sprintf("%q of --identity can't be an agent's: %s", ask, taken.who()),
				fmt.Sprintf("take --identity %s", table.freeIdentity(ask, book.isStrange)))
		}
	}
	var held, free, left int
	for _, e := range entries {
		name, isLock := strings.CutSuffix(e.Name(), ".lock")
		if !isLock || validIdentity(name) != nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if !e.Type().IsRegular() {
			d.warn(fmt.Sprintf("%s is no file: identity %q can't be leased", path, name), "move it away")
			continue
		}
		was, err := readLease(path)
		if err != nil {
			d.warn(fmt.Sprintf("%v: identity %q can't be leased", err, name),
				"make it yours to read and write, or move it away")
			continue
		}
		agentID, pid, isHeld := table.holder(name)
		wanted := asked && strings.EqualFold(ask, name)
		if !isHeld {
			free++
			if was.PID != 0 {
				left++
			}
			continue
		}
		if held++; held > maxLeasesTold && !wanted {
			continue
		}
		by := holderText(agentID, pid, false)
		local := was.Host == table.host
		switch {
		case wanted:
			hint := "end it"
			if other := table.freeIdentity(ask, book.isStrange); other != "" {
				hint += fmt.Sprintf(", or take --identity %s, which is free", other)
			}
			d.fail(fmt.Sprintf("%q of --identity is in use %s", ask, by), hint)
		case local && !pidAlive(pid):
			d.warn(fmt.Sprintf("%q is in use %s, which is gone: something that it started still holds the lock", name,
				by), "end what holds it: lsof "+path)
		case !local && was.Host != "":
			d.ok("%q is in use %s on %s", name, by, was.Host)
		default:
			d.ok("%q is in use %s", name, by)
		}
	}
	if held > maxLeasesTold {
		d.ok("%d more are in use", held-maxLeasesTold)
	}
	text := fmt.Sprintf("%d in use, %d free", held, free)
	if left > 0 {
		text += fmt.Sprintf("; of the free, %s of a process that is gone: nothing to do, the next session takes it",
			counted(left, "stale lock"))
	}
	d.ok("%s", text)
}

// checkLeftovers are files of crashes, damaged files set aside, and directory locks that nobody lets go.
func (d *doctor) checkLeftovers(ctx context.Context) {
	dir, team := filepath.Join(d.cfg.sessionsRoot, d.cfg.team), filepath.Join(d.cfg.teamsRoot, d.cfg.team)
	temps, stale := 0, 0
	for _, sub := range []string{dir, filepath.Join(dir, ".records"), filepath.Join(team, "inboxes")} {
		entries, _ := os.ReadDir(sub) // none, or said with the session files or the team
		for _, e := range entries {
			path := filepath.Join(sub, e.Name())
			st, err := e.Info()
			switch {
			case err != nil:
			case strings.HasPrefix(e.Name(), tempPrefix) && time.Since(st.ModTime()) > tempLifetime:
				temps++
			case strings.Contains(e.Name(), ".corrupt-"):
				d.warn(path+" could not be understood and was set aside", "look what is in it, then remove it")
			}
		}
	}
	// A registry that doesn't persist only looks: it sets nothing aside and marks nothing.
	reg := newRegistry(d.cfg.sessionsRoot, d.cfg.team, false, slog.New(slog.DiscardHandler))
	if rows, err := readRows(reg); err == nil {
		records := 0
		files, _ := reg.files()
		for _, e := range files {
			if agentOfFile(e.Name()) != "" {
				records++
			}
		}
		if n := records - len(rows); n > 0 {
			d.warn(fmt.Sprintf("%s in %s can't be read", counted(n, "record"), reg.records),
				"make them readable; the next serve sets those aside that are damaged")
		}
		for _, r := range rows {
			if r.Status == statusStale && isOpen(r.rec.Status) {
				stale++
			}
		}
	}
	closeRecords(ctx, reg)
	locks, _ := filepath.Glob(filepath.Join(team, "*.lock"))
	more, _ := filepath.Glob(filepath.Join(team, "inboxes", "*.lock"))
	for _, path := range append(locks, more...) {
		if st, err := os.Stat(path); err == nil && st.IsDir() && time.Since(st.ModTime()) > staleDirLock {
			d.warn(fmt.Sprintf("%s was left %s ago by a process that is gone", path,
				time.Since(st.ModTime()).Round(time.Second)), "rmdir "+path)
		}
	}
	var parts []string
	if temps > 0 {
		parts = append(parts, counted(temps, "unfinished file"))
	}
	if stale > 0 {
		parts = append(parts, counted(stale, "session")+" of processes that are gone")
	}
	if old := d.cfg.oldSessions(); old != nil {
		d.ok("%s of %s in %s: serve --resume continues them, summary prints theirs, and nothing writes there",
			counted(len(old), "session"), ancestorName, d.cfg.ancestorRoot)
	}
	if parts != nil {
		d.ok("%s: the next serve tidies up, the sessions can be resumed", strings.Join(parts, ", "))
	}
}

// checkInotify: each process that watches takes an instance of its user's, each folder of inboxes one watch and each
// team another (sys_linux.go).
func (d *doctor) checkInotify() {
	const dir = "/proc/sys/fs/inotify"
	if runtime.GOOS != "linux" {
		return
	}
	instances, err1 := readNumber(filepath.Join(dir, "max_user_instances"))
	watches, err2 := readNumber(filepath.Join(dir, "max_user_watches"))
	if err1 != nil || err2 != nil {
		d.warn("the limits can't be read: "+errors.Join(err1, err2).Error(),
			"nothing to do: without inotify inboxes are polled")
		return
	}
	used := inotifyInUse()
	text := fmt.Sprintf("%d of %d instances in use by your processes, %d watches", used, instances, watches)
	const hint = "mail then comes by polling only; raise it: sysctl -w fs.inotify.max_user_instances=512 " +
		"fs.inotify.max_user_watches=65536"
	if instances-used < 1 || instances < leastInotifyInstances || watches < leastInotifyWatches {
		d.warn(text, hint)
		return
	}
	d.ok("%s", text)
}

func readNumber(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// inotifyInUse counts the instances of those processes that we may look into: our own user's.
func inotifyInUse() (n int) {
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name(), "fd")
		fds, _ := os.ReadDir(dir) // another user's
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == "anon_inode:inotify" {
				n++
			}
		}
	}
	return n
}
