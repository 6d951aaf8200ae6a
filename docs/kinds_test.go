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

	"github.com/lockstile/locker/internal/lab/testserver"
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
	var readers []*process
	for range 3 {
		readers = append(readers, start(t, env, "rates", dir))
	}
	for value := range 5 {
		for _, p := range readers {
			p.says(fmt.Sprintf("read %d\n", value))
		}
		start(t, env, "rates", dir, fmt.Sprint(value+1)).ends(0)
	}
	for _, p := range readers {
		p.says("read 5\n")
		p.signal(syscall.SIGTERM)
		p.ends(0)
	}
}

var licence = regexp.MustCompile(`has licence (\d), token \d+\n`)

// licences returns those that the programs have, in order.
func licences(all []*process) (have []string) {
	for _, p := range all {
		if m := licence.FindStringSubmatch(p.said.String()); m != nil {
			have = append(have, m[1])
		}
	}
	slices.Sort(have)
	return have
}

func wantLicences(t *testing.T, all []*process, want ...string) {
	t.Helper()
	for end := time.Now().Add(patience); !slices.Equal(licences(all), want); time.Sleep(5 * time.Millisecond) {
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
	var first, next []*process
	for range 3 {
		first = append(first, start(t, env, "render"))
	}
	wantLicences(t, first, "0", "1", "2")
	for range 2 {
		next = append(next, start(t, env, "render"))
	}
	waiting := func() bool {
		p := start(t, env, "locker", "inspect", "licence")
		p.ends(0)
		return strings.Contains(p.said.String(), "3 of 3 slots") && regexp.MustCompile(`waiters: +2`).MatchString(p.said.String())
	}
	for end := time.Now().Add(patience); !waiting(); {
		if time.Now().After(end) {
			t.Fatal("two do not wait for three")
		}
	}
	if have := licences(next); len(have) > 0 {
		t.Fatalf("besides three, others have the licences %v", have)
	}
	freed := licences(first[:2])
	first[0].signal(syscall.SIGTERM)
	first[0].ends(0)
	first[1].signal(syscall.SIGKILL)
	wantLicences(t, next, freed...)
	for _, p := range append(next, first[2]) {
		p.signal(syscall.SIGTERM)
		p.ends(0)
	}
}
