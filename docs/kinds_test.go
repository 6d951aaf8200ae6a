package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/testserver"
)

// Goal: three read again and again, and each change is whole for them.
func TestReadersSeeWholeChanges(t *testing.T) {
	t.Parallel()
	env := []string{"LOCKER_BACKEND=redis://" + testserver.Redis(t).Addr()}
	dir := t.TempDir()
	for _, name := range []string{"buy", "sell"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var readers []*process.Process
	for range 3 {
		readers = append(readers, start(t, env, "rates", dir))
	}
	for value := range 5 {
		for _, p := range readers {
			p.Says(fmt.Sprintf("read %d\n", value))
		}
		start(t, env, "rates", dir, fmt.Sprint(value+1)).Ends(0)
	}
	for _, p := range readers {
		p.Says("read 5\n")
		p.Signal(syscall.SIGTERM)
		p.Ends(0)
	}
}

var licence = regexp.MustCompile(`has licence (\d), token \d+\n`)

// licences returns those that the programs have, in order.
func licences(all []*process.Process) (have []string) {
	for _, p := range all {
		if m := licence.FindStringSubmatch(p.Said()); m != nil {
			have = append(have, m[1])
		}
	}
	slices.Sort(have)
	return have
}

func wantLicences(t *testing.T, all []*process.Process, want ...string) {
	t.Helper()
	for end := time.Now().Add(process.Patience); !slices.Equal(licences(all), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("licences %v, want %v", licences(all), want)
		}
	}
}

// Method: of five one dies and one is told to stop. The other two get what these had.
func TestThreeHaveALicenceAndTheNextWhenOneEndsOrDies(t *testing.T) {
	t.Parallel()
	url := "redis://" + testserver.Redis(t).Addr()
	env := []string{"LOCKER_BACKEND=" + url}
	var first, next []*process.Process
	for range 3 {
		first = append(first, start(t, env, "render"))
	}
	wantLicences(t, first, "0", "1", "2")
	for range 2 {
		next = append(next, start(t, env, "render"))
	}
	waiting := func() bool {
		p := start(t, env, "locker", "inspect", "licence")
		p.Ends(0)
		return strings.Contains(p.Said(), "3 of 3 slots") && regexp.MustCompile(`waiters: +2`).MatchString(p.Said())
	}
	for end := time.Now().Add(process.Patience); !waiting(); {
		if time.Now().After(end) {
			t.Fatal("two do not wait for three")
		}
	}
	if have := licences(next); len(have) > 0 {
		t.Fatalf("besides three, others have the licences %v", have)
	}
	freed := licences(first[:2])
	first[0].Signal(syscall.SIGTERM)
	first[0].Ends(0)
	first[1].Signal(syscall.SIGKILL)
	wantLicences(t, next, freed...)
	for _, p := range append(next, first[2]) {
		p.Signal(syscall.SIGTERM)
		p.Ends(0)
	}
}
