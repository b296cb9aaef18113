package main

import "golang.org/x/sys/unix"

// exchangeFiles is how atm replaces an inbox.
func exchangeFiles(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
