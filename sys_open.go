package main

// How a file is opened that somebody else may have placed: a FIFO there would
// make an open wait for ever, a device could do anything, and a link would have
// us lock, truncate or append to a file that its maker chose.
// Called by whoever opens a file that this process didn't just make itself.
// Never waits, and never reads without a limit.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = errors.New("larger than is read")
	errLinked     = errors.New("a link, or a file with a second name")
)

// openRegular opens a file to read it. It follows links, since people keep
// their configuration behind some, and refuses what isn't a regular file
// (errNotRegular).
func openRegular(path string) (*os.File, error) {
	return openChecked(path, os.O_RDONLY|openNonblock, 0, false)
}

// openOwn opens a file that we lock, append to or write in place. It refuses a
// symbolic link, a file with a second name (errLinked), and what isn't a regular
// file. O_TRUNC is not for flag, since the content would be gone before the file
// is checked: truncate what openOwn returned.
func openOwn(path string, flag int, perm fs.FileMode) (*os.File, error) {
	return openChecked(path, flag|openNonblock|openNoFollow, perm, true)
}

// readRegular reads a whole file of at most limit bytes, errTooLarge if it has
// more. It opens as openRegular does.
func readRegular(path string, limit int64) ([]byte, error) {
	data, _, err := readWithInfo(path, limit)
	return data, err
}

// readWithInfo is readRegular, with the opened file's owner and mode: a second
// look by name may find another file.
func readWithInfo(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, st, err
	}
	if int64(len(data)) > limit {
		return nil, st, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: over %d bytes", errTooLarge, limit)}
	}
	return data, st, nil
}

// openDir opens a directory to list it. What else has its name, a FIFO say, is
// refused at once.
func openDir(path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, openRefusal(path, err)
	}
	if st, err := d.Stat(); err != nil || !st.IsDir() {
		d.Close()
		return nil, cmp.Or(err, error(&fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}))
	}
	return d, nil
}

// openToAll are those of the directories that anybody on this machine may write
// to: who can put a file there speaks for everybody whose files it has. The
// sticky bit is no help, since a name that isn't there yet can still be taken.
func openToAll(dirs ...string) (open []string) {
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() {
			continue
		}
		if _, shared, ok := ownerAndMode(st); ok && shared && st.Mode().Perm()&0o002 != 0 {
			open = append(open, dir)
		}
	}
	return open
}

// openChecked looks before it opens, since opening a device can do things, and
// again at what it has opened, since the name may be another file's by then.
func openChecked(path string, flag int, perm fs.FileMode, own bool) (*os.File, error) {
	look := os.Stat
	if own {
		look = os.Lstat
	}
	if st, err := look(path); err == nil && !st.Mode().IsRegular() {
		if st.Mode()&fs.ModeSymlink != 0 {
			return nil, &fs.PathError{Op: "open", Path: path, Err: errLinked}
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, openRefusal(path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err == nil && own && hasOtherNames(path, st) {
		err = &fs.PathError{Op: "open", Path: path, Err: errLinked}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// dropFlock also ends the lock where a child that is just being forked has a copy of the descriptor.
func dropFlock(f *os.File) {
	unlockFile(f)
	f.Close()
}
