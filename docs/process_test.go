package docs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lockstile/locker/internal/process"
)

// start starts a program of the page.
func start(t *testing.T, env []string, name string, args ...string) *process.Process {
	t.Helper()
	return launch(t, env, exec.Command(filepath.Join(bin(t), name), args...))
}

// launch starts a command that finds the programs of the page first.
func launch(t *testing.T, env []string, cmd *exec.Cmd) *process.Process {
	t.Helper()
	cmd.Env = append([]string{"HOME=" + os.Getenv("HOME"), "PATH=" + bin(t) + ":" + os.Getenv("PATH")}, env...)
	return process.Start(t, cmd)
}

// script writes a shell script that stands for a program of the reader's.
func script(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// installed returns a folder that has the command locker, as /usr/local/bin has on the page.
func installed(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := errors.Join(os.Chmod(folder, 0o755), os.Symlink(filepath.Join(bin(t), "locker"), filepath.Join(folder, "locker"))); err != nil {
		t.Fatal(err)
	}
	return folder
}
