package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// heirOf hands a lock over to a goroutine of the same Locker that waits for it.
func heirOf(tb testing.TB, l *postgres.Locker, held *locker.Lock, opts ...locker.Option) *locker.Lock {
	tb.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		heir, err := l.Lock(soon(tb), held.Name(), opts...)
		if err != nil {
			tb.Error(err)
		}
		got <- heir
	}()
	inLine(tb, l, held.Name())
	unlock(tb, held)
	heir := <-got
	if heir == nil {
		tb.FailNow()
	}
	return heir
}

// inLine returns when a goroutine of the Locker waits behind the holder.
func inLine(tb testing.TB, l *postgres.Locker, name string) {
	tb.Helper()
	eventually(tb, func() string {
		if postgres.InLine(l, name) < 2 {
			return "nobody waits"
		}
		return ""
	})
}

// Goal: an heir that does not wait for the disk believes no longer than in the
// lease that is there; all others have a lease of their own on it.
func TestHeirWaitsForTheDiskOrForNoMoreThanIsThere(t *testing.T) {
	request := func(opts ...locker.Option) *locker.Request {
		r, err := locker.NewRequest("a", append([]locker.Option{locker.WithTTL(30 * time.Second)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	cases := []struct {
		what    string
		next    *locker.Request
		age     time.Duration
		session bool
		quick   bool
	}{
		{"the same terms", request(), 9 * time.Second, false, true},
		{"a renewal is due", request(), 10 * time.Second, false, false},
		{"a longer TTL", request(locker.WithTTL(time.Minute)), time.Second, false, false},
		{"a shorter TTL", request(locker.WithTTL(time.Second)), time.Second, false, false},
		{"no renewal", request(locker.WithoutRenewal()), time.Second, false, false},
		{"a minimum of validity", request(locker.WithMinValidity(29 * time.Second)), time.Second, false, false},
		{"an end", request(locker.WithMaxHold(time.Minute)), time.Second, false, false},
		{"a session", request(), time.Second, true, false},
		{"nobody waits", nil, time.Second, false, false},
	}
	for _, c := range cases {
		onDisk := locker.Now().Add(-c.age)
		since, quick := postgres.PassOn(request(), c.next, onDisk, c.session)
		if quick != c.quick || quick && since != onDisk || !quick && since < onDisk.Add(c.age) {
			t.Errorf("%s: does without the disk: %v, counts from %v after what is on disk", c.what, quick, since.Sub(onDisk))
		}
	}
}

// Goal: a renewal that worked starts what heirs may take over, and no other does.
func TestRenewalStartsWhatHeirsTakeOver(t *testing.T) {
	l := newLocker(t, database(t), postgres.Options{})
	start := locker.Now()
	granted, renew, err := postgres.OnDisk(soon(t), l, "a")
	if err != nil || granted < start {
		t.Fatalf("a lease that was asked for after %v counts from %v: %v", start, granted, err)
	}
	middle := locker.Now()
	renewed, err := renew()
	if err != nil || renewed < middle {
		t.Errorf("a lease that was renewed after %v counts from %v: %v", middle, renewed, err)
	}
	if broken, err := l.Break(soon(t), "a"); !broken || err != nil {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if after, err := renew(); err == nil || after != renewed {
		t.Errorf("a lease that is gone counts from %v, %v before: %v", after, renewed, err)
	}
}

// Goal: what heirs take over stays what it is, from one to the next.
func TestHeirsOfHeirsBelieveNoLongerThanTheFirst(t *testing.T) {
	l := newLocker(t, database(t), postgres.Options{})
	held := lock(t, l, "a", locker.WithTTL(long))
	var end time.Time
	for range 10 { // a pause while it is read makes it too early
		if d := held.Deadline(); d.After(end) {
			end = d
		}
	}
	for range 2 {
		<-time.After(300 * time.Millisecond)
		held = heirOf(t, l, held, locker.WithTTL(long))
		if late := held.Deadline().Sub(end); late > 100*time.Millisecond {
			t.Errorf("an heir believes %v longer than the first", late)
		}
	}
	unlock(t, held)
}

// Goal: where there is a synchronous standby, a hand-over waits for it.
func TestHandOverOfALeaseWaitsForTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, lazy...)
	l := newLocker(t, primary.URL("postgres"), postgres.Options{})
	admin := connect(t, primary.URL("postgres"))
	held := lock(t, l, "a", locker.WithTTL(long))
	exec(t, admin, `ALTER SYSTEM SET synchronous_standby_names = 'none'`)
	exec(t, admin, `SELECT pg_reload_conf()`)
	eventually(t, func() string {
		if query[string](t, admin, `SELECT current_setting('synchronous_standby_names')`) != "none" {
			return "the setting is not in force"
		}
		return ""
	})
	got := make(chan error, 1)
	go func() {
		_, err := l.Lock(soon(t), "a", locker.WithTTL(long))
		got <- err
	}()
	inLine(t, l, "a")
	if err := held.Unlock(context.Background()); err == nil {
		t.Error("the hand-over did not wait for the standby")
	}
	exec(t, admin, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, admin, `SELECT pg_reload_conf()`)
	if err := <-got; err != nil {
		t.Errorf("the heir, when nobody waits for a standby any more: %v", err)
	}
}
