package record

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/gocronlock"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// redsyncLocker is what gocron's page says of a Locker, and no more: it locks with redsync
// before a run and unlocks after it.
type redsyncLocker struct{ rs *redsync.Redsync }

func (l redsyncLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := l.rs.NewMutex(key, redsync.WithTries(1))
	return redsyncLock{m}, m.LockContext(ctx)
}

type redsyncLock struct{ *redsync.Mutex }

func (l redsyncLock) Unlock(ctx context.Context) error {
	_, err := l.UnlockContext(ctx)
	return err
}

// TestShortJobRunsOnEachInstance is go-co-op/gocron #841.
func TestShortJobRunsOnEachInstance(t *testing.T) {
	srv := testserver.Redis(t)
	t.Run("theirs", func(t *testing.T) {
		shared := redsyncLocker{redsync.New(goredis.NewPool(redisAt(t, srv.Addr())))}
		if runs := ticks(t, shared, shared); runs != 2 {
			mended(t, "the job ran %d times", runs)
		}
		t.Log("the job ran on both instances, one tick")
	})
	t.Run("ours", func(t *testing.T) {
		instance := func() gocron.Locker {
			l := made[*singlenode.Locker](t)(singlenode.New(redisAt(t, srv.Addr()), singlenode.Options{}))
			shared, err := gocronlock.NewLocker(l, locker.WithMinHold(time.Minute), locker.WithTTL(2*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			return shared
		}
		if runs := ticks(t, instance(), instance()); runs != 1 {
			t.Errorf("the job ran %d times", runs)
		}
	})
}

// ticks has two instances come to the same tick of a job, one when the other's run is over, as
// they do whose clocks differ by more than the job takes. It returns how often it ran.
func ticks(t *testing.T, lockers ...gocron.Locker) int32 {
	var runs atomic.Int32
	for _, shared := range lockers {
		s, err := gocron.NewScheduler()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() })
		watched := &watched{shared, make(chan error, 2)}
		if _, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("report"), gocron.WithDistributedJobLocker(watched)); err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Logf("the tick of an instance ended with: %v", <-watched.over)
	}
	return runs.Load()
}

// watched tells when a tick is over: the lock was given back, or there was none.
type watched struct {
	gocron.Locker
	over chan error
}

func (w *watched) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := w.Locker.Lock(ctx, key)
	if err != nil {
		w.over <- err
		return nil, err
	}
	return given{lock, w.over}, nil
}

type given struct {
	gocron.Lock
	over chan error
}

func (g given) Unlock(ctx context.Context) error {
	err := g.Lock.Unlock(ctx)
	g.over <- err
	return err
}
