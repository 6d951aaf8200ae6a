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
	"github.com/lockstile/locker/internal/contract"
)

// badStore is a store whose network and answers are bad, and which checks how it is called.
type badStore struct {
	t     *testing.T
	rnd   *rand.Rand
	start time.Time
	mu    sync.Mutex
	names map[string]*place
	told  traces
}

type place struct {
	trace *trace
	holds map[*bid]time.Time // until when
	queue []*bid
	last  uint64
}

type bid struct {
	id        int
	proc      int
	req       *driver.Request
	bell      chan struct{}
	withdrawn bool // the server's
	first     uint64
	slot      int

	in       int // Acquire, Release, Withdraw under way
	renewing int
	ended    int
}

type proc struct {
	w   *badStore
	id  int
	n   int
	l   *driver.Locker[*bid]
	all []*bid
	bad bool
	has book
}

func (w *badStore) now() driver.Instant { return driver.Instant(time.Hour + time.Since(w.start)) }
func (w *badStore) intn(n int) int      { w.mu.Lock(); defer w.mu.Unlock(); return w.rnd.IntN(n) }

func (w *badStore) fail(format string, args ...any) { w.t.Errorf(format, args...) }

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
	after(d1, func() { f(); after(d2, func() { close(done) }) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// after calls f in a goroutine. A timer of no time is run inside the call that makes it,
// in a bubble; Go 1.26 crashed there once, under the race detector (timer.modify).
func after(d time.Duration, f func()) {
	if d == 0 {
		go f()
		return
	}
	time.AfterFunc(d, f)
}

func (w *badStore) at(name string) *place {
	e := w.names[name]
	if e == nil {
		e = &place{trace: w.told[name], holds: make(map[*bid]time.Time)}
		w.names[name] = e
	}
	for h, end := range e.holds {
		if !time.Now().Before(end) {
			e.drop(h)
		}
	}
	return e
}

// drop ends h's hold, and rings for those who wait.
func (e *place) drop(h *bid) {
	if !e.holds[h].IsZero() {
		e.trace.freed(h.first)
	}
	delete(e.holds, h)
	for _, waiter := range e.queue {
		select {
		case waiter.bell <- struct{}{}:
		default:
		}
	}
}

func (e *place) room(h *bid) bool {
	slots := 0
	taken := make(map[int]bool)
	for other := range e.holds {
		if h.req.Kind != other.req.Kind || h.req.Kind == locker.KindExclusive {
			return false
		}
		taken[other.slot] = true
		slots++
	}
	for h.slot = 0; taken[h.slot]; h.slot++ {
	}
	return h.req.Kind == locker.KindShared || slots < max(h.req.Slots, 1)
}

// turn reports whether nobody is before h who would have to go first.
func (e *place) turn(h *bid) bool {
	for _, other := range e.queue {
		if other == h {
			return true
		}
		if other.req.Kind == locker.KindExclusive || h.req.Kind != locker.KindShared {
			return false
		}
	}
	return true
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

func (p *proc) Guarantees() locker.Guarantees { return locker.Guarantees{Shared: true, Slots: true} }
func (p *proc) Begin(req *driver.Request) (*bid, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.n++
	h := &bid{id: p.n, proc: p.id, req: req, bell: make(chan struct{}, 1)}
	p.all = append(p.all, h)
	return h, nil
}
func (p *proc) Acquire(ctx context.Context, h *bid, wait driver.Wait) (driver.Grant, driver.Left, error) {
	p.enter(h, "Acquire")
	defer p.leave(h)
	left := driver.Nothing
	for {
		since := p.w.now()
		var first uint64
		var gone bool
		count := uint64(64)
		if h.req.Kind != locker.KindExclusive {
			count = 1
		}
		var again time.Duration
		if err := p.send(ctx, func() {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			e := p.w.at(h.req.Name)
			switch {
			case h.withdrawn:
				gone = true
			case !e.holds[h].IsZero():
				e.holds[h] = time.Now().Add(h.req.TTL)
				first = h.first
			case e.room(h) && e.turn(h):
				e.queue = slices.DeleteFunc(e.queue, func(x *bid) bool { return x == h })
				e.holds[h] = time.Now().Add(h.req.TTL)
				h.first = e.last + 1
				first = h.first
				e.last += count
				e.trace.granted(p.id, first)
			default:
				if wait != nil && !slices.Contains(e.queue, h) {
					e.queue = append(e.queue, h)
				}
				for _, end := range e.holds {
					again = max(again, time.Until(end))
				}
			}
		}); err != nil {
			return driver.Grant{}, driver.Unsure, err
		}
		p.w.mu.Lock()
		fst, gn, lft := first, gone, again
		p.w.mu.Unlock()
		switch {
		case gn:
			return driver.Grant{}, driver.Unsure, errors.New("withdrawn")
		case fst != 0:
			return driver.Grant{First: fst, Count: uint32(count), Slot: h.slot, Since: since}, left, nil
		case wait == nil:
			return driver.Grant{}, left, nil
		}
		left = driver.Unsure // a place in the queue
		ctx = wait()
		select {
		case <-h.bell:
		case <-time.After(min(max(lft, time.Millisecond), 300*time.Millisecond)):
		case <-ctx.Done():
			return driver.Grant{}, left, context.Cause(ctx)
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
			if e := p.w.at(h.req.Name); !e.holds[h].IsZero() {
				e.holds[h] = time.Now().Add(h.req.TTL)
			} else {
				got[i] = &locker.LostError{Reason: locker.ReasonTakenOver}
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
		if e := p.w.at(h.req.Name); !e.holds[h].IsZero() {
			e.drop(h)
		} else {
			lost = &locker.LostError{Reason: locker.ReasonTakenOver}
		}
	})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if err != nil {
		return err
	}
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
		e.queue = slices.DeleteFunc(e.queue, func(x *bid) bool { return x == h })
		e.drop(h)
	})
}
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
	if testing.Short() {
		seeds = 40 // the others are left to make proof
	}
	if s := os.Getenv("SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		seeds = 1
	}
	for i := range seeds {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { fuzz(t, seed, nil) })
		if !ok {
			return
		}
	}
}

func fuzz(t *testing.T, seed uint64, told traces) {
	synctest.Test(t, func(t *testing.T) {
		w := &badStore{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), start: time.Now(), names: map[string]*place{}, told: told}
		var procs []*proc
		var seen []locker.Locker
		for i := range 2 {
			p := &proc{w: w, id: i, bad: seed%3 != 0, has: book{w: w, proc: i, last: map[uint64]locker.EventType{}, open: map[string]int{}}}
			p.l = driver.New("fuzz", p, driver.Options{Clock: w.now})
			procs, seen = append(procs, p), append(seen, locker.Observe(p.l, p.has.observe))
		}
		held := &holders{w: w, locks: make(map[*locker.Lock]bool)}
		var wg sync.WaitGroup
		const users, calls = 12, 12
		for range users {
			u := &user{w: w, l: seen[w.intn(2)], r: rand.New(rand.NewPCG(seed, uint64(w.intn(1<<30)))), held: held}
			wg.Go(func() {
				for range calls {
					u.play()
				}
			})
		}
		closed := seed%5 == 0
		if closed {
			wg.Go(func() {
				time.Sleep(time.Duration(w.intn(3000)) * time.Millisecond)
				_ = procs[0].l.Close()
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		for _, p := range procs {
			p.finish(closed)
		}
		if n := len(procs[0].has.last) + len(procs[1].has.last); n != users*calls {
			w.fail("observers were told of %d calls, there were %d", n, users*calls)
		}
		time.Sleep(time.Minute)
	})
}

// finish requires that nothing is left a minute after the last call. An attempt may have
// no end where Close came before its clean-up was through.
func (p *proc) finish(closed bool) {
	_ = p.l.Close()
	if n := p.l.UnderWay(contract.Key{}); n != 0 {
		p.w.fail("%d clean-ups under way a minute later", n)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.has.finish()
	for _, h := range p.all {
		if h.ended == 0 && !closed {
			p.w.fail("an attempt of %d was never ended", len(p.all))
		}
	}
}

// book checks what an observer of a process is told: each call has one beginning and one
// end, in order, and the turns of a name that is not shared come one after another.
type book struct {
	w    *badStore
	proc int
	last map[uint64]locker.EventType
	open map[string]int // holds of a name
}

func (b *book) observe(e locker.Event) {
	b.w.told[e.Name].event(b.proc, e)
	was := b.last[e.Call]
	holds := was == locker.EventGranted || was == locker.EventPassed
	ok := e.Name != "" && e.Call != 0 && e.Missed == 0
	switch b.last[e.Call] = e.Type; e.Type {
	case locker.EventCleanedUp:
		b.last[e.Call] = was
	case locker.EventWaiting:
		ok = ok && was == 0
	case locker.EventGranted, locker.EventPassed:
		ok = ok && (was == 0 || was == locker.EventWaiting) && (e.Token != 0 || e.SharedToken != 0)
		b.open[e.Name]++
		if e.Kind == locker.KindExclusive && e.Name != "rw" && b.open[e.Name] > 1 {
			b.w.fail("%d holds of %q at the same time, by what was told", b.open[e.Name], e.Name)
		}
	case locker.EventFailed:
		ok = ok && (was == 0 || was == locker.EventWaiting) && e.Err != nil
	case locker.EventNotRenewed, locker.EventRenewedLate:
		ok = ok && holds && e.Left > 0
		b.last[e.Call] = was
	default:
		ok = ok && holds && (e.Type == locker.EventLost) == (e.Reason != 0)
		b.open[e.Name]--
	}
	if !ok {
		b.w.fail("told of %+v after %v", e, was)
	}
}

func (b *book) finish() {
	for call, what := range b.last {
		if what != locker.EventFailed && what != locker.EventReleased && what != locker.EventLost {
			b.w.fail("call %d ends with %v, by what was told", call, what)
		}
	}
}

// holders has the locks in which their holders believe.
type holders struct {
	w     *badStore
	mu    sync.Mutex
	locks map[*locker.Lock]bool
}

func (b *holders) set(l *locker.Lock, believes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locks[l] = believes
	if !believes {
		delete(b.locks, l)
	}
}

// check requires that no name has two, unless both read, or have slots of their own.
func (b *holders) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := map[string]*locker.Lock{}
	for l := range b.locks {
		if l.Err() != nil {
			continue
		}
		name := l.Name()
		if l.Slot() >= 0 {
			name = locker.SlotResource(name, l.Slot())
		}
		if o := of[name]; o != nil && (o.SharedToken() == 0 || l.SharedToken() == 0) {
			b.w.fail("two holders of %q: %d and %d", name, driver.LeaseOf(o), driver.LeaseOf(l))
		}
		of[name] = l
	}
}

// user is a goroutine that locks.
type user struct {
	w    *badStore
	l    locker.Locker
	r    *rand.Rand
	held *holders
}

// upTo returns a time of at least one millisecond and at most n.
func (u *user) upTo(n int) time.Duration { return time.Duration(1+u.r.IntN(n)) * time.Millisecond }

func (u *user) options(name string) []locker.Option {
	opts := []locker.Option{locker.WithTTL([]time.Duration{200, 300, 1000}[u.r.IntN(3)] * time.Millisecond)}
	if u.r.IntN(4) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	most := 400 * time.Millisecond
	if u.r.IntN(5) == 0 {
		most = u.upTo(400)
		opts = append(opts, locker.WithMaxHold(most))
	}
	if u.r.IntN(5) == 0 { // less than the maximum hold, else it is refused
		opts = append(opts, locker.WithMinValidity(min(u.upTo(190), most-time.Millisecond)))
	}
	if u.r.IntN(6) == 0 {
		opts = append(opts, locker.WithHolder("x"))
	}
	switch {
	case name == "slots":
		opts = append(opts, locker.WithSlots(2))
	case name == "rw" && u.r.IntN(3) > 0:
		opts = append(opts, locker.WithShared())
	}
	return opts
}

// play asks for a lock, and holds it for a while if it gets it.
func (u *user) play() {
	time.Sleep(u.upTo(50))
	lock := u.ask([]string{"a", "a", "b", "rw", "rw", "slots"}[u.r.IntN(6)], u.upTo(3000))
	if lock == nil {
		return
	}
	u.held.set(lock, true)
	u.held.check()
	if u.r.IntN(5) == 0 {
		ctx, stop := context.WithTimeout(context.Background(), u.upTo(300))
		_ = lock.Renew(ctx)
		stop()
	}
	time.Sleep(u.upTo([]int{20, 900}[u.r.IntN(2)]))
	u.held.check()
	began := time.Now()
	u.w.told[lock.Name()].unlocks(lock.Token())
	_ = lock.Unlock(context.Background())
	if took := time.Since(began); took > 2001*time.Millisecond {
		u.w.fail("Unlock took %v", took)
	}
	u.held.set(lock, false)
}

// ask requires an answer in time, and an error that says one thing.
func (u *user) ask(name string, limit time.Duration) *locker.Lock {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	do := u.l.Lock
	if u.r.IntN(4) == 0 {
		do = u.l.TryLock
	}
	began := time.Now()
	lock, err := do(ctx, name, u.options(name)...)
	if took := time.Since(began); took > limit+251*time.Millisecond {
		u.w.fail("a call with %v took %v: %v", limit, took, err)
	}
	classes := 0
	for _, class := range []error{locker.ErrTaken, locker.ErrUnavailable, locker.ErrClosed} {
		if errors.Is(err, class) {
			classes++
		}
	}
	if err != nil && classes != 1 {
		u.w.fail("%d classes: %v", classes, err)
	}
	return lock
}
