//go:build !linux

package main

import "os"

// exchangeFiles stands for the exchange of two names, which takes a call of its own on every system.
func exchangeFiles(a, b string) error {
	third := a + ".swap"
	if err := os.Rename(b, third); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return err
	}
	return os.Rename(third, a)
}
