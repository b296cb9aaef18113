package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOpenOwnRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	target, soft, hard := filepath.Join(dir, "t"), filepath.Join(dir, "s"), filepath.Join(dir, "h")
	if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openOwn(target, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Symlink(target, soft); err != nil {
		t.Skip(err) // Windows gives links to administrators only
	}
	if err := os.Link(target, hard); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{soft, hard} {
		if f, err := openOwn(path, os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, errLinked) {
			t.Errorf("openOwn(%s) = %v, %v; want errLinked", filepath.Base(path), f, err)
		}
	}
	if data, err := readRegular(soft, 4); err != nil || string(data) != "kept" {
		t.Errorf("readRegular through a link = %q, %v", data, err)
	}
	if _, err := readRegular(soft, 3); !errors.Is(err, errTooLarge) {
		t.Errorf("readRegular with a limit of 3 = %v, want errTooLarge", err)
	}
	if _, err := readRegular(dir, 10); !errors.Is(err, errNotRegular) {
		t.Errorf("readRegular of a directory = %v, want errNotRegular", err)
	}
}
