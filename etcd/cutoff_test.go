package etcd_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
)

// believers are those who hold a lock, as far as they know.
type believers struct {
	t      *testing.T
	mu     sync.Mutex
	now    map[*locker.Lock]bool
	last   fencing.Token
	served map[*etcd.Locker]int
}

// enter notes a grant, and returns how many its process has had.
func (b *believers) enter(l *etcd.Locker, lock *locker.Lock) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served[l]++
	if lock.Err() != nil {
		return b.served[l] // over before we came to note it
	}
	for other := range b.now {
		if other.Err() == nil {
			b.t.Errorf("token %d was granted while the holder of %d believed in it", lock.Token(), other.Token())
		}
	}
	if lock.Token() <= b.last {
		b.t.Errorf("token %d was granted after %d", lock.Token(), b.last)
	}
	b.last = lock.Token()
	b.now[lock] = true
	return b.served[l]
}

func (b *believers) leave(lock *locker.Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.now, lock)
}

func (b *believers) servedTo(l *etcd.Locker) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.served[l]
}

// compete locks and unlocks until ctx is over, whatever the servers say. Some
// locks are held for long, so that some are when servers hang.
func (b *believers) compete(ctx context.Context, l *etcd.Locker) {
	for ctx.Err() == nil {
		lock, err := l.Lock(ctx, "x", locker.WithTTL(short))
		if err != nil {
			continue
		}
		hold := 5 * time.Millisecond
		if b.enter(l, lock)%10 == 0 {
			hold = short
		}
		select {
		case <-time.After(hold):
		case <-lock.Lost():
		}
		b.leave(lock)
		_ = lock.Unlock(context.Background()) // its session ends it, if the servers are silent
	}
}

// A server that has no majority still tells its clients of watches, and answers
// for itself what it knew when it was cut off, or less. Nobody may take that for
// a grant.
//
//	three processes, on one server each, want one lock all the time; each server
//	in turn hangs while the others go on, and is then alone with what it knows
//	for two TTLs
func TestServerThatIsCutOffGrantsNothingTwice(t *testing.T) {
	t.Parallel()
	cluster := testserver.Etcd(t, 3)
	b := &believers{t: t, now: make(map[*locker.Lock]bool), served: make(map[*etcd.Locker]int)}
	all := make([]*etcd.Locker, len(cluster.Members))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, m := range cluster.Members {
		all[i] = newLocker(t, m.Addr())
		wg.Go(func() { b.compete(ctx, all[i]) })
	}
	goesOn := func(l *etcd.Locker) {
		t.Helper()
		before := b.servedTo(l)
		until(t, "a process is served again", func() bool { return b.servedTo(l) > before })
	}
	for i, m := range cluster.Members {
		next, last := (i+1)%3, (i+2)%3
		goesOn(all[i])
		m.Pause()
		goesOn(all[next])
		goesOn(all[last])
		cluster.Members[next].Pause()
		cluster.Members[last].Pause()
		m.Resume()
		<-time.After(2 * short) // this is how long it is alone
		cluster.Members[next].Resume()
		cluster.Members[last].Resume()
		goesOn(all[i])
	}
}
