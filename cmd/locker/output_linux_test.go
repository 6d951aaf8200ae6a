package main

import (
	"os"
	"os/exec"
	"testing"
)

// A script that reads the answer must not take half of it for all of it.
func TestOutputThatCannotBeWrittenIsStatus74(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"backends"},
		{"help"},
		{"help", "run"},
		{"run", "--help"},
		{"version"},
		{"inspect", "-b", "local:" + dir, "x"},
		{"inspect", "--json", "-b", "local:" + dir, "x"},
		{"list", "-b", "local:" + dir},
		{"backends", "--json"},
		{"version", "--json"},
		{"completion", "bash"},
		{"doctor", "-b", "local:" + dir},
		{"bench", "--time", "1ms", "-b", "local:" + dir},
		{"unlock", "--json", "--force", "-b", "local:" + dir, "x"},
		{"unlock", "--force", "-b", "local:" + dir, "x"},
	} {
		full := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" >/dev/full`, os.Args[0]}, args...)...)
		spawn(t, nil, full).complains(74, "output", "no space left")
	}
}

// Whoever read the messages has gone away. That must not show in the exit status.
func TestMessageThatNobodyReadsDoesNotChangeTheStatus(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `exec "$0" "$@" 2>&3`, os.Args[0], "run", "-b", "local:"+t.TempDir(), "--max-hold", "1s", "x", "--", "sleep", "600")
	cmd.ExtraFiles = []*os.File{w}
	spawn(t, nil, cmd).finishes(70)
}
