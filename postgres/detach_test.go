package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/postgres"
)

const resumeOther = `SELECT lockstile_resume_5('a', $1, 30000, '', ARRAY['other'], 60000, false)`

// The interleaving: the first request of the process that had the lock first is on its way over a slow connection. The lock was handed over, and given back.
// Then the request arrives, and finds the lock free. Others come late, too.
func TestRequestThatArrivesAfterItsLockWasHandedOverIsRefused(t *testing.T) {
	t.Parallel()
	admin := emptySchema(t)
	const acquireOther = `SELECT (lockstile_acquire_5('a', 'other', 60000, '', false, '', 0, 0, false))._token`
	first := query[int64](t, admin, acquireOther)
	second := query[int64](t, admin, resumeOther, "mine")
	if second < first+1024 {
		t.Errorf("token %d after token %d", second, first)
	}
	for what, sql := range map[string]string{
		"a renewal":      `SELECT code FROM lockstile_renew_5(ARRAY['a'], ARRAY['other'], ARRAY[30000], false)`,
		"a release":      `SELECT lockstile_release_5('a', 'other', false, 0, 0)`,
		"another resume": `SELECT lockstile_resume_5('a', 'third', 30000, '', ARRAY['other'], 60000, false)`,
		"a request":      acquireOther,
	} {
		if code := query[int64](t, admin, sql); code != -1 {
			t.Errorf("%s that is late is answered %d", what, code)
		}
	}
	if again := query[int64](t, admin, resumeOther, "mine"); again <= first {
		t.Errorf("sent again, it is answered %d", again)
	}
	if code := query[int64](t, admin, `SELECT lockstile_release_5('a', 'mine', false, 0, 0)`); code != 0 {
		t.Errorf("the release is answered %d", code)
	}
	if token := query[int64](t, admin, acquireOther); token != -1 {
		t.Errorf("the late request has token %d", token)
	}
}

// What is no lock of somebody's is not handed over.
func TestLeaseThatNobodyHasForHimselfIsNotResumed(t *testing.T) {
	t.Parallel()
	admin := emptySchema(t)
	for what, set := range map[string]string{
		"has ended": "expires = clock_timestamp()", "is reserved": "reserved = true", "is shared": "slots = -1", "is a slot": "slots = 2", "is kept": "value = '-' || value",
	} {
		exec(t, admin, `DELETE FROM lockstile_lease`)
		query[int64](t, admin, `SELECT (lockstile_acquire_5('a', 'other', 60000, '', false, '', 0, 0, false))._token`)
		exec(t, admin, `UPDATE lockstile_lease SET `+set)
		if code := query[int64](t, admin, resumeOther, "mine"); code != -1 {
			t.Errorf("a lease that %s: %d", what, code)
		}
	}
}

func TestLockThatWasBrokenIsNotResumed(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	h, err := lock(t, a, "a").Detach(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if broken, err := b.Break(soon(t), "a"); err != nil || !broken {
		t.Fatal(broken, err)
	}
	_, err = locker.Resume(soon(t), b, h)
	if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Reason != locker.ReasonForced {
		t.Error(err)
	}
}

// A handle comes from outside.
func TestHandleWithAValueThatIsNoneOfOursIsRefused(t *testing.T) {
	t.Parallel()
	l := newLocker(t, database(t), postgres.Options{})
	h := locker.Handle(contract.Detached{Backend: "postgres", Name: "a", TTL: time.Minute, IDs: []string{"-a stranger's value"}}.Handle())
	if _, err := locker.Resume(soon(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("resumed: %v", err)
	}
	if err := locker.RenewHandle(soon(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("renewed: %v", err)
	}
	if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unlocked: %v", err)
	}
}
