//go:build !linux && !darwin

package main

// sys_watch_other.go owns the systems where no file-change notification is used, as Windows: newNotifier says so, and the
// poll stands alone.
// sys_watch.go is the only caller, and calls nothing else of it.

import (
	"fmt"
	"runtime"
)

// A notifier is never made here.
type notifier struct{}

func newNotifier() (*notifier, error) {
	return nil, fmt.Errorf("%w: there is no support for %s", errNoWatch, runtime.GOOS)
}

func (*notifier) arm(string, bool) (int, error) { return 0, errNoWatch }
func (*notifier) disarm(int)                    {}
func (*notifier) read() ([]notice, error)       { return nil, errNoWatch }
func (*notifier) close()                        {}
func (*notifier) release()                      {}
