package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/postgres"
)

func detached(t *testing.T, l locker.Locker, name string, opts ...locker.Option) locker.Handle {
	t.Helper()
	h, err := lock(t, l, name, opts...).Detach(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestResumeWhoseSecondTryIsRefusedHasHappened(t *testing.T) {
	t.Parallel()
	url := database(t)
	good := newLocker(t, url, postgres.Options{})
	h := detached(t, good, "a", locker.WithTTL(time.Hour))
	w, gone := &wire{}, atomic.Bool{}
	pool := poolWith(t, url, func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = w.dial
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if gone.Load() {
				c.Database = "gone"
			}
			return nil
		}
	})
	t.Cleanup(w.close)
	made, err := postgres.New(pool, postgres.Options{})
	l := ready(t, made, err)
	gone.Store(true)
	w.cutAt("lockstile_resume", dying)
	_, err = locker.Resume(soon(t), l, h)
	if err == nil {
		t.Fatal("it is resumed")
	}
	var failed *locker.ResumeError
	if errors.As(err, &failed) {
		h = failed.Handle
	}
	lock, again := locker.Resume(soon(t), good, h)
	if again != nil {
		info, _ := good.Inspect(soon(t), "a")
		t.Fatalf("Resume said: %v\n(ErrRefused %v, ErrOutcomeUnknown %v). The handle is good for: %v. The lock is left for %v, by nobody",
			err, errors.Is(err, locker.ErrRefused), errors.Is(err, locker.ErrOutcomeUnknown), again, info.TimeLeft.Round(time.Minute))
	}
	_ = lock.Unlock(soon(t))
}

func TestLateRenewalDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	t.Parallel()
	url := database(t)
	other := newLocker(t, url, postgres.Options{})
	pool, w := wired(t, url)
	made, err := postgres.New(pool, postgres.Options{})
	l := ready(t, made, err)
	held := lock(t, l, "a", locker.WithTTL(6*time.Second))
	w.cutAt("lockstile_renew", slow)
	locktest.Until(t, "a renewal is on its way", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.at == ""
	})
	var h locker.Handle
	locktest.Until(t, "the lock is detached over another connection", func() bool {
		h, err = held.Detach(soon(t))
		return err == nil || errors.Is(err, locker.ErrLost)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.RenewHandle(soon(t), other, h, locker.WithTTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before, _ := other.Inspect(soon(t), "a")
	if w.deliver() == 0 {
		t.Fatal("nothing was on its way")
	}
	time.Sleep(time.Second)
	if after, err := other.Inspect(soon(t), "a"); err != nil || after.TimeLeft < 50*time.Minute {
		t.Errorf("after a renewal for an hour, that was confirmed, %v were left; then a late one made it %v: %v", before.TimeLeft, after.TimeLeft, err)
	}
}

func TestLeaseThatHasEndedIsNotResumedThoughItsRowWasLocked(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := newLocker(t, url, postgres.Options{}), newLocker(t, url, postgres.Options{})
	h := detached(t, a, "a", locker.WithTTL(time.Second))
	tx, err := connect(t, url).Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(soon(t), `SELECT FROM lockstile_lease WHERE name = 'a' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	go func() {
		_, err := locker.Resume(soon(t), b, h, locker.WithTTL(time.Minute))
		resumed <- err
	}()
	time.Sleep(2 * time.Second)
	info, err := a.Inspect(soon(t), "a")
	if err != nil || info.Held {
		t.Fatalf("nothing is tested: %+v, %v", info, err)
	}
	if err := locker.RenewHandle(soon(t), a, h); !errors.Is(err, locker.ErrLost) {
		t.Fatalf("nothing is tested: %v", err)
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-resumed; err == nil {
		t.Error("the lock had ended, which Inspect and RenewHandle have said a second before; then it is resumed")
	}
}

// The answer is lost, and the statement is sent again. The lock is gone, and nobody knows whether the first one has freed it.
func TestReleaseByAHandleThatWasSentTwiceIsNeitherASuccessNorALoss(t *testing.T) {
	t.Parallel()
	url := database(t)
	good := newLocker(t, url, postgres.Options{})
	h := detached(t, good, "a", locker.WithTTL(time.Hour))
	pool, w := wired(t, url)
	made, err := postgres.New(pool, postgres.Options{})
	l := ready(t, made, err)
	for range 2 { // now it is there, and then it is not
		w.cutAt("lockstile_release", dying)
		if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	}
	if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	next, err := good.TryLock(soon(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	_ = next.Unlock(soon(t))
}

func TestRequestThatArrivesAfterItsLockWasFreedByAHandleIsRefused(t *testing.T) {
	t.Parallel()
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	h := detached(t, l, "a")
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.UnlockHandle(soon(t), l, h); err != nil {
		t.Fatal(err)
	}
	const late = `SELECT (lockstile_acquire_5('a', $1, 60000, '', false, '', 0, 0, false))._token`
	if token := query[int64](t, connect(t, url), late, d.IDs[0]); token != -1 {
		t.Errorf("the late request has token %d", token)
	}
}

// What is late here is the first statement of the process that had the lock first, or a Resume that was sent twice.
func TestLateStatementDoesNotShortenWhatAHandleHasRenewed(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]string{
		"acquire":           `SELECT (lockstile_acquire_5('a', $1, 5000, '', false, '', 0, 0, false))._token`,
		"resume sent twice": `SELECT lockstile_resume_5('a', $1, 5000, '', ARRAY['aaaaaaaaaaaaaaaaaaaaaa'], 60000, false)`,
	} {
		t.Run(name, func(t *testing.T) {
			url := database(t)
			l := newLocker(t, url, postgres.Options{})
			h := detached(t, l, "a", locker.WithTTL(5*time.Second))
			d, err := contract.ParseHandle(string(h))
			if err != nil {
				t.Fatal(err)
			}
			if err := locker.RenewHandle(soon(t), l, h, locker.WithTTL(time.Hour)); err != nil {
				t.Fatal(err)
			}
			before, _ := l.Inspect(soon(t), "a")
			query[int64](t, connect(t, url), late, d.IDs[0])
			if info, err := l.Inspect(soon(t), "a"); err != nil || info.TimeLeft < 50*time.Minute {
				t.Errorf("a renewal for an hour was confirmed, then a late statement arrives, and there are left %v, %v", info.TimeLeft, err)
			} else if info.Token != before.Token {
				t.Errorf("token %d was %d", info.Token, before.Token)
			}
		})
	}
}

// An answer of an unknown form may be a grant, as after Acquire.
func TestResumeWhoseAnswerNobodyUnderstandsMayHaveHappened(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]string{"zero": "0::bigint", "null": "NULL::bigint", "a number that is no loss": "-7::bigint"} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			l, admin := newLocker(t, url, postgres.Options{}), connect(t, url)
			h := detached(t, l, "a", locker.WithTTL(time.Hour))
			exec(t, admin, `ALTER FUNCTION lockstile_resume_5 RENAME TO granting`)
			exec(t, admin, `CREATE FUNCTION lockstile_resume_5(_name text, _value text, _ttl bigint, _holder text, _values text[], _remember bigint, _synced boolean)
				RETURNS bigint LANGUAGE sql AS $$ SELECT CASE WHEN granting($1, $2, $3, $4, $5, $6, $7) > 0 THEN `+answer+` END $$`)
			if lock, err := locker.Resume(soon(t), l, h); !errors.Is(err, locker.ErrOutcomeUnknown) {
				t.Errorf("%v, and %v (ErrLost: %v)", lock, err, errors.Is(err, locker.ErrLost))
			}
		})
	}
}

// The lock has ended, which Inspect, RenewHandle and Resume have said. Then it is freed.
func TestUnlockHandleOfALeaseThatHasEndedIsALoss(t *testing.T) {
	t.Parallel()
	url := database(t)
	l := newLocker(t, url, postgres.Options{})
	h := detached(t, l, "a", locker.WithTTL(time.Second))
	time.Sleep(1500 * time.Millisecond)
	info, err := l.Inspect(soon(t), "a")
	if err != nil || info.Held {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := locker.RenewHandle(soon(t), l, h); !errors.Is(err, locker.ErrLost) {
		t.Fatal(err)
	}
	if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, locker.ErrLost) {
		t.Errorf("RenewHandle said ErrLost: the lock has ended; then UnlockHandle says %v", err)
	}
}

// And somebody else has had it since, with LockTx, which leaves the row.
func TestUnlockHandleOfALeaseThatAnotherHasHadSinceIsALoss(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"who has it", "who had it"} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			l := newLocker(t, url, postgres.Options{})
			h := detached(t, l, "a", locker.WithTTL(time.Second))
			time.Sleep(1500 * time.Millisecond)
			tx, err := connect(t, url).Begin(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := postgres.LockTx(soon(t), tx, "a"); err != nil {
				t.Fatal(err)
			}
			if what == "who had it" {
				if err := tx.Commit(soon(t)); err != nil {
					t.Fatal(err)
				}
			}
			if err := locker.UnlockHandle(soon(t), l, h); !errors.Is(err, locker.ErrLost) {
				t.Errorf("UnlockHandle says %v", err)
			}
			_ = tx.Rollback(soon(t))
		})
	}
}
