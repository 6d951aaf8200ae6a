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
		{"unlock", "--json", "--force", "-b", "local:" + dir, "x"},
		{"unlock", "--force", "-b", "local:" + dir, "x"},
	} {
		full := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" >/dev/full`, os.Args[0]}, args...)...)
		spawn(t, nil, full).complains(74, "output", "no space left")
	}
}
