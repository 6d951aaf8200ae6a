package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// Readers are shown in the order of their numbers, whatever that of their keys. The lock is
// taken until the last of their leases ends.
func TestReadersAreShownInOrderWithTheLongestTime(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for i, seconds := range []int64{60, 3600, 60} {
		lease, err := l.store.client.Grant(ctx, seconds)
		if err == nil {
			_, err = l.store.client.Put(ctx, fmt.Sprintf("x/%s%d-a", sharedDir, 9-i), "", clientv3.WithLease(lease.ID))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	info, err := l.Inspect(ctx, "x")
	inOrder := slices.IsSortedFunc(info.Holders, func(a, b locker.Holder) int { return cmp.Compare(a.Number, b.Number) })
	if err != nil || len(info.Holders) != 3 || !inOrder || info.TimeLeft != info.Holders[1].TimeLeft || info.TimeLeft <= time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
}

// What others put into their keys is no text of a holder.
func TestValueOfAnotherProgramsKeyIsNotShown(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	if _, err := l.store.client.Put(ctx, "x/694d9a5b6b1f0005", "a password"); err != nil {
		t.Fatal(err)
	}
	if info, err := l.Inspect(ctx, "x"); err != nil || !info.Held || info.Holder != "" {
		t.Errorf("%+v, %v", info, err)
	}
}

// More readers are broken than one transaction can delete. That the last of some has just left
// does not make them none.
func TestBreakFreesAnyNumberOfReaders(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	const readers = 2*mostOps + 3
	for i := range readers {
		if _, err := l.store.client.Put(ctx, fmt.Sprintf("x/%s%05d-a", sharedDir, i), ""); err != nil {
			t.Fatal(err)
		}
	}
	q, err := l.store.queue(ctx, "x")
	if err != nil || len(q.holders()) != readers {
		t.Fatalf("%+v, %v", q, err)
	}
	all := q.holders()
	for _, some := range [][]*mvccpb.KeyValue{all[:2], all[2:]} { // of the latter, a transaction finds but one
		if _, err := l.store.client.Delete(ctx, string(some[len(some)-1].Key)); err != nil {
			t.Fatal(err)
		}
		if freed, err := l.store.free(ctx, some); !freed || err != nil {
			t.Errorf("of %d freed %v, %v", len(some), freed, err)
		}
	}
	wantKeys(t, ctx, l)
}

// Whoever has as many servers as there are endpoints can lose the smaller half of them.
func TestToleratesGoesByTheEndpoints(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 0, 3: 1, 4: 1, 5: 2} {
		client, err := clientv3.New(clientv3.Config{Endpoints: slices.Repeat([]string{"127.0.0.1:1"}, n)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(client, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Guarantees().ServerFailures; got != want {
			t.Errorf("of %d servers %d may be lost, want %d", n, got, want)
		}
		_ = client.Close()
	}
}

// After a refusal there is nothing to clean up. Some of them end a wait: they stay the same
// until somebody changes something.
func TestRefusalsAreKnown(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	for err, ends := range map[error]bool{
		rpctypes.ErrPermissionDenied: true, rpctypes.ErrUserEmpty: true, rpctypes.ErrAuthFailed: true,
		rpctypes.ErrInvalidAuthToken: true, rpctypes.ErrNoSpace: true, rpctypes.ErrRequestTooLarge: true,
		rpctypes.ErrTooManyRequests: false, rpctypes.ErrAuthOldRevision: false, rpctypes.ErrLeaseNotFound: false,
	} {
		if got := errors.Is(l.store.explain(ctx, err), locker.ErrRefused); !void(err) || got != ends {
			t.Errorf("%v: void %v, ends a wait %v", err, void(err), got)
		}
	}
	for _, err := range []error{rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrStopped, errors.New("another")} {
		if void(err) || errors.Is(l.store.explain(ctx, err), locker.ErrRefused) {
			t.Errorf("%v: it may have been done", err)
		}
	}
}

// A lock that was lost with its session says so, whoever finds it out.
func TestReleaseSaysThatTheSessionHasEnded(t *testing.T) {
	l, ctx := process(t, testserver.Etcd(t, 1).Members[0]), aMinute(t)
	a := holds(t, ctx, l)
	if _, err := l.store.client.Revoke(ctx, a.session.id); err != nil {
		t.Fatal(err)
	}
	a.session.Lose(locker.ReasonSessionEnded, nil)
	var lost *locker.LostError
	if err := l.store.Release(ctx, a, 0); !errors.As(err, &lost) || lost.Reason != locker.ReasonSessionEnded {
		t.Errorf("Release: %v", err)
	}
}
