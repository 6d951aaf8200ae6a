package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// holds is begin with a lock that is granted.
func holds(t *testing.T, ctx context.Context, l *Locker) *attempt {
	t.Helper()
	a := begin(t, ctx, l, "x")
	takes(t, ctx, l, a, "")
	return a
}

// leaseOfKey returns the lease of an attempt's key.
func leaseOfKey(t *testing.T, ctx context.Context, l *Locker, a *attempt) clientv3.LeaseID {
	t.Helper()
	resp, err := l.store.client.Get(ctx, a.key)
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].CreateRevision != a.place || string(resp.Kvs[0].Value) != a.req.Holder {
		t.Fatalf("of the key at %d with %q there is %v, %v", a.place, a.req.Holder, resp, err)
	}
	return clientv3.LeaseID(resp.Kvs[0].Lease)
}

// leases returns how many there are.
func leases(t *testing.T, ctx context.Context, l *Locker) int {
	t.Helper()
	resp, err := l.store.client.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

// The answer to a keep may be lost, so it is sent again. That makes it no longer, and
// leaves no lease behind. A renewal that is on its way reports no loss.
func TestKeepThatIsSentAgainIsTheSame(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a := holds(t, ctx, l)
	if err := l.store.Release(ctx, a, 10*time.Minute); err != nil || a.left() {
		t.Fatalf("Release: %v", err)
	}
	lease := leaseOfKey(t, ctx, l, a)
	if lease == a.session.id {
		t.Error("the key has no lease of its own")
	}
	for _, give := range []func(context.Context, *attempt, time.Duration) error{
		l.store.Release,
		func(ctx context.Context, a *attempt, _ time.Duration) error { return l.store.Withdraw(ctx, a) }, // when the driver has given up
	} {
		a.there = true
		if err := give(ctx, a, 20*time.Minute); err != nil || a.left() {
			t.Errorf("sent again: %v", err)
		}
		if err := l.store.Renew(ctx, []*attempt{a})[0]; err != nil {
			t.Errorf("a renewal is answered with %v", err)
		}
		if again := leaseOfKey(t, ctx, l, a); again != lease {
			t.Errorf("it is on the lease %x, and then on %x", lease, again)
		}
		if n := leases(t, ctx, l); n != 2 {
			t.Errorf("there are %d leases, want the session and that of the key", n)
		}
	}
}

// The lease for a keep may have ended when it is used. The next request has another.
func TestKeepWhoseLeaseHasEndedTakesAnother(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a := holds(t, ctx, l)
	ended, err := l.store.client.Grant(ctx, 60)
	if err == nil {
		_, err = l.store.client.Revoke(ctx, ended.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.kept = ended.ID
	if err := l.store.Release(ctx, a, time.Hour); err == nil {
		t.Error("it is kept on a lease that has ended")
	}
	if err := l.store.Release(ctx, a, time.Hour); err != nil || leaseOfKey(t, ctx, l, a) == a.session.id {
		t.Errorf("once more: %v", err)
	}
}

// What is not as its attempt has put it is not kept: there may be another holder.
func TestKeyThatIsNotTheHoldersAnyMoreIsNotKept(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	for what, change := range map[string]func(ctx context.Context, l *Locker, a *attempt) error{
		"deleted": func(ctx context.Context, l *Locker, a *attempt) error {
			_, err := l.store.client.Delete(ctx, a.key)
			return err
		},
		"put again after that": func(ctx context.Context, l *Locker, a *attempt) error {
			_, err := l.store.client.Delete(ctx, a.key)
			if err == nil {
				_, err = l.store.client.Put(ctx, a.key, "", clientv3.WithLease(a.session.id))
			}
			return err
		},
		"without a lease": func(ctx context.Context, l *Locker, a *attempt) error {
			_, err := l.store.client.Put(ctx, a.key, "")
			return err
		},
		"on another lease": func(ctx context.Context, l *Locker, a *attempt) error {
			lease, err := l.store.client.Grant(ctx, 60)
			if err == nil {
				_, err = l.store.client.Put(ctx, a.key, "", clientv3.WithLease(lease.ID))
			}
			return err
		},
		"changed by hand": func(ctx context.Context, l *Locker, a *attempt) error {
			_, err := l.store.client.Put(ctx, a.key, "", clientv3.WithLease(a.session.id))
			return err
		},
		"on a lease that has ended": func(ctx context.Context, l *Locker, a *attempt) error {
			_, err := l.store.client.Revoke(ctx, a.session.id)
			return err
		},
	} {
		for _, unsure := range []bool{false, true} {
			l, ctx := process(t, srv), aMinute(t)
			a := holds(t, ctx, l)
			a.unsure = unsure
			if err := change(ctx, l, a); err != nil {
				t.Fatal(err)
			}
			before := leases(t, ctx, l)
			err := l.store.Release(ctx, a, time.Minute)
			lost := (*locker.LostError)(nil)
			if there := what != "deleted" && what != "on a lease that has ended"; there != (err == nil) || !there && !errors.As(err, &lost) || a.left() {
				t.Errorf("%s, unsure: %v: %v", what, unsure, err)
			}
			wantKeys(t, ctx, l)
			if after := leases(t, ctx, l); after != before {
				t.Errorf("%s, unsure: %v: %d leases, there were %d", what, unsure, after, before)
			}
		}
	}
}

// A request for the lock may arrive after the keep has ended.
func TestRequestThatArrivesAfterAKeepIsVoid(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a := holds(t, ctx, l)
	a.unsure = true
	if err := l.store.Release(ctx, a, time.Millisecond); err != nil || a.left() {
		t.Fatal(err)
	}
	for len(below(t, ctx, l, "x/")) > 0 {
		time.Sleep(time.Millisecond)
	}
	if ahead, err := l.store.ask(ctx, a, false); err == nil {
		t.Errorf("a late request is answered with %q", ahead)
	}
	wantKeys(t, ctx, l)
}

// The servers would end it by whole seconds.
func TestKeepIsEndedByItsProcessWhileThatLives(t *testing.T) {
	ctx := aMinute(t)
	l, as, asked := many(t, ctx, 1)
	if err := l.store.Release(ctx, as[0], time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for asked("LeaseRevoke") == 0 {
		if ctx.Err() != nil {
			t.Fatal("it leaves that to the servers")
		}
		time.Sleep(time.Millisecond)
	}
}
