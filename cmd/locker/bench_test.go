//go:build unix

package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

// How long it takes until a busy machine grants a lock is not known: where there
// was none, it is measured again for longer.
func TestBenchMeasuresEveryStore(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url := s.url(t)
			for each := 200 * time.Millisecond; ; each *= 2 {
				r := benchJSON(t, url, each)
				if r.Backend != strings.SplitN(url, ":", 2)[0] || r.TTL != 12 || r.CutShort || len(r.Workloads) != 3 {
					t.Fatalf("%+v", r)
				}
				one, own, all := r.Workloads[0], r.Workloads[1], r.Workloads[2]
				if min(one.Locks, own.Locks, all.Locks) > 0 {
					checkFigures(t, r, each)
					return
				}
				if each > 10*time.Second {
					t.Fatalf("no locks in %v: %+v", each, r)
				}
			}
		})
	}
}

func benchJSON(t *testing.T, url string, each time.Duration) (r benchReport) {
	t.Helper()
	p := launch(t, "bench", "-b", url, "--json", "--ttl", "12s", "--time", each.String(), "--goroutines", "4", "--clients", "2", "--hold", "1ms")
	p.ends(0)
	if err := json.Unmarshal([]byte(p.out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, p.out)
	}
	return r
}

func checkFigures(t *testing.T, r benchReport, each time.Duration) {
	t.Helper()
	sum := 0
	for i, f := range r.Workloads {
		sum += f.Locks
		if f.Measured < each.Seconds() || f.Rate <= 0 || f.Rate > float64(f.Locks)/each.Seconds() {
			t.Errorf("%d locks in %v s are %v a second", f.Locks, f.Measured, f.Rate)
		}
		if i == 0 && (f.Goroutines != 1 || f.Clients != 1) || i > 0 && (f.Goroutines != 4 || f.Clients != 2) {
			t.Errorf("workload %d: %+v", i, f)
		}
		if i < 2 && (f.Name != "own names" || f.LockMedian <= 0 || f.LockP99 < f.LockMedian || f.UnlockP99 < f.UnlockMedian || f.ChangedHands != nil) {
			t.Errorf("workload %d: %+v", i, f)
		}
	}
	f := r.Workloads[2]
	if f.Name != "one name" || f.Hold != 0.001 || f.HandOverP99 < f.HandOverMedian || f.Jain < 0.25 || f.Jain > 1.000001 ||
		f.ChangedHands == nil || *f.ChangedHands > f.Locks || f.LockMedian != 0 {
		t.Errorf("one name: %+v", f)
	}
	if r.Checked < sum {
		t.Errorf("%d locks, %d of them checked", sum, r.Checked)
	}
}

func TestBenchPrintsTablesForPeople(t *testing.T) {
	t.Parallel()
	p := launch(t, "bench", "-b", redisURL(t), "--time", "100ms", "--goroutines", "3")
	p.ends(0)
	for _, want := range []string{"\n1 goroutine, 1 client ", "\n3 goroutines, 1 client ", "LOCK MEDIAN", "UNLOCK MEDIAN", "HAND-OVER MEDIAN", "FAIRNESS",
		"CHANGED HANDS", "one holder of a name at a time"} {
		if !strings.Contains("\n"+p.out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, p.out)
		}
	}
	if strings.Contains(p.out.String(), "cut short") || p.errs.String() != "" {
		t.Errorf("it was not cut short:\n%s%s", p.out, p.errs)
	}
}

// Nothing of this reaches a store: there is none at that address.
func TestBenchWrongUsageIsStatus64(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"x"}, []string{`"x"`}},
		{[]string{"--time", "0s"}, []string{"time", "above zero"}},
		{[]string{"--time", "-1s"}, []string{"time", "above zero"}},
		{[]string{"--time", "2"}, []string{"time", "duration"}},
		{[]string{"--hold", "-1ms"}, []string{"hold", "below zero"}},
		{[]string{"--goroutines", "0"}, []string{"goroutines", "from 1 to 10000"}},
		{[]string{"--goroutines", "-3"}, []string{"goroutines", "from 1 to 10000"}},
		{[]string{"--goroutines", "10001"}, []string{"goroutines", "from 1 to 10000"}},
		{[]string{"--goroutines", "99999999999999999999"}, []string{"goroutines: value out of range;"}},
		{[]string{"--goroutines", "many"}, []string{"goroutines: invalid syntax;"}},
		{[]string{"--clients", "0"}, []string{"clients", "from 1 to 10000"}},
		{[]string{"--clients", "9"}, []string{"--clients 9", "--goroutines 8", "locker help bench"}},
		{[]string{"--ttl", "1ms"}, []string{"ttl 1ms", "100ms", "locker help bench"}},
		{[]string{"--wait", "1s"}, []string{"-wait"}},
	} {
		p := launchWith(t, []string{"LOCKER_BACKEND=redis://u:" + secret + "@127.0.0.1:1"}, append([]string{"bench"}, c.args...)...)
		p.complains(64, c.wants...)
		if p.out.String() != "" {
			t.Errorf("%q: this belongs on stderr: %s", c.args, p.out)
		}
	}
}

func TestBenchOfAStoreThatIsNotThereIsStatus69(t *testing.T) {
	t.Parallel()
	gone := testserver.Redis(t)
	gone.Kill()
	p := launch(t, "bench", "-b", "redis://u:"+secret+"@"+gone.Addr())
	p.complains(69, gone.Addr(), "connection refused")
	if p.out.String() != "" {
		t.Errorf("figures of nothing: %s", p.out)
	}
}

// benchUnderWay starts a bench that would last for long, and waits until it locks.
func benchUnderWay(t *testing.T, srv *testserver.RedisServer) *process {
	t.Helper()
	p := launch(t, "bench", "-b", "redis://"+srv.Addr(), "--time", "1h")
	waitFor(t, "a lock", func() bool { return len(benchCounters(srv)) > 0 })
	return p
}

const counterPrefix = "lockstile:t:{"

// benchCounters are the keys of the counters of names.
func benchCounters(srv *testserver.RedisServer) []string {
	return strings.Fields(srv.Do("KEYS", counterPrefix+benchPrefix+"*"))
}

func TestBenchOfAStoreThatDiesSaysWhyOnceAndPrintsNoFigures(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p := benchUnderWay(t, srv)
	srv.Kill()
	p.complains(69, benchPrefix, "lock store unavailable")
	if p.out.String() != "" || strings.Count(p.errs.String(), "\n") != 1 {
		t.Errorf("it said:\n%s%s", p.out, p.errs)
	}
}

func TestBenchThatIsEndedByASignalPrintsWhatItHasAndLeavesNoLock(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		srv := testserver.Redis(t)
		p := benchUnderWay(t, srv)
		p.signal(sig)
		p.complains(128+int(sig), "cut short", "ended by a signal")
		p.says("cut short")
		p.says("checked: ")
		for _, key := range benchCounters(srv) {
			name := strings.TrimSuffix(strings.TrimPrefix(key, counterPrefix), "}")
			free(t, "redis://"+srv.Addr(), name)
		}
		if keys := srv.Do("KEYS", benchPrefix+"*"); keys != "" {
			t.Errorf("still there: %s", keys)
		}
	}
}

// The counter of the name is put far ahead, used, and then lost: the next token
// comes from the server's clock, which is far behind.
func TestBenchOfAStoreWhoseTokensGoBackIsStatus1(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p := benchUnderWay(t, srv)
	key := benchCounters(srv)[0]
	srv.Do("SET", key, "4000000000000000")
	waitFor(t, "a token from there", func() bool { return srv.Do("GET", key) > "4000000000000000" })
	srv.Do("DEL", key)
	p.complains(1, benchPrefix, "must increase")
	if p.out.String() != "" {
		t.Errorf("figures of a lock that is none: %s", p.out)
	}
}

func TestBenchLeavesTheLocksOfOthersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	launch(t, "bench", "-b", "local:"+dir, "--time", "10ms", "--goroutines", "2", "--hold", "0s").ends(0)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "lockstile-bench%2f") {
			t.Errorf("it has locked %s", f.Name())
		}
	}
}
