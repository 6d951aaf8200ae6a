package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/open"
)

// benchPrefix is how all names that "bench" locks begin.
const benchPrefix = "lockstile-bench/"

// benchRun is the store and the names that are locked in it, the same ones in
// every workload: tokens increase over all of them.
type benchRun struct {
	benchSettings
	clients   []open.Backend
	options   []locker.Option
	prefix    string
	witnesses []witness // by name
}

func newBenchRun(in invocation, clients []open.Backend) *benchRun {
	return &benchRun{
		benchSettings: in.bench,
		clients:       clients,
		options:       in.options(),
		prefix:        benchPrefix + strings.ToLower(rand.Text()) + "/",
		witnesses:     make([]witness, in.bench.goroutines),
	}
}

// workload is one way to use locks.
type workload struct {
	goroutines, clients int
	oneName             bool // else a name for each
	hold                time.Duration
}

// race is a workload under way.
type race struct {
	*benchRun
	load  workload
	meter *meter
	end   func(cause error) // at once

	mu  sync.Mutex
	err error // the first, but a broken promise before all others
}

// errSilent ends waits that have not ended by themselves.
var errSilent = fmt.Errorf("it has not answered %v after the end of the measuring", partingTime)

// run lets the goroutines lock and unlock until ctx ends or the time is up. It
// counts from when each could have had a lock, for the first ones connect, and
// tells the time that it counted for. All locks have been given back when it
// returns without an error: who waits at the end gets a lock still, if that does
// not take too long, for a thousand waits that are broken off at once are a
// thousand clean-ups.
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
	r.pause(ctx, r.meter.warm)
	if ctx.Err() != nil {
		return 0
	}
	begin := time.Now()
	r.meter.count(true)
	r.pause(ctx, nil)
	r.meter.count(false)
	return time.Since(begin)
}

// pause returns when the time of a workload is up, or before, with ctx or enough.
func (r *race) pause(ctx context.Context, enough <-chan struct{}) {
	timer := time.NewTimer(r.each)
	defer timer.Stop()
	select {
	case <-enough:
	case <-timer.C:
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

// worker locks and unlocks until ctx ends, and waits until waiting does.
func (r *race) worker(ctx, waiting context.Context, who int) {
	number := who
	if r.load.oneName {
		number = 0
	}
	name, seen := fmt.Sprint(r.prefix, number), &r.witnesses[number]
	client := r.clients[who%r.load.clients]
	for ctx.Err() == nil {
		begin := time.Now()
		lock, err := client.Lock(waiting, name, r.options...)
		if err != nil {
			r.fails(unlessGivenUp(waiting, err))
			return
		}
		now := time.Now()
		r.fails(seen.granted(name, lock.Token(), lock.Err)) // before it is held for long
		r.meter.granted(who, begin, now)
		r.fails(r.finish(ctx, seen, lock))
	}
}

// finish holds the lock for as long as was asked for, and gives it back.
func (r *race) finish(ctx context.Context, w *witness, lock *locker.Lock) error {
	if r.load.hold > 0 {
		select {
		case <-time.After(r.load.hold):
		case <-ctx.Done():
		}
	}
	w.released(lock.Token())
	begin := time.Now()
	r.meter.leaves(begin)
	err := lock.Unlock(ctx) // also where ctx is over
	r.meter.unlocked(time.Since(begin))
	return err
}

// unlessGivenUp returns the error of a Lock, or nil if it was told to give up, did,
// and the store serves: nothing is held then.
func unlessGivenUp(waiting context.Context, err error) error {
	if waiting.Err() != nil && !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, locker.ErrOutcomeUnknown) {
		return nil
	}
	return err
}
