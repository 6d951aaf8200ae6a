package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/proof/matrix"
)

func startLocal(lab *matrix.Lab) *running {
	dir := lab.TempDir()
	none := func() int64 { return 0 } // there is no server
	return &running{names: 10_000, subjects: []subject{
		{name: "bare flock, eight bytes written and synced, unlock", kind: floor, requests: none,
			open: func() (client, error) { return bareFile{lab.TempDir()}, nil }},
		{name: "lockstile/local", kind: ours, scales: true, requests: none, open: func() (client, error) {
			l, err := local.New(dir)
			if err != nil {
				return nil, err
			}
			return lockstile{l, nil, func() { _ = l.Close() }}, nil
		}},
	}}
}

// bareFile is what a lock with a token that survives a crash cannot do without:
// open, lock, write, sync, and close, which unlocks.
type bareFile struct{ dir string }

type bareFileHeld struct{ file *os.File }

func (b bareFile) Lock(_ context.Context, name string) (held, error) {
	path := filepath.Join(b.dir, strings.ReplaceAll(name, "/", "_"))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // a folder of our own
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte("12345678"), 0); err != nil {
		return nil, err
	}
	return bareFileHeld{f}, f.Sync()
}

func (bareFile) Close() {}

func (h bareFileHeld) Unlock(context.Context) error {
	if err := unix.Flock(int(h.file.Fd()), unix.LOCK_UN); err != nil {
		return err
	}
	return h.file.Close()
}
