package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/testserver"
)

// process returns a Locker that stands for a process of its own.
func process(t *testing.T, srv *testserver.EtcdServer) *Locker {
	t.Helper()
	return at(t, srv.Addr())
}

func at(t *testing.T, addrs ...string) *Locker {
	t.Helper()
	return with(t, clientv3.Config{Endpoints: addrs})
}

// with is a Locker on a client of its own.
func with(t *testing.T, config clientv3.Config) *Locker {
	t.Helper()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func aMinute(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// begin returns an attempt at a name that has joined a session of an hour: no renewal
// comes between.
func begin(t *testing.T, ctx context.Context, l *Locker, name string, opts ...locker.Option) *attempt {
	t.Helper()
	req, err := driver.NewRequest(nil, name, append(opts, locker.WithTTL(time.Hour))...)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.store.Begin(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.join(ctx, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// kinds are the options of each kind of lock.
var kinds = map[string][]locker.Option{"exclusive": nil, "shared": {locker.WithShared()}, "slots": {locker.WithSlots(2)}}

// takes requires that an attempt gets its place behind a key, or the lock.
func takes(t *testing.T, ctx context.Context, l *Locker, a *attempt, behind string) {
	t.Helper()
	if ahead, err := l.store.ask(ctx, a, false); err != nil || ahead != behind {
		t.Fatalf("a place behind %q, %v, want %q", ahead, err, behind)
	}
}

// gives requires that an attempt gives the lock back.
func gives(t *testing.T, ctx context.Context, l *Locker, a *attempt) {
	t.Helper()
	if err := l.store.Release(ctx, a, 0); err != nil {
		t.Fatal(err)
	}
}

// below returns the keys with a prefix.
func below(t *testing.T, ctx context.Context, l *Locker, prefix string) []string {
	t.Helper()
	resp, err := l.store.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func wantKeys(t *testing.T, ctx context.Context, l *Locker, want ...string) {
	t.Helper()
	if got := below(t, ctx, l, "x/"); !slices.Equal(got, want) {
		t.Errorf("the queue is %q, want %q", got, want)
	}
}

// A request may be overtaken by its clean-up. Other attempts of the same process are not
// touched.
//
//	a's request is not answered; a is withdrawn; its request arrives
func TestRequestThatArrivesAfterItsCleanUpIsVoid(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	for kind, opts := range kinds {
		for _, only := range []bool{false, true} {
			l, ctx := process(t, srv), aMinute(t)
			a, b := begin(t, ctx, l, "x", opts...), begin(t, ctx, l, "x", opts...)
			a.unsure = true
			if err := l.store.Withdraw(ctx, a); err != nil || a.left() {
				t.Fatal(err)
			}
			if ahead, err := l.store.ask(ctx, a, only); err == nil {
				t.Errorf("%s: a late request is answered with %q", kind, ahead)
			}
			wantKeys(t, ctx, l)
			takes(t, ctx, l, b, "")
			wantKeys(t, ctx, l, b.key)
			gives(t, ctx, l, b)
		}
	}
}

// The first of two requests may arrive when the lock that the second was granted has been
// given back.
//
//	a asks, unheard; a asks again, and is granted; a unlocks; the first arrives
func TestRequestThatArrivesAfterTheReleaseIsVoid(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	for kind, opts := range kinds {
		l, ctx := process(t, srv), aMinute(t)
		a := begin(t, ctx, l, "x", opts...)
		late := *a
		a.unsure = true
		takes(t, ctx, l, a, "")
		gives(t, ctx, l, a)
		if ahead, err := l.store.ask(ctx, &late, false); err == nil {
			t.Errorf("%s: a late request is answered with %q", kind, ahead)
		}
		wantKeys(t, ctx, l)
	}
}

// Later locks of the same process hang on the same lease in etcd. A release that comes
// twice, or late, must not free them (etcd #22082).
func TestReleaseThatIsSentTwiceFreesNoLaterLockOfTheSession(t *testing.T) {
	srv := testserver.Etcd(t, 1).Members[0]
	for kind, opts := range kinds {
		for _, unsure := range []bool{false, true} {
			l, ctx := process(t, srv), aMinute(t)
			a, b := begin(t, ctx, l, "x", opts...), begin(t, ctx, l, "x", opts...)
			takes(t, ctx, l, a, "")
			gives(t, ctx, l, a)
			takes(t, ctx, l, b, "")
			a.unsure = unsure // as after a reply that was lost
			var lost *locker.LostError
			if err := l.store.Release(ctx, a, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonTakenOver {
				t.Errorf("%s: the second release: %v", kind, err)
			}
			if err := l.store.Withdraw(ctx, a); err != nil {
				t.Error(err)
			}
			wantKeys(t, ctx, l, b.key)
			gives(t, ctx, l, b)
		}
	}
}

func TestRequestThatIsSentTwiceGetsOnePlace(t *testing.T) {
	for _, only := range []bool{false, true} {
		l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
		a, b := begin(t, ctx, l, "x"), begin(t, ctx, l, "x")
		takes(t, ctx, l, a, "")
		takes(t, ctx, l, b, a.key)
		for _, all := range []struct {
			attempt *attempt
			ahead   string
		}{{a, ""}, {b, a.key}} {
			if only && all.attempt == b {
				continue // which it is told is not its own
			}
			place := all.attempt.place
			ahead, err := l.store.ask(ctx, all.attempt, only)
			if err != nil || ahead != all.ahead || all.attempt.place != place {
				t.Errorf("it is behind %q at %d, %v; was behind %q at %d", ahead, all.attempt.place, err, all.ahead, place)
			}
		}
		wantKeys(t, ctx, l, a.key, b.key)
	}
}

// A reader is not in its own way, nor is another, so nothing but its key tells the second
// request from the first.
func TestReadersRequestThatIsSentTwiceGetsOnePlace(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for _, only := range []bool{false, true} {
		a, b := begin(t, ctx, l, "x", kinds["shared"]...), begin(t, ctx, l, "x", kinds["shared"]...)
		for _, reader := range []*attempt{a, b} {
			takes(t, ctx, l, reader, "")
			place := reader.place
			if ahead, err := l.store.ask(ctx, reader, only); err != nil || ahead != "" || reader.place != place {
				t.Errorf("it is behind %q at %d, %v; was granted at %d", ahead, reader.place, err, place)
			}
		}
		wantKeys(t, ctx, l, a.key, b.key)
		gives(t, ctx, l, a)
		gives(t, ctx, l, b)
	}
}

// A request whose answer is lost is in doubt, one that is refused is not.
func TestOnlySilenceIsInDoubt(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for kind, opts := range kinds {
		a := begin(t, ctx, l, "x", opts...)
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := l.store.ask(over, a, true); !errors.Is(err, context.Canceled) || !a.left() {
			t.Errorf("%s: after silence (%v) there is nothing to clean up", kind, err)
		}
		b := begin(t, ctx, l, "y", opts...)
		if _, err := l.store.client.Revoke(ctx, b.session.id); err != nil {
			t.Fatal(err)
		}
		if _, err := l.store.ask(ctx, b, true); err == nil || b.left() {
			t.Errorf("%s: after a refusal (%v) there is something to clean up", kind, err)
		}
	}
}

// Marks hang on the session, so it must not have more and more of them.
func TestSessionWithManyMarksIsNotUsedForNewAttempts(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	first := begin(t, ctx, l, "x")
	for range mostMarks {
		a := begin(t, ctx, l, "x")
		a.unsure = true
		if err := l.store.Withdraw(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(below(t, ctx, l, marks)); n != mostMarks {
		t.Errorf("%d marks", n)
	}
	next := begin(t, ctx, l, "x")
	if first.session == next.session {
		t.Error("the session goes on")
	}
	if err := first.session.Context().Err(); err != nil {
		t.Errorf("the session of others has ended: %v", err)
	}
	if err := l.store.revoke(ctx, first.session.id); err != nil {
		t.Fatal(err)
	}
	if marks := below(t, ctx, l, marks); len(marks) > 0 {
		t.Errorf("%d marks are left", len(marks))
	}
}

// over is a session that has ended, while its lease has not.
type over struct{ driver.Session }

func (over) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// By the local clock a session may be over while its lease is not: what hangs on that
// must not stand in the way of who takes a new place.
func TestPlaceOnASessionThatIsOverIsGivenUpForANewOne(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a := begin(t, ctx, l, "x")
	takes(t, ctx, l, a, "")
	former := a.place
	a.session = &session{Session: over{a.session.Session}, id: a.session.id}
	if grant, _, err := l.store.Acquire(ctx, a, nil); err != nil || grant.First != uint64(a.place)*tokens || a.place == former {
		t.Fatalf("granted %d at %d after %d, %v", grant.First, a.place, former, err)
	}
	wantKeys(t, ctx, l, a.key)
}

// What happens between our place and the beginning of the watch is not missed.
//
//	b takes a place behind a; a goes; b begins to watch a's key
func TestKeyAheadThatGoesBeforeItIsWatchedIsSeenToBeGone(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a, b := begin(t, ctx, l, "x"), begin(t, ctx, l, "x")
	takes(t, ctx, l, a, "")
	takes(t, ctx, l, b, a.key)
	if err := l.store.Release(ctx, a, 0); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(ctx, locker.DefaultTTL/2) // it looks by itself then
	defer cancel()
	if _, ahead, err := l.store.follow(soon, b, a.key); err != nil || ahead != "" {
		t.Errorf("%q is ahead, %v", ahead, err)
	}
}

// That nobody is ahead is no grant to one whose own key is not there as it was put.
//
//	b waits for a; somebody deletes b's key, and may put another; a goes
func TestPlaceThatWasDeletedGrantsNothing(t *testing.T) {
	for _, anew := range []string{"", "the same", "a later one"} {
		l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
		a, b := begin(t, ctx, l, "x"), begin(t, ctx, l, "x")
		takes(t, ctx, l, a, "")
		takes(t, ctx, l, b, a.key)
		if _, err := l.store.client.Delete(ctx, b.key); err != nil {
			t.Fatal(err)
		}
		if anew != "" {
			key := map[string]string{"the same": b.key, "a later one": b.folder + "later"}[anew]
			if _, err := l.store.client.Put(ctx, key, ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, goes := range []bool{false, true} {
			if goes {
				if err := l.store.Release(ctx, a, 0); err != nil {
					t.Fatal(err)
				}
			}
			if ahead, err := l.store.look(ctx, b, ""); err == nil {
				t.Errorf("put anew: %q; a has gone: %v; %q is ahead", anew, goes, ahead)
			}
		}
	}
}

// The key of a Mutex is the same each time that its session locks it.
func TestBreakFreesOnlyWhatItHasRead(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	const mutex = "x/694d9a5b6b1f0005"
	put := func() {
		t.Helper()
		if _, err := l.store.client.Put(ctx, mutex, ""); err != nil {
			t.Fatal(err)
		}
	}
	put()
	q, err := l.store.queue(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.client.Delete(ctx, mutex); err != nil {
		t.Fatal(err)
	}
	put()
	if freed, err := l.store.free(ctx, q.holders()); freed || err != nil {
		t.Errorf("freed %v, %v", freed, err)
	}
	wantKeys(t, ctx, l, mutex)
	if freed, err := l.store.Break(ctx, "x", 0); !freed || err != nil {
		t.Errorf("freed %v, %v", freed, err)
	}
	wantKeys(t, ctx, l)
}

func TestTokensEndWhereTheyWouldGoBack(t *testing.T) {
	for revision, ok := range map[int64]bool{1: true, 1 << 40: true, lastRevision: true, lastRevision + 1: false, math.MaxInt64: false, 0: false, -1: false} {
		first, err := firstToken(revision)
		if ok != (err == nil) || ok && (first/tokens != uint64(revision) || first+tokens-1 < first) {
			t.Errorf("revision %d: %d, %v", revision, first, err)
		}
	}
}

// A number of a reader's or a slot's is for one grant.
func TestOnlyAnExclusiveGrantHasManyTokens(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for kind, opts := range kinds {
		a := begin(t, ctx, l, kind, opts...)
		want := uint32(1)
		if kind == "exclusive" {
			want = tokens
		}
		if grant, _, err := l.store.Acquire(ctx, a, nil); err != nil || grant.Count != want || grant.First != uint64(a.place)*tokens {
			t.Errorf("%s: granted %d from %d on at %d, %v", kind, grant.Count, grant.First, a.place, err)
		}
	}
}

// many returns holders of all kinds on one session, and how often their server was asked what.
func many(t *testing.T, ctx context.Context, n int) (l *Locker, as []*attempt, asked func(method string) float64) {
	t.Helper()
	srv := testserver.Etcd(t, 1).Members[0]
	l = process(t, srv)
	kinds := slices.Collect(maps.Values(kinds))
	for i := range n {
		a := begin(t, ctx, l, fmt.Sprint(i), kinds[i%len(kinds)]...)
		takes(t, ctx, l, a, "")
		as = append(as, a)
	}
	return l, as, func(method string) float64 {
		t.Helper()
		return srv.Metric(fmt.Sprintf(`grpc_server_started_total{grpc_method="%s"`, method))
	}
}

func TestRenewalOfManyLocksIsTwoRequests(t *testing.T) {
	const n, gone = 500, 150
	ctx := aMinute(t)
	l, as, asked := many(t, ctx, n)
	lists, keepAlives, txns := asked("LeaseTimeToLive"), asked("LeaseKeepAlive"), asked("Txn")
	if err := errors.Join(append(l.store.Renew(ctx, as), l.store.keepAlive(ctx, as[0].session))...); err != nil {
		t.Error(err)
	}
	if lists, keepAlives, txns := asked("LeaseTimeToLive")-lists, asked("LeaseKeepAlive")-keepAlives, asked("Txn")-txns; lists+keepAlives != 2 || txns != 0 {
		t.Errorf("%v lists of keys, %v renewals and %v transactions", lists, keepAlives, txns)
	}
	for _, a := range as[:gone] {
		if _, err := l.store.client.Delete(ctx, a.key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.store.client.Put(ctx, as[0].key, ""); err != nil { // somebody's, by hand
		t.Fatal(err)
	}
	txns = asked("Txn")
	for i, err := range l.store.Renew(ctx, as) {
		var lost *locker.LostError
		if errors.As(err, &lost) != (i < gone) || lost != nil && lost.Reason != locker.ReasonTakenOver {
			t.Errorf("%d of %d that are gone: %v", i, gone, err)
		}
	}
	if more := asked("Txn") - txns; more != 2 {
		t.Errorf("%v transactions looked for %d keys", more, gone)
	}
}

// All that hangs on a session ends for the same reason, also where a lock is renewed before
// the session is.
func TestRenewalOfASessionThatHasEndedSaysSoOfAllItsLocks(t *testing.T) {
	ctx := aMinute(t)
	l, as, _ := many(t, ctx, 3)
	if _, err := l.store.client.Revoke(ctx, as[0].session.id); err != nil {
		t.Fatal(err)
	}
	for i, err := range append(l.store.Renew(ctx, as), l.store.keepAlive(ctx, as[0].session)) {
		if lost := (*locker.LostError)(nil); !errors.As(err, &lost) || lost.Reason != locker.ReasonSessionEnded {
			t.Errorf("%d of %d: %v", i, len(as), err)
		}
	}
}
