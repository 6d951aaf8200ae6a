package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
)

// randomStore is a Store that answers at random, on sessions.
type randomStore struct {
	l    *Locker[*item]
	rnd  *rand.Rand
	mu   sync.Mutex
	late bool // something was asked for an attempt that had ended
	tok  uint64
	all  []*item
	pool *Pool[*item, int, *opened]
}

type item struct {
	req   *Request
	s     *opened
	ended int
}

func (c *randomStore) n(n int) int { c.mu.Lock(); defer c.mu.Unlock(); return c.rnd.IntN(n) }
func (c *randomStore) Guarantees() locker.Guarantees {
	return locker.Guarantees{Shared: true, Slots: true}
}
func (c *randomStore) Begin(req *Request) (*item, error) {
	it := &item{req: req}
	c.mu.Lock()
	c.all = append(c.all, it)
	c.mu.Unlock()
	return it, nil
}
func (c *randomStore) open(_ int, own Session) (*opened, time.Duration, Instant, error) {
	since := c.l.Now()
	time.Sleep(time.Duration(c.n(3000)) * time.Millisecond)
	if c.n(8) == 0 {
		return nil, 0, 0, errors.New("net")
	}
	return &opened{Session: own}, time.Duration(1+c.n(9)) * time.Second, since, nil
}
func (c *randomStore) renewSession(ctx context.Context, _ *opened) error {
	return c.Renew(ctx, []*item{{}})[0]
}
func (c *randomStore) endSession(_ context.Context, _ *opened) error { return c.call(&item{}) }
func (c *randomStore) Acquire(ctx context.Context, h *item, wait Wait) (Grant, Left, error) {
	if h.s == nil && c.n(4) > 0 {
		s, err := c.pool.Join(ctx, h.req, c.n(2))
		if err != nil {
			return Grant{}, Nothing, err
		}
		h.s = s
	}
	since := c.l.Now()
	if wait != nil && c.n(2) == 0 {
		ctx = wait()
	}
	select {
	case <-time.After(time.Duration(c.n(400)) * time.Millisecond):
	case <-ctx.Done():
		return Grant{}, Unsure, context.Cause(ctx)
	}
	switch c.n(8) {
	case 0:
		return Grant{}, Unsure, errors.New("net")
	case 1:
		c.l.Lose(h.req.Name, h, locker.ReasonForced, nil)
	case 2:
		if h.s != nil {
			h.s.Lose(locker.ReasonSessionEnded, nil)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tok += 64
	count := uint32(64)
	if h.req.Kind != locker.KindExclusive {
		count = 1
	}
	return Grant{First: c.tok - 63, Count: count, Since: since, Lasting: h.s == nil && c.rnd.IntN(2) == 0}, Nothing, nil
}
func (c *randomStore) Renew(ctx context.Context, hs []*item) []error {
	errs := make([]error, len(hs))
	d := time.Duration(c.n(100)) * time.Millisecond
	if c.n(4) == 0 {
		d = time.Duration(c.n(6000)) * time.Millisecond
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		for i := range errs {
			errs[i] = ctx.Err()
		}
		return errs
	}
	for i, h := range hs {
		c.used(h)
		switch c.n(12) {
		case 0, 1, 2:
			errs[i] = errors.New("net")
		case 3:
			errs[i] = &locker.LostError{Reason: locker.ReasonTakenOver}
		}
	}
	return errs
}
func (c *randomStore) call(h *item) error {
	time.Sleep(time.Duration(c.n(50)) * time.Millisecond)
	c.used(h)
	if c.n(4) == 0 {
		return errors.New("net")
	}
	return nil
}
func (c *randomStore) Release(_ context.Context, h *item, _ time.Duration) error { return c.call(h) }
func (c *randomStore) Withdraw(_ context.Context, h *item) error                 { return c.call(h) }
func (c *randomStore) End(h *item) {
	c.mu.Lock()
	h.ended++
	c.mu.Unlock()
}

// used notes that something was asked for an attempt, which must not have ended. (The driver would catch a panic.)
func (c *randomStore) used(h *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = c.late || h.ended > 0
}

func (c *randomStore) check() error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.schedule.heap {
		switch {
		case a.over:
			return fmt.Errorf("what is over is planned: %T", a.what)
		case a.index != i:
			return fmt.Errorf("index %d at %d", a.index, i)
		case i > 0 && l.schedule.heap[(i-1)/2].due > a.due:
			return fmt.Errorf("heap out of order at %d", i)
		case a.session != nil && a.session.over:
			return errors.New("a lock outlives its session")
		}
		if s, ok := a.what.(*session[*item]); ok {
			if s.users < 0 {
				return errors.New("users below 0")
			}
			for h := range s.held {
				if h.over {
					return errors.New("a session knows a lock that is over")
				}
			}
		}
	}
	for name, n := range l.lines {
		if n.front == nil && len(n.beside) == 0 {
			return fmt.Errorf("line %s stays with nobody in it", name)
		}
		for _, a := range append([]*lease[*item]{n.lease}, n.beside...) {
			if err := a.check(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns an error if a lease that is in its line should not be, or nobody watches it.
func (a *lease[H]) check(name string) error {
	switch {
	case a == nil:
	case a.over:
		return fmt.Errorf("line %s has a lease that is over", name)
	case a.session != nil && a.session.over:
		return errors.New("a lock outlives its session")
	case a.index < 0 && (a.ends() != 0 || !a.renewing):
		return errors.New("a lease is watched by nobody")
	case a.session != nil && a.session.index < 0:
		return errors.New("a session is watched by nobody")
	}
	return nil
}

// Goal: whatever happens to sessions, their locks end with them, every attempt has one end,
// and nothing is left.
func TestRandomRunsOnSessionsLeaveNothing(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 40 // the others are left to make proof
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			clk := &clock{start: time.Now()}
			c := &randomStore{rnd: rand.New(rand.NewPCG(uint64(seed), 1))}
			c.l = New("randomStore", c, Options{Clock: clk.now})
			c.pool = NewPool(c.l, Sessions[int, *opened]{Open: c.open, Renew: c.renewSession, End: c.endSession, Outlived: seed%2 == 0})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 12 {
						c.play(t, clk)
						if err := c.check(); err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				})
			}
			wg.Wait()
			if c.n(2) == 0 {
				time.Sleep(time.Duration(c.n(60)) * time.Second)
			}
			_ = c.l.Close()
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if err := c.left(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// play locks and unlocks once.
func (c *randomStore) play(t *testing.T, clk *clock) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+c.n(8000))*time.Millisecond)
	defer cancel()
	opts := []locker.Option{locker.WithTTL(time.Duration(1+c.n(4)) * time.Second)}
	if c.n(4) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	if c.n(4) == 0 {
		opts = append(opts, locker.WithMaxHold(time.Duration(1+c.n(5000))*time.Millisecond))
	}
	do := c.l.Lock
	if c.n(2) == 0 {
		do = c.l.TryLock
	}
	name := []string{"a", "rw", "slots"}[c.n(3)]
	switch {
	case name == "slots":
		opts = append(opts, locker.WithSlots(2))
	case name == "rw" && c.n(3) > 0:
		opts = append(opts, locker.WithShared())
	}
	l, err := do(ctx, name, opts...)
	if err != nil {
		return
	}
	switch c.n(8) {
	case 0, 1:
		_ = l.Renew(ctx)
	case 2, 3:
		time.Sleep(time.Duration(c.n(4000)) * time.Millisecond)
	case 4:
		clk.jump(time.Duration(c.n(5000)) * time.Millisecond)
	}
	_ = l.Unlock(ctx)
	if l.Err() == nil {
		t.Error("held after Unlock")
	}
}

// left returns an error if anything is left when all is over.
func (c *randomStore) left() error {
	if c.late {
		return errors.New("something was asked for an attempt after its end")
	}
	for _, it := range c.all {
		if it.ended != 1 {
			return fmt.Errorf("ended %d times", it.ended)
		}
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if len(c.l.schedule.heap) > 0 || len(c.l.lines) > 0 {
		return fmt.Errorf("%d leases and %d lines are left", len(c.l.schedule.heap), len(c.l.lines))
	}
	return nil
}
