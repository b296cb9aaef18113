package main

// sys_windows.go owns what Windows is asked for directly: LockFileEx, job objects, how programs are found and started,
// how a process ended, replacing a file that somebody has open. It declares the names of sys_unix.go, where the reasons
// that hold for both stand, and those of sys_linux.go: directories are not watched here, so that the poll stands alone.
// Files of every family below it that touch files or start programs call it.
// Never decides policy: its callers know what to lock, when to kill and what to say.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func isDiskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func isOutOfFiles(err error) bool { return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) }

// lockRange is one byte far past any content: LockFileEx is mandatory for the
// range it locks, and others must still read the holder's pid in the file.
func lockRange() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 0x7fffffff} }

func lockFile(f *os.File, exclusive, wait bool) error {
	var flags uint32
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, lockRange())
	if err == nil {
		return nil
	}
	if !wait && (err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return &os.PathError{Op: "LockFileEx", Path: f.Name(), Err: err}
}

func unlockFile(f *os.File) { _ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockRange()) }

// procGroup is a child and what it started, held by a job object that ends with its last handle: even if we are killed,
// the system kills the job. Order: newProcGroup, cmd.Start, attach, any of term and kill, then cmd.Wait and close. The
// waiter and the one who stops may be two goroutines.
type procGroup struct {
	mu  sync.Mutex // guards the fields below, also while they are in use
	pid int
	job windows.Handle // 0 before attach and after close
}

// newProcGroup: a new console group does not get our ^C, and can be sent CTRL_BREAK as one. The window is hidden for
// those whom a GUI client starts.
func newProcGroup(cmd *exec.Cmd) *procGroup {
	if cmd.SysProcAttr == nil { // else it has a command line
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags, cmd.SysProcAttr.HideWindow = windows.CREATE_NEW_PROCESS_GROUP, true
	return &procGroup{}
}

// lookProgram looks on PATH alone. The system looks into the working directory first, which may be somebody's
// repository with a codex.exe or a git.exe of its own.
func lookProgram(name string) (string, error) {
	if strings.ContainsAny(name, `:\/`) {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// programCommand: npm installs Codex as a batch file, codex.cmd. Windows hands that to cmd.exe, which reads the line by
// rules of its own: an & in a folder's name would begin a second command. So cmd.exe is started here, with each word
// quoted for it, and told to look for node on PATH only, as lookProgram does. Node inherits that variable, since
// cmd.exe has one environment, and so do the commands that Codex runs: a cmd.exe there wants .\build where it took
// build. The PowerShell that Codex prefers always does.
func programCommand(ctx context.Context, env []string, path string, args ...string) *exec.Cmd {
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".cmd" && ext != ".bat" {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = env
		return cmd
	}
	line := batchWord(path)
	for _, arg := range args {
		line += " " + batchWord(arg)
	}
	cmd := shellCommand(ctx, line)
	if env == nil {
		env = os.Environ()
	}
	cmd.Env = append(slices.Clip(env), "NoDefaultCurrentDirectoryInExePath=1")
	return cmd
}

// batchWord quotes a word for cmd.exe and for the program that the batch file passes it to. In quotes cmd.exe still
// replaces %NAME%; %cd:~,% is a piece of no characters that ends what would be a name.
func batchWord(word string) string {
	word = quotesInWord.ReplaceAllString(word, `$1$1""`)
	word = endOfWord.ReplaceAllString(word, "$1$1")
	return `"` + strings.ReplaceAll(word, "%", "%%cd:~,%") + `"`
}

var (
	quotesInWord = regexp.MustCompile(`(\\*)"`)
	endOfWord    = regexp.MustCompile(`(\\+)$`)
)

// shellCommand is a command line for the system's shell. /s takes off the outer quotes and nothing else.
func shellCommand(ctx context.Context, line string) *exec.Cmd {
	shell := "cmd.exe"
	if dir, err := windows.GetSystemDirectory(); err == nil {
		shell = filepath.Join(dir, shell)
	}
	cmd := exec.CommandContext(ctx, shell)
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd.exe /d /e:on /v:off /s /c "` + line + `"`}
	return cmd
}

// attach is called once, right after a successful Start. What the child starts in the microseconds before is only in
// the job of prepareProcess; os/exec can't start it suspended.
func (g *procGroup) attach(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = cmd.Process.Pid
	job, err := newJob()
	if err != nil {
		return err
	}
	// cmd.Process keeps a handle of its own, so the pid can't be another's yet.
	proc, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(g.pid))
	if err != nil {
		windows.CloseHandle(job)
		return fmt.Errorf("opening process %d: %w", g.pid, err)
	}
	defer windows.CloseHandle(proc)
	if err := windows.AssignProcessToJobObject(job, proc); err != nil {
		windows.CloseHandle(job)
		return fmt.Errorf("assigning process %d to its job: %w", g.pid, err)
	}
	g.job = job
	return nil
}

// newJob is a job that ends with its last handle.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("creating job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("setting up job object: %w", err)
	}
	return job, nil
}

// term sends CTRL_BREAK, the only thing a console program can catch. Without a console it fails, and the ladder goes
// on to kill.
func (g *procGroup) term() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid != 0 {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
	}
}

// kill ends every process of the job.
func (g *procGroup) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1)
	}
}

// close ends what is left of the job, as the handle is its last.
func (g *procGroup) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.CloseHandle(g.job)
	}
	g.pid, g.job = 0, 0
}

// exitReason is the wording of FR-11.2. A crash is an NTSTATUS, known by its
// hexadecimal spelling: 0xC0000005 is an access violation, 0xC000013A a ^C.
func exitReason(state *os.ProcessState) string {
	if state == nil {
		return "exit status unknown"
	}
	if code := uint32(state.ExitCode()); code >= 0x80000000 {
		return fmt.Sprintf("exit code 0x%08X", code)
	}
	return fmt.Sprintf("exit code %d", state.ExitCode())
}

func pidAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return err == windows.ERROR_ACCESS_DENIED
	}
	defer windows.CloseHandle(h)
	ev, err := windows.WaitForSingleObject(h, 0)
	return err == nil && ev == uint32(windows.WAIT_TIMEOUT)
}

const (
	openNonblock = 0 // no directory of Windows holds a pipe
	openNoFollow = 0 // hasOtherNames looks, after the open
)

func openRefusal(_ string, err error) error { return err }

func hasOtherNames(f *os.File, _ os.FileInfo) bool {
	link, err := os.Lstat(f.Name())
	var info windows.ByHandleFileInformation
	err2 := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info)
	return err == nil && link.Mode()&os.ModeSymlink != 0 || err2 == nil && info.NumberOfLinks > 1
}

// ownerAndMode: who may write a file stands in its access control list, which is not read here.
func ownerAndMode(os.FileInfo) (uid int, sharedWrite bool, ok bool) { return 0, false, false }

// syncDir only checks that the directory is there: NTFS journals its names, and a directory handle can't be flushed.
func syncDir(path string) error {
	_, err := os.Stat(path)
	return err
}

// openShared is os.OpenFile, without O_TRUNC and O_EXCL, of a file that others may rename and remove while it is open,
// as elsewhere: os.OpenFile lets nobody. In the moment of a rename nobody may open the file.
func openShared(path string, flag int, _ os.FileMode) (*os.File, error) {
	write := uint32(windows.GENERIC_WRITE)
	if flag&os.O_APPEND != 0 {
		write = windows.FILE_GENERIC_WRITE &^ windows.FILE_WRITE_DATA
	}
	access := uint32(windows.GENERIC_READ)
	switch {
	case flag&os.O_WRONLY != 0:
		access = write
	case flag&os.O_RDWR != 0:
		access |= write
	}
	mode := uint32(windows.OPEN_EXISTING)
	if flag&os.O_CREATE != 0 {
		mode = windows.OPEN_ALWAYS
	}
	var h windows.Handle
	name, err := windows.UTF16PtrFromString(path)
	if err == nil {
		err = insist(func() (err error) {
			h, err = windows.CreateFile(name, access,
				windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, mode,
				windows.FILE_ATTRIBUTE_NORMAL, 0)
			return err
		}, windows.ERROR_SHARING_VIOLATION)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// renameOver replaces the file new by old, in the same directory, even while somebody has new open who lets it be
// removed; that is what os.Root tries and os.Rename doesn't. A virus scanner, say, doesn't let it be removed. Not every
// disk can do that, a network's for one: where the rename fails, open, which the caller has of new, is closed before
// the next try.
func renameOver(old, new string, open ...*os.File) error {
	inUse := []syscall.Errno{windows.ERROR_ACCESS_DENIED, windows.ERROR_SHARING_VIOLATION}
	dir, err := os.OpenRoot(filepath.Dir(new))
	if err != nil {
		return err
	}
	defer dir.Close()
	rename := func() error { return dir.Rename(filepath.Base(old), filepath.Base(new)) }
	if len(open) > 0 && rename() == nil {
		return nil
	}
	for _, f := range open {
		f.Close()
	}
	err = insist(rename, inUse...)
	if short := (*os.LinkError)(nil); errors.As(err, &short) {
		err = &os.LinkError{Op: "rename", Old: old, New: new, Err: short.Err}
		if slices.ContainsFunc(inUse, func(e syscall.Errno) bool { return errors.Is(err, e) }) {
			return fmt.Errorf("%w; another program may have the file open: try again, or close it there", err)
		}
	}
	return err
}

// insist does again, for a quarter second, what fails for as long as another process is at a file.
func insist(do func() error, passing ...syscall.Errno) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := do()
		is := func(e syscall.Errno) bool { return errors.Is(err, e) }
		if !slices.ContainsFunc(passing, is) || wait > 128*time.Millisecond {
			return err
		}
		time.Sleep(wait)
	}
}

func terminalSize(f *os.File) (columns, rows int, ok bool) {
	var mode uint32
	if windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) != nil {
		return 0, 0, false
	}
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0, 0, true // input, not a screen
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}

func giveKeys(f *os.File) (restore func(), err error) {
	var was uint32
	h := windows.Handle(f.Fd())
	if err := windows.GetConsoleMode(h, &was); err != nil {
		return nil, err
	}
	mode := was &^ (windows.ENABLE_LINE_INPUT | windows.ENABLE_ECHO_INPUT | windows.ENABLE_PROCESSED_INPUT)
	return func() { _ = windows.SetConsoleMode(h, was) }, windows.SetConsoleMode(h, mode)
}

// readerGone: a write tells it here.
func readerGone(*os.File) bool { return false }

// terminalColors: the console of Windows prints escape sequences as they are
// until it is told; those before Windows 10 refuse.
func terminalColors(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// endsWithin: what Go calls SIGTERM is a console that closes, a logoff or a shutdown. Five seconds after it the system
// ends the process, whatever that does, and the answers and the child have their own share of them.
func endsWithin(sig os.Signal) (limit time.Duration, ok bool) {
	return 2 * time.Second, sig == syscall.SIGTERM
}

// prepareProcess puts us into a job that ends with us, since its only handle is ours. What we start is in that job from
// its first moment, while attach comes a little later: a kill of ours in between would leave the child.
func prepareProcess() {
	if job, err := newJob(); err == nil {
		_ = windows.AssignProcessToJobObject(job, windows.CurrentProcess())
	}
}

// termOnParentDeath: the system signals nobody, but a job object ends with its last handle, so with us.
func termOnParentDeath(*exec.Cmd) bool { return false }

// A notifier is never made here.
type notifier struct{}

func newNotifier() (*notifier, error) {
	return nil, fmt.Errorf("%w: there is no support for Windows", errNoWatch)
}

func (*notifier) arm(string, bool) (int, error) { return 0, errNoWatch }
func (*notifier) disarm(int)                    {}
func (*notifier) read() ([]notice, error)       { return nil, errNoWatch }
func (*notifier) close()                        {}
func (*notifier) release()                      {}
