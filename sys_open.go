package main

// How a file is opened that somebody else may have placed: a FIFO there would
// make an open wait for ever, a device could do anything, and a link would have
// us lock, truncate or append to a file that its maker chose.
// Called by whoever opens a file that this process didn't just make itself.
// Never waits, and never reads without a limit.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = errors.New("too large")
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
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: over %d bytes", errTooLarge, limit)}
	}
	return data, nil
}

func openChecked(path string, flag int, perm fs.FileMode, own bool) (*os.File, error) {
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
