package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// world is a store whose network and answers are bad, and which checks how it is called.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	start time.Time
	mu    sync.Mutex
	names map[string]*place
}

type place struct {
	holder *bid
	end    time.Time
	queue  []*bid
	last   uint64
}

type bid struct {
	id        int
	proc      int
	req       *locker.Request
	bell      chan struct{}
	withdrawn bool // the server's
	first     uint64

	left     bool
	in       int // Acquire, Release, Withdraw under way
	renewing int
	ended    int
}

type proc struct {
	w   *world
	id  int
	n   int
	l   *driver.Locker[*bid]
	all []*bid
	bad bool
}

func (w *world) now() locker.Instant { return locker.Instant(time.Hour + time.Since(w.start)) }
func (w *world) intn(n int) int      { w.mu.Lock(); defer w.mu.Unlock(); return w.rnd.IntN(n) }

func (w *world) fail(format string, args ...any) { w.t.Errorf(format, args...) }

var errNet, errRefuse = errors.New("network"), errors.New("refused")

// send carries f to the server with delays, and its answer.
func (p *proc) send(ctx context.Context, f func()) error {
	w := p.w
	done := make(chan struct{})
	how := 0
	if p.bad {
		how = w.intn(8)
	}
	d1, d2 := time.Duration(w.intn(3))*time.Millisecond, time.Duration(w.intn(3))*time.Millisecond
	switch how {
	case 1: // request lost
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(w.intn(400)) * time.Millisecond):
			return errNet
		}
	case 2: // reply lost
		f()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(w.intn(400)) * time.Millisecond):
			return errNet
		}
	case 3: // very late
		d1 = time.Duration(w.intn(1500)) * time.Millisecond
	case 4:
		d2 = time.Duration(w.intn(1500)) * time.Millisecond
	case 5:
		if w.intn(6) == 0 {
			return driver.Refused(errRefuse)
		}
	}
	time.AfterFunc(d1, func() { f(); time.AfterFunc(d2, func() { close(done) }) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) at(name string) *place {
	e := w.names[name]
	if e == nil {
		e = new(place)
		w.names[name] = e
	}
	if e.holder != nil && !time.Now().Before(e.end) {
		e.holder = nil
		e.ring()
	}
	return e
}

func (e *place) ring() {
	if len(e.queue) > 0 {
		select {
		case e.queue[0].bell <- struct{}{}:
		default:
		}
	}
}

func (p *proc) enter(h *bid, what string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if h.ended > 0 {
		p.w.fail("%s of %d after its End", what, h.id)
	}
	if h.in > 0 {
		p.w.fail("%s of %d while another call is under way", what, h.id)
	}
	h.in++
}
func (p *proc) leave(h *bid) { p.w.mu.Lock(); h.in--; p.w.mu.Unlock() }

func (p *proc) Features() driver.Features { return driver.Features{} }
func (p *proc) Begin(req *locker.Request) (*bid, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.n++
	h := &bid{id: p.n, proc: p.id, req: req, bell: make(chan struct{}, 1)}
	p.all = append(p.all, h)
	return h, nil
}
func (p *proc) Acquire(ctx context.Context, h *bid, wait driver.Wait) (driver.Grant, error) {
	p.enter(h, "Acquire")
	defer p.leave(h)
	for {
		since := p.w.now()
		p.w.mu.Lock()
		h.left = true
		p.w.mu.Unlock()
		var first uint64
		var gone bool
		var left time.Duration
		if err := p.send(ctx, func() {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			e := p.w.at(h.req.Name)
			switch {
			case h.withdrawn:
				gone = true
			case e.holder == h:
				e.end = time.Now().Add(h.req.TTL)
				first = h.first
			case e.holder == nil && (len(e.queue) == 0 || e.queue[0] == h || wait == nil):
				e.queue = slices.DeleteFunc(e.queue, func(x *bid) bool { return x == h })
				e.holder, e.end = h, time.Now().Add(h.req.TTL)
				h.first = e.last + 1
				first = h.first
				e.last += 64
			default:
				if wait != nil && !slices.Contains(e.queue, h) {
					e.queue = append(e.queue, h)
				}
				left = time.Until(e.end)
			}
		}); err != nil {
			return driver.Grant{}, err
		}
		p.w.mu.Lock()
		fst, gn, lft := first, gone, left
		p.w.mu.Unlock()
		switch {
		case gn:
			return driver.Grant{}, errors.New("withdrawn")
		case fst != 0:
			return driver.Grant{First: fst, Count: 64, Since: since}, nil
		case wait == nil:
			return driver.Grant{}, nil
		}
		ctx = wait()
		select {
		case <-h.bell:
		case <-time.After(min(max(lft, time.Millisecond), 300*time.Millisecond)):
		case <-ctx.Done():
			return driver.Grant{}, context.Cause(ctx)
		}
	}
}
func (p *proc) Renew(ctx context.Context, hs []*bid) []error {
	errs := make([]error, len(hs))
	p.w.mu.Lock()
	for _, h := range hs {
		if h.ended > 0 {
			p.w.fail("Renew of %d after its End", h.id)
		}
		h.renewing++
	}
	p.w.mu.Unlock()
	var got []error
	err := p.send(ctx, func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		got = make([]error, len(hs))
		for i, h := range hs {
			if e := p.w.at(h.req.Name); e.holder == h {
				e.end = time.Now().Add(h.req.TTL)
			} else {
				got[i] = &locker.LostError{Reason: locker.TakenOver}
			}
		}
	})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for i, h := range hs {
		h.renewing--
		if h.ended > 0 {
			p.w.fail("End of %d while Renew was under way", h.id)
		}
		if err != nil {
			errs[i] = err
		} else {
			errs[i] = got[i]
		}
	}
	return errs
}
func (p *proc) Release(ctx context.Context, h *bid, _ time.Duration) error {
	p.enter(h, "Release")
	defer p.leave(h)
	var lost error
	err := p.send(ctx, func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if e := p.w.at(h.req.Name); e.holder == h {
			e.holder = nil
			e.ring()
		} else {
			lost = &locker.LostError{Reason: locker.TakenOver}
		}
	})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if err != nil {
		return err
	}
	h.left = false
	return lost
}
func (p *proc) Withdraw(ctx context.Context, h *bid) error {
	p.enter(h, "Withdraw")
	defer p.leave(h)
	return p.send(ctx, func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		e := p.w.at(h.req.Name)
		h.withdrawn = true
		front := len(e.queue) > 0 && e.queue[0] == h
		e.queue = slices.DeleteFunc(e.queue, func(x *bid) bool { return x == h })
		if e.holder == h {
			e.holder = nil
			front = true
		}
		if front && e.holder == nil {
			e.ring()
		}
	})
}
func (p *proc) Left(h *bid) bool { p.w.mu.Lock(); defer p.w.mu.Unlock(); return h.left && !h.withdrawn }
func (p *proc) End(h *bid) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	h.ended++
	if h.ended > 1 {
		p.w.fail("End of %d, %d times", h.id, h.ended)
	}
	if h.in > 0 || h.renewing > 0 {
		p.w.fail("End of %d while %d calls and %d renewals are under way", h.id, h.in, h.renewing)
	}
}

func TestRandomRunsKeepTheContract(t *testing.T) {
	seeds, first := 300, uint64(1)
	if s := os.Getenv("SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		seeds = 1
	}
	for i := range seeds {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { fuzz(t, seed) })
		if !ok {
			return
		}
	}
}

func fuzz(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), start: time.Now(), names: map[string]*place{}}
		var procs []*proc
		for i := range 2 {
			p := &proc{w: w, id: i, bad: seed%3 != 0}
			p.l = driver.New("fuzz", p, driver.Options{Clock: w.now})
			procs = append(procs, p)
		}
		var mu sync.Mutex
		locks := map[*locker.Lock]time.Time{}
		var highest = map[string]uint64{}
		check := func() {
			mu.Lock()
			defer mu.Unlock()
			held := map[string]*locker.Lock{}
			for l := range locks {
				if l.Err() != nil {
					continue
				}
				if o := held[l.Name()]; o != nil {
					t.Errorf("two holders of %q: %d and %d", l.Name(), o.Token(), l.Token())
				}
				held[l.Name()] = l
			}
		}
		var wg sync.WaitGroup
		for range 12 {
			p := procs[w.intn(2)]
			r := rand.New(rand.NewPCG(seed, uint64(w.intn(1<<30))))
			wg.Go(func() {
				for range 12 {
					time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
					name := []string{"a", "a", "b"}[r.IntN(3)]
					opts := []locker.Option{locker.WithTTL([]time.Duration{200, 300, 1000}[r.IntN(3)] * time.Millisecond)}
					if r.IntN(4) == 0 {
						opts = append(opts, locker.WithoutRenewal())
					}
					if r.IntN(5) == 0 {
						opts = append(opts, locker.WithMaxHold(time.Duration(1+r.IntN(400))*time.Millisecond))
					}
					if r.IntN(5) == 0 {
						opts = append(opts, locker.WithMinValidity(time.Duration(r.IntN(190))*time.Millisecond))
					}
					if r.IntN(6) == 0 {
						opts = append(opts, locker.WithHolder("x"))
					}
					limit := time.Duration(1+r.IntN(3000)) * time.Millisecond
					ctx, cancel := context.WithTimeout(context.Background(), limit)
					do := p.l.Lock
					if r.IntN(4) == 0 {
						do = p.l.TryLock
					}
					began := time.Now()
					lock, err := do(ctx, name, opts...)
					if took := time.Since(began); took > limit+251*time.Millisecond {
						t.Errorf("a call with %v took %v: %v", limit, took, err)
					}
					cancel()
					if err != nil {
						n := 0
						for _, c := range []error{locker.ErrTaken, locker.ErrUnavailable, locker.ErrClosed} {
							if errors.Is(err, c) {
								n++
							}
						}
						if n != 1 {
							t.Errorf("%d classes: %v", n, err)
						}
						continue
					}
					mu.Lock()
					locks[lock] = time.Now()
					_ = highest
					mu.Unlock()
					check()
					if r.IntN(5) == 0 {
						rc, stop := context.WithTimeout(context.Background(), time.Duration(r.IntN(300))*time.Millisecond)
						_ = lock.Renew(rc)
						stop()
					}
					if r.IntN(2) == 0 {
						time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					} else {
						time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
					}
					check()
					began = time.Now()
					_ = lock.Unlock(context.Background())
					if took := time.Since(began); took > 2001*time.Millisecond {
						t.Errorf("Unlock took %v", took)
					}
					mu.Lock()
					delete(locks, lock)
					mu.Unlock()
				}
			})
		}
		if seed%5 == 0 {
			wg.Go(func() {
				time.Sleep(time.Duration(w.intn(3000)) * time.Millisecond)
				_ = procs[0].l.Close()
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		for _, p := range procs {
			_ = p.l.Close()
			if n := p.l.UnderWay(); n != 0 {
				t.Errorf("%d chores under way a minute later", n)
			}
			never := 0
			w.mu.Lock()
			for _, h := range p.all {
				if h.ended == 0 {
					never++
				}
			}
			w.mu.Unlock()
			if never > 0 && seed%5 != 0 {
				t.Errorf("%d of %d attempts were never ended", never, len(p.all))
			}
		}
		time.Sleep(time.Minute)
	})
}
