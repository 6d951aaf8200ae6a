package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/meter"
)

// kinds measures shared locks and slots beside exclusive locks. Only our backends take part:
// other libraries' readers and permits have no tokens.
type kinds struct {
	readers, slots int
	turn           time.Duration // of those who hold it for a while
	clients        int           // that read one name, or a name each
}

func (k kinds) name() string { return "kinds" }

func (k kinds) about() string {
	return fmt.Sprintf("One name, %d goroutines in one client: exclusive, shared, %d slots, and a writer among readers", k.readers, k.slots)
}

// crowd is goroutines that lock the same way for as long as one trial lasts.
type crowd struct {
	clients []client
	count   int
	name    func(i int) string
	turn    time.Duration
	opts    []locker.Option
}

// lockAs locks with more options than a client's own.
func lockAs(ctx context.Context, c client, name string, opts ...locker.Option) (*locker.Lock, error) {
	l, ok := c.(lockstile)
	if !ok {
		return nil, fmt.Errorf("%T has no options", c)
	}
	return l.Locker.Lock(ctx, name, append(opts, l.opts...)...)
}

// start has them lock and unlock until end is called, which returns how many locks there
// were.
func (c crowd) start(ctx context.Context) (end func() (int64, error)) {
	var locks atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	errs := make([]error, c.count)
	for i := range c.count {
		all.Go(func() {
			for !stop.Load() && errs[i] == nil {
				lock, err := lockAs(ctx, c.clients[i%len(c.clients)], c.name(i), c.opts...)
				if err != nil {
					errs[i] = err
					return
				}
				errs[i] = errors.Join(spend(c.turn), lock.Unlock(ctx))
				locks.Add(1)
			}
		})
	}
	return func() (int64, error) {
		stop.Store(true)
		if err := wait(ctx, &all); err != nil {
			return 0, err
		}
		return locks.Load(), firstError(errs)
	}
}

// spend blocks a thread for one turn. Go's own timers end up to a millisecond late where the
// process waits for the network (https://github.com/golang/go/issues/53824): the turns of one
// contest would be longer than those of another.
func spend(turn time.Duration) error {
	if turn == 0 {
		return nil
	}
	t := unix.NsecToTimespec(int64(turn))
	err := unix.Nanosleep(&t, &t)
	for errors.Is(err, unix.EINTR) {
		err = unix.Nanosleep(&t, &t)
	}
	return err
}

// rate is how many locks a second they get, and how many requests each.
func (c crowd) rate(ctx context.Context, t trial) (rate, requests float64, err error) {
	sent, begin := t.subject.requests(), time.Now()
	end := c.start(ctx)
	pause(ctx, t.each)
	locks, err := end()
	took := time.Since(begin)
	return float64(locks) / took.Seconds(), float64(t.subject.requests()-sent) / float64(locks), err
}

func (k kinds) run(ctx context.Context, t trial) (figures, error) {
	clients, closeAll, err := t.open(k.clients)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if err := warm(ctx, clients, k.readers); err != nil {
		return nil, err
	}
	g := clients[0].(interface{ Guarantees() locker.Guarantees }).Guarantees()
	f := figures{}
	for _, figure := range []string{"shared", "shared requests", "slots", "writer p99", "one name"} {
		f[figure] = math.NaN() // until it is measured
	}
	measure := func(figure string, c crowd) {
		if err == nil {
			f[figure], f[figure+" requests"], err = c.rate(ctx, t)
		}
	}
	measure("turns", crowd{clients[:1], k.readers, k.oneName(), k.turn, nil})
	if g.Slots {
		measure("slots", crowd{clients[:1], k.readers, k.oneName(), k.turn, []locker.Option{locker.WithSlots(k.slots)}})
	}
	if g.Shared && err == nil {
		shared := []locker.Option{locker.WithShared()}
		measure("shared", crowd{clients[:1], k.readers, k.oneName(), 0, shared})
		measure("one name", crowd{clients, k.clients, k.oneName(), 0, shared})
		measure("a name each", crowd{clients, k.clients, nameOf, 0, nil})
		if err == nil {
			f["writer p99"], err = k.writer(ctx, t, clients[0])
		}
	}
	return f, err
}

// oneName names the lock of one contest, for all who take part.
func (k kinds) oneName() func(int) string {
	name := fmt.Sprint("bench/kinds/", races.Add(1))
	return func(int) string { return name }
}

// writer is how long a writer waits among readers.
func (k kinds) writer(ctx context.Context, t trial, c client) (p99 float64, err error) {
	name := k.oneName()
	end := crowd{[]client{c}, k.readers, name, k.turn, []locker.Option{locker.WithShared()}}.start(ctx)
	var waits meter.Histogram
	for until := time.Now().Add(2 * t.each); time.Now().Before(until) && err == nil; {
		var lock *locker.Lock
		asked := time.Now()
		if lock, err = lockAs(ctx, c, name(0)); err == nil {
			waits.Add(time.Since(asked))
			err = lock.Unlock(ctx)
		}
	}
	if _, failed := end(); err == nil {
		err = failed
	}
	return nanoseconds(&waits, 99), err
}

func kindsTable(w io.Writer, load workload, results []result) {
	head(w, load, "", "shared/s", "requests", "1 ms turns: exclusive/s", "slots/s", "slots × exclusive", "writer waits, p99 ms", "8 clients: one name shared, × a name each")
	for _, r := range results {
		row(w, r.subject.name, number(r.median("shared"), 0), number(r.median("shared requests"), 3),
			number(r.median("turns"), 0), number(r.median("slots"), 0), number(r.median("slots")/r.median("turns"), 2),
			number(r.median("writer p99")/1e6, 0), number(r.median("one name")/r.median("a name each"), 2))
	}
}
