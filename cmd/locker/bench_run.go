package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/meter"
	"github.com/lockstile/locker/open"
)

// workload is one way to use locks.
type workload struct {
	goroutines, clients int
	oneName             bool // else a name for each
	hold                time.Duration
}

// race is a workload under way.
type race struct {
	load         workload
	ttl          locker.Option
	time         time.Duration // to measure for
	clients      []open.Backend
	names        []witness // one for each goroutine
	meter        *meter.Meter
	lock, unlock meter.Histogram   // how long each took
	grants       atomic.Int64      // counted by the meter or not
	warm         chan struct{}     // closed after as many grants as there are goroutines
	end          func(cause error) // at once

	mu  sync.Mutex
	err error // the first, but a broken promise before all others
}

func (c *benchCommand) newRace(load workload, clients []open.Backend, names []witness) *race {
	return &race{load: load, ttl: locker.WithTTL(c.ttl), time: c.time, clients: clients, names: names,
		meter: meter.New(load.goroutines), warm: make(chan struct{})}
}

// errSilent ends waits that have not ended by themselves.
var errSilent = fmt.Errorf("it has not answered %v after the end of the measuring", partingTime)

// run lets the goroutines lock and unlock until ctx ends or the time is up, and
// returns for how long it counted. It begins to count when there have been as many
// grants as goroutines, because the first ones include connecting. All locks have
// been given back when it returns without an error: goroutines that wait at the end
// still get a lock, if that does not take too long, because a thousand waits that
// are broken off at once are a thousand clean-ups.
func (r *race) run(ctx context.Context) (took time.Duration, err error) {
	waiting, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.end = func(cause error) {
		stop()
		giveUp(cause)
	}
	var wg sync.WaitGroup
	for i := range r.load.goroutines {
		wg.Go(func() { r.worker(ctx, waiting, i) })
	}
	took = r.count(ctx)
	stop()
	defer time.AfterFunc(partingTime, func() { giveUp(errSilent) }).Stop()
	wg.Wait()
	return took, r.err
}

// count has the meter count until the time is up or ctx ends.
func (r *race) count(ctx context.Context) time.Duration {
	pause(ctx, r.time, r.warm)
	if ctx.Err() != nil {
		return 0
	}
	begin := time.Now()
	r.meter.Count(true)
	pause(ctx, r.time, nil)
	r.meter.Count(false)
	return time.Since(begin)
}

// pause lasts for d, or until ctx or enough ends it.
func pause(ctx context.Context, d time.Duration, enough <-chan struct{}) {
	select {
	case <-enough:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fails ends the race if there is an error.
func (r *race) fails(err error) {
	if err == nil {
		return
	}
	defer r.end(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || errors.Is(err, errBroken) && !errors.Is(r.err, errBroken) {
		r.err = err
	}
}

// worker locks and unlocks until ctx ends. A Lock under way goes on until waiting
// ends.
func (r *race) worker(ctx, waiting context.Context, who int) {
	name := &r.names[who]
	if r.load.oneName {
		name = &r.names[0]
	}
	client := r.clients[who%r.load.clients]
	for ctx.Err() == nil {
		begin := time.Now()
		lock, err := client.Lock(waiting, name.name, r.ttl)
		if err != nil {
			r.fails(unlessGivenUp(waiting, err))
			return
		}
		now := time.Now()
		r.fails(name.granted(lock.Token(), lock.Err)) // before it is held for long
		r.meter.Granted(who, now)
		r.meter.Note(&r.lock, now.Sub(begin))
		if r.grants.Add(1) == int64(r.load.goroutines) {
			close(r.warm)
		}
		r.fails(r.finish(ctx, name, lock))
	}
}

// finish holds the lock for as long as was asked for, and gives it back.
func (r *race) finish(ctx context.Context, name *witness, lock *locker.Lock) error {
	if r.load.hold > 0 {
		pause(ctx, r.load.hold, nil)
	}
	name.released(lock.Token())
	begin := time.Now()
	r.meter.Leaves(begin)
	err := lock.Unlock(ctx) // also where ctx is over
	r.meter.Note(&r.unlock, time.Since(begin))
	return err
}

// unlessGivenUp returns the error of a Lock, or nil if the wait was given up and
// the store serves: nothing is held then.
func unlessGivenUp(waiting context.Context, err error) error {
	if waiting.Err() != nil && !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrOutcomeUnknown) {
		return nil
	}
	return err
}
