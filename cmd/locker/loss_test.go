//go:build unix

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/internal/testserver"
)

// The last lease is read from the store before the store is killed: no renewal
// reaches it after that.
func TestCommandIsAskedToEndBeforeTheLockEnds(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	// The child says when it was asked, and has time to do so.
	p := launch(t, "run", "-b", "redis://"+srv.Addr(), "--ttl", "12s", "x", "--",
		"sh", "-c", `trap 'echo "asked $(date +%s%3N)"; exit 0' TERM; echo up; read x`)
	p.says("up")
	end := killAtLease(t, srv, "x", 12*time.Second)
	p.complains(70, `"sh" was ended`, `the lock "x" was about to end`)
	if asked := p.number("asked"); asked >= end {
		t.Errorf("it was asked to end %d ms after the lock's end", asked-end)
	}
}

// killAtLease kills the server and returns when the lease of name ends at the
// latest, in milliseconds on the wall clock.
func killAtLease(t *testing.T, srv *testserver.RedisServer, name string, ttl time.Duration) uint64 {
	t.Helper()
	end, err := strconv.ParseUint(srv.Do("PEXPIRETIME", name), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	now := uint64(time.Now().UnixMilli())
	if whole := uint64(ttl.Milliseconds()); end < now+whole*7/10 { // a renewal may have come between
		end = now + whole
	}
	return end
}

func TestCommandThatIgnoresSIGTERMIsKilledBeforeTheLockEnds(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p := launch(t, "run", "-b", "redis://"+srv.Addr(), "--ttl", "12s", "x", "--",
		"sh", "-c", `trap '' TERM; echo up; while :; do echo "alive $(date +%s%3N)"; sleep 0.05; done`)
	p.says("up")
	end := killAtLease(t, srv, "x", 12*time.Second)
	p.complains(70, `the lock "x" was about to end`)
	if last := lastNumber(t, p.out.String(), "alive"); last >= end {
		t.Errorf("it lived until %d ms after the lock's end", last-end)
	}
}

// lastNumber is the number in the last whole line that begins with key.
func lastNumber(t *testing.T, text, key string) (last uint64) {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok && strings.HasSuffix(rest, "\n") {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			last = n
		}
	}
	return last
}

// Both the grandchild that heeds SIGTERM and the one that does not are part of
// the group, also when the child itself has ended at once.
func TestWholeGroupEndsWithTheLock(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p := launch(t, "run", "-b", "redis://"+srv.Addr(), "--ttl", "12s", "x", "--", "sh", "-c",
		`exec 2>/dev/null # where shells tell who was ended
		sh -c 'trap "echo first asked; exit" TERM; echo first up; while :; do sleep 0.05; done' &
		sh -c 'trap "" TERM; echo second up; while :; do sleep 0.05; done' &
		read x`)
	p.says("first up")
	p.says("second up")
	srv.Kill()
	p.complains(70, "was about to end")
	p.says("first asked")
}

func TestStoreThatComesBackInTimeWithItsDataCostsNothing(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	url := "redis://" + srv.Addr()
	p := launch(t, "run", "-b", url, "--ttl", "12s", "x", "--", "sh", "-c", report)
	p.word("token")
	before := srv.Do("PEXPIRETIME", "x")
	srv.Kill()
	srv.Start()
	waitFor(t, "a renewal", func() bool { return srv.Do("PEXPIRETIME", "x") > before })
	p.goOn()
	p.ends(0)
	free(t, url, "x")
}

// A holder that was stopped past the end of its lease believes nothing when it
// goes on, and the storage believes nothing of it.
func TestHolderThatWasPausedEndsItsCommandAndItsTokenIsStale(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	first := launch(t, "run", "-b", url, "--ttl", "1s", "x", "--", "sh", "-c",
		`exec 2>/dev/null; echo "token $LOCKER_TOKEN"; trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done`)
	old := first.number("token")
	first.signal(syscall.SIGSTOP)
	second := launch(t, "run", "-b", url, "--ttl", "10m", "x", "--", "sh", "-c", report)
	current := second.number("token")
	if current <= old {
		t.Errorf("token %d after %d", current, old)
	}
	guardRefuses(t, srv.Addr(), old, current)
	first.signal(syscall.SIGCONT)
	first.complains(70, `"sh" was ended`, `lock "x" lost`)
	first.says("asked")
	second.goOn()
	second.ends(0)
}

func guardRefuses(t *testing.T, addr string, old, current uint64) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	guard, err := redisfence.NewGuard(rdb)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := guard.Do(ctx, "data", fencing.Token(current), "SET", "new"); err != nil {
		t.Fatal(err)
	}
	if _, err := guard.Do(ctx, "data", fencing.Token(old), "SET", "late"); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("the late write with token %d after %d: %v", old, current, err)
	}
	if got := rdb.Get(ctx, "data").Val(); got != "new" {
		t.Errorf("the storage has %q", got)
	}
}

// A command that went on while nobody watched and ends before anybody looks
// again did not run under its lock.
func TestCommandThatEndedWhileTheLockWasLostIsNotASuccess(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	p := launch(t, "run", "-b", url, "--ttl", "1s", "x", "--", "sh", "-c", report)
	p.word("token")
	p.signal(syscall.SIGSTOP)
	waitFor(t, "the lease to end", func() bool { return srv.Do("EXISTS", "x") == "0" })
	p.goOn()
	p.says("over")
	p.signal(syscall.SIGCONT)
	p.complains(70, `lock "x" lost`)
}

func TestLockThatIsForcedEndsItsCommand(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	url := "redis://" + srv.Addr()
	old := launch(t, "run", "-b", url, "--ttl", "3s", "x", "--", "sh", "-c", report)
	first := old.number("token")
	breaker := launch(t, "unlock", "-b", url, "--force", "x")
	breaker.ends(0)
	breaker.says(`"x" was taken from its holder: `)
	next := launch(t, "run", "-b", url, "--no-wait", "x", "--", "sh", "-c", report)
	if second := next.number("token"); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	old.complains(70, `lock "x" lost`)
	next.goOn()
	next.ends(0)
}

func TestHoldHasTheEndThatMaxHoldSets(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	p := launch(t, "run", "-b", url, "--max-hold", "1s", "x", "--", "sh", "-c", report)
	p.complains(70, "--max-hold 1s is over")
	launch(t, "run", "-b", url, "--wait", "10s", "x", "--", "true").ends(0)
}

// A lock that could not be given back is reported, and does not change what the command
// has achieved.
func TestLockThatCannotBeGivenBackIsAWarning(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	p := launch(t, "run", "-b", "redis://"+srv.Addr(), "x", "--", "sh", "-c", report+"; exit 4")
	p.word("token")
	srv.Kill()
	p.goOn()
	p.complains(4, "warning", "could not be given back", srv.Addr())
}

// The lock is gone, and its renewal is far off: only giving it back shows that.
func TestLossThatIsFoundWhenTheLockIsGivenBackIsStatus70(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	p := launch(t, "run", "-b", url, "--ttl", "10m", "x", "--", "sh", "-c",
		`exec 2>/dev/null
		sh -c 'trap "echo rest asked; exit" TERM; echo first up; while :; do sleep 0.05; done' &
		sh -c 'trap "" TERM; echo second up; while :; do sleep 0.05; done' & # which has to be killed
		read x`)
	p.says("first up")
	p.says("second up")
	launch(t, "unlock", "-b", url, "--force", "x").ends(0)
	p.goOn()
	p.complains(70, `the last part of "sh" ran without its lock`)
	p.says("rest asked")
}

func TestStoppedCommandHearsThatItIsToEnd(t *testing.T) {
	t.Parallel()
	// The child stops again and again: it is continued once at the start too,
	// which may come after its first stop.
	srv := testserver.Redis(t)
	p := launch(t, "run", "-b", "redis://"+srv.Addr(), "--ttl", "8s", "x", "--", "sh", "-c", `trap 'echo asked; exit 0' TERM; echo up; while :; do kill -STOP $$; done`)
	p.says("up")
	srv.Kill()
	p.complains(70, "was about to end")
	p.says("asked")
}
