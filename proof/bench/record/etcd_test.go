package record

import (
	"context"
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
)

func etcdAt(t *testing.T, endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// session lasts for longer than the test: what ends it is the test alone.
func session(t *testing.T, client *clientv3.Client) *concurrency.Session {
	s, err := concurrency.NewSession(client, concurrency.WithTTL(600))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Orphan() })
	return s
}

// keys returns how many keys are below a prefix.
func keys(t *testing.T, client *clientv3.Client, prefix string) int {
	t.Helper()
	got, err := client.Get(patient(t), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return int(got.Count)
}

// calling calls f in a goroutine and returns where its error comes.
func calling(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// TestCandidateWhoseSessionHasEndedIsElected is etcd-io/etcd #19597.
func TestCandidateWhoseSessionHasEndedIsElected(t *testing.T) {
	client := etcdAt(t, testserver.Etcd(t, 1).Endpoints()...)
	t.Run("theirs", func(t *testing.T) {
		ctx := patient(t)
		leader := concurrency.NewElection(session(t, client), "e")
		if err := leader.Campaign(ctx, "leader"); err != nil {
			t.Fatal(err)
		}
		gone := session(t, client)
		late := calling(func() error { return concurrency.NewElection(gone, "e").Campaign(ctx, "gone") })
		await(t, "the second candidate is in line", func() bool { return keys(t, client, "e/") == 2 })
		if _, err := client.Revoke(ctx, gone.Lease()); err != nil {
			t.Fatal(err)
		}
		<-gone.Done()
		third := calling(func() error { return concurrency.NewElection(session(t, client), "e").Campaign(ctx, "third") })
		await(t, "the third candidate is in line", func() bool { return keys(t, client, "e/") == 2 })
		if err := leader.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-third; err != nil {
			t.Fatal(err)
		}
		if err := <-late; err != nil {
			mended(t, "Campaign says: %v", err)
		}
		t.Log("two Campaigns returned nil; the session of one of them had ended before, and its key is gone")
	})
	t.Run("ours", func(t *testing.T) { sessionOfAWaiterEnds(t, client, nil, nil) })
}

// TestWriterWhoseSessionHasEndedHoldsBesideAReader is etcd-io/etcd #16221.
func TestWriterWhoseSessionHasEndedHoldsBesideAReader(t *testing.T) {
	client := etcdAt(t, testserver.Etcd(t, 1).Endpoints()...)
	t.Run("theirs", func(t *testing.T) {
		first := recipe.NewRWMutex(session(t, client), "rw")
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		gone := session(t, client)
		writer := calling(recipe.NewRWMutex(gone, "rw").Lock)
		await(t, "the second writer is in line", func() bool { return keys(t, client, "rw/") == 2 })
		if _, err := client.Revoke(patient(t), gone.Lease()); err != nil {
			t.Fatal(err)
		}
		<-gone.Done()
		reader := calling(recipe.NewRWMutex(session(t, client), "rw").RLock)
		await(t, "the reader is in line", func() bool { return keys(t, client, "rw/") == 2 })
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-reader; err != nil {
			t.Fatal(err)
		}
		if err := <-writer; err != nil {
			mended(t, "Lock says: %v", err)
		}
		t.Log("a writer and a reader hold the lock; the session of the writer had ended before, and its key is gone")
	})
	t.Run("ours", func(t *testing.T) {
		sessionOfAWaiterEnds(t, client, nil, []locker.Option{locker.WithShared()})
	})
}

// sessionOfAWaiterEnds has two wait for a lock, ends the lease of the first, and unlocks:
// one after the other must hold it.
func sessionOfAWaiterEnds(t *testing.T, client *clientv3.Client, first, second []locker.Option) {
	ctx, name := patient(t), t.Name()
	inLine := func(n int) {
		t.Helper()
		looking := made[*etcd.Locker](t)(etcd.New(client, etcd.Options{}))
		await(t, "so many wait", func() bool {
			info, err := looking.Inspect(ctx, name)
			return err == nil && info.Waiters == n
		})
	}
	lock := func(opts []locker.Option) <-chan *locker.Lock {
		l, got := made[*etcd.Locker](t)(etcd.New(client, etcd.Options{})), make(chan *locker.Lock, 1)
		go func() {
			lock, err := l.Lock(ctx, name, opts...)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		return got
	}
	holder := <-lock(nil)
	before := leases(t, client)
	one := lock(first)
	inLine(1)
	for _, id := range leases(t, client) {
		if !slices.Contains(before, id) {
			if _, err := client.Revoke(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := lock(second)
	inLine(2) // the one whose lease has ended has come back, behind the other or before it
	if err := holder.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	var now, next *locker.Lock
	select {
	case now = <-one:
		inLine(1)
		next = handOver(t, now, other)
	case now = <-other:
		inLine(1)
		next = handOver(t, now, one)
	}
	if now == nil || next == nil {
		t.Fatal("a lock was not granted")
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// handOver unlocks one lock, whose holder must still have believed, and returns the next.
func handOver(t *testing.T, now *locker.Lock, next <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	select {
	case <-next:
		t.Fatal("two hold the lock")
	default:
	}
	if err := now.Unlock(patient(t)); err != nil {
		t.Error(err)
	}
	return <-next
}

func leases(t *testing.T, client *clientv3.Client) (ids []clientv3.LeaseID) {
	t.Helper()
	all, err := client.Leases(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range all.Leases {
		ids = append(ids, lease.ID)
	}
	return ids
}

// TestUnlockThatIsSentAgainFreesALaterLock is etcd-io/etcd #22082.
func TestUnlockThatIsSentAgainFreesALaterLock(t *testing.T) {
	cluster := testserver.Etcd(t, 1)
	direct := etcdAt(t, cluster.Endpoints()...)
	// lost unlocks while the answer is lost, and returns when the key is gone and the caller has an error.
	lost := func(t *testing.T, prefix string, cut, heal func(), unlock func(context.Context) error) {
		cut()
		ctx, giveUp := context.WithCancel(patient(t))
		done := calling(func() error { return unlock(ctx) })
		await(t, "the key is deleted", func() bool { return keys(t, direct, prefix) == 0 })
		giveUp()
		if err := <-done; err == nil {
			t.Fatal("the answer was not lost")
		}
		heal()
	}
	t.Run("theirs", func(t *testing.T) {
		net := network(t, cluster.Endpoints()[0])
		s := session(t, etcdAt(t, net.Addr()))
		old, later := concurrency.NewMutex(s, "m"), concurrency.NewMutex(s, "m")
		if err := old.Lock(patient(t)); err != nil {
			t.Fatal(err)
		}
		lost(t, "m/", net.CutReplies, net.Heal, old.Unlock)
		await(t, "the name is locked again, over a new connection", func() bool { return later.Lock(patient(t)) == nil })
		if err := old.Unlock(patient(t)); err != nil {
			mended(t, "the second Unlock says: %v", err)
		}
		if err := concurrency.NewMutex(session(t, direct), "m").TryLock(patient(t)); err != nil {
			mended(t, "after the second Unlock the later lock is still held: %v", err)
		}
		select {
		case <-s.Done():
			t.Fatal("the session has ended, which is another story")
		default:
			t.Log("two hold the lock: the later lock's key was deleted by the Unlock of the earlier one")
		}
	})
	t.Run("ours", func(t *testing.T) {
		net := network(t, cluster.Endpoints()[0])
		l := made[*etcd.Locker](t)(etcd.New(etcdAt(t, net.Addr()), etcd.Options{Prefix: "ours/"}))
		old := locked(t)(l.Lock(patient(t), "m"))
		lost(t, "ours/m/", net.CutReplies, net.Heal, old.Unlock)
		var later *locker.Lock
		await(t, "the name is locked again, over a new connection", func() bool {
			lock, err := l.Lock(patient(t), "m")
			later = lock
			return err == nil
		})
		_ = old.Unlock(patient(t)) // says what it said before
		other := made[*etcd.Locker](t)(etcd.New(direct, etcd.Options{Prefix: "ours/"}))
		if lock, err := other.TryLock(patient(t), "m"); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("while the later lock is held another client gets %v, %v", lock, err)
		}
		if err := later.Unlock(patient(t)); err != nil {
			t.Error(err)
		}
	})
}

// TestCampaignThatFailsKeepsItsPlace is etcd-io/etcd #21128.
func TestCampaignThatFailsKeepsItsPlace(t *testing.T) {
	cluster := testserver.Etcd(t, 1)
	direct := etcdAt(t, cluster.Endpoints()...)
	// compacted has the history end that a watch over net has to go on from.
	compacted := func(t *testing.T, cut, heal func()) {
		cut()
		var revision int64
		for range 3 {
			put, err := direct.Put(patient(t), "elsewhere", "")
			if err != nil {
				t.Fatal(err)
			}
			revision = put.Header.Revision
		}
		if _, err := direct.Compact(patient(t), revision); err != nil {
			t.Fatal(err)
		}
		heal()
	}
	t.Run("theirs", func(t *testing.T) {
		net := network(t, cluster.Endpoints()[0])
		leader := concurrency.NewElection(session(t, direct), "e")
		if err := leader.Campaign(patient(t), "leader"); err != nil {
			t.Fatal(err)
		}
		s := session(t, etcdAt(t, net.Addr()))
		failed := calling(func() error { return concurrency.NewElection(s, "e").Campaign(patient(t), "failed") })
		await(t, "the second candidate is in line", func() bool { return keys(t, direct, "e/") == 2 })
		compacted(t, net.Cut, net.Heal)
		err := <-failed
		if err == nil || keys(t, direct, "e/") == 1 {
			mended(t, "Campaign returned %v", err)
		}
		if err := leader.Resign(patient(t)); err != nil {
			t.Fatal(err)
		}
		now, leads := concurrency.NewElection(session(t, direct), "e").Leader(patient(t))
		if leads != nil || string(now.Kvs[0].Value) != "failed" {
			mended(t, "the leader is now %v, %v", now, leads)
		}
		t.Logf("the candidate whose Campaign failed (%v) is the leader for all others", err)
	})
	t.Run("ours", func(t *testing.T) {
		net := network(t, cluster.Endpoints()[0])
		holder := locked(t)(made[*etcd.Locker](t)(etcd.New(direct, etcd.Options{})).Lock(patient(t), "ours"))
		waiting := made[*etcd.Locker](t)(etcd.New(etcdAt(t, net.Addr()), etcd.Options{}))
		got := make(chan *locker.Lock, 1)
		failed := calling(func() error {
			lock, err := waiting.Lock(patient(t), "ours")
			got <- lock
			return err
		})
		await(t, "the waiter is in line", func() bool { return keys(t, direct, "ours/") == 2 })
		compacted(t, net.Cut, net.Heal)
		if err := holder.Unlock(patient(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		if err := (<-got).Unlock(patient(t)); err != nil {
			t.Error(err)
		}
	})
}
