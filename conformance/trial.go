package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
)

// trial is one check of one clause: its clients, its names, its patience.
type trial struct {
	t       testing.TB
	h       Harness
	ctx     context.Context // ends with the check
	cancel  context.CancelFunc
	label   string // of this check's goroutines
	clients []Process
	holds   sync.Map // hold by *locker.Lock

	mu     sync.Mutex
	misses []miss
}

// labelKey is the profiler label that tells the goroutines of checks apart.
const labelKey = "conformance-check"

// suffix makes a name unique among runs that share a store.
func suffix() string { return rand.Text()[:12] }

// end ends what the check has started, and heals its networks.
func (x *trial) end() {
	if x.cancel != nil {
		x.cancel()
	}
	for _, c := range x.clients {
		if c.Network != nil {
			c.Heal()
		}
	}
}

// client starts one more process.
func (x *trial) client() Process {
	c := x.h.New(x.t)
	if c.Locker == nil {
		x.failf("nothing can be checked: Harness.New returned no Process.Locker")
	}
	if ps, ok := c.Network.(Proxies); ok && len(ps) == 0 {
		x.failf("nothing can be broken: Process.Network has no Proxy. Leave it nil if there is no network")
	}
	x.clients = append(x.clients, c)
	return c
}

// locker starts one more process and returns its Locker.
func (x *trial) locker() locker.Locker { return x.client().Locker }

// lockers starts n processes.
func (x *trial) lockers(n int) []locker.Locker {
	ls := make([]locker.Locker, n)
	for i := range ls {
		ls[i] = x.locker()
	}
	return ls
}

// networked starts a process whose network can be broken. A lock that only the end of its
// process frees need not have one. Every other Release frees the lock of a holder that is
// silent, and then exclusion is in danger.
func (x *trial) networked() Process {
	c := x.client()
	if c.Network == nil {
		g := c.Locker.Guarantees()
		x.skipUnless(g.FreedBy != locker.FreedByProcess, fmt.Sprintf("Release by %v", g.FreedBy), network,
			"Connect the Locker through a NewProxy for every server, and set Process.Network to it or to Proxies")
	}
	return c
}

const network = "network to break (Process.Network)"

// name returns a name that nobody else uses.
func (x *trial) name() string { return "conformance/" + suffix() }

// ttl is the option for a lease whose end the clause waits for.
func (x *trial) ttl() locker.Option { return locker.WithTTL(x.h.TTL) }

// long is the option for a lease that outlasts what the clause waits for.
func (x *trial) long() locker.Option { return locker.WithTTL(x.longTTL()) }

func (x *trial) longTTL() time.Duration { return max(10*x.h.TTL, locker.DefaultTTL) }

// patient returns a context that lasts as long as an event may take.
func (x *trial) patient() context.Context { return x.patientFor(0) }

func (x *trial) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(x.ctx, d)
	context.AfterFunc(ctx, cancel) // ends with the check at the latest
	return ctx
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// lock must succeed. If the machine stalls for half a lease, the lock may be refused, and
// rightly so: then it asks again.
func (x *trial) lock(l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	ctx := mustCome(x.patient())
	lock, err := x.lockSlowly(ctx, l, name, opts...)
	if err != nil {
		x.failf("Lock of a name that is free or comes free: %w", err)
	}
	if lock == nil {
		x.failf("Lock returned neither a lock nor an error")
	}
	x.came(ctx, time.Now(), "Lock of a name that is free or comes free")
	x.noteHold(lock, opts)
	return lock
}

func (x *trial) lockSlowly(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) (*locker.Lock, error) {
	return askSlowly(ctx, x, func() (*locker.Lock, error) { return l.Lock(ctx, name, opts...) })
}

// lockOnceHealed is lock, for a client whose network has just healed. A connection that it
// was opening before may break only now, and that fails whoever waits for it: then it asks
// again.
func (x *trial) lockOnceHealed(l locker.Locker, name string) *locker.Lock {
	ctx := x.patient()
	for {
		lock, err := l.Lock(ctx, name)
		switch {
		case err == nil:
			return lock
		case !errors.Is(err, locker.ErrUnavailable) || ctx.Err() != nil:
			x.failf("Lock of a free name after the network healed: %w", err)
		}
	}
}

func (x *trial) trySlowly(l locker.Locker, name string) (*locker.Lock, error) {
	return askSlowly(x.patient(), x, func() (*locker.Lock, error) { return l.TryLock(x.patient(), name) })
}

// askSlowly asks again after an ErrUnavailable that took so long that the machine may have
// been the reason. Where a lease lasts for longer, a store may give up sooner.
func askSlowly[T any](ctx context.Context, x *trial, ask func() (T, error)) (T, error) {
	for {
		begun := time.Now()
		answer, err := ask()
		if !errors.Is(err, locker.ErrUnavailable) || time.Since(begun) < min(x.h.TTL, time.Second)/2 || ctx.Err() != nil {
			return answer, err
		}
	}
}

// free requires that TryLock gets the name now, and gives it back.
func (x *trial) free(l locker.Locker, name, when string) {
	x.unlock(x.tryLock(l, name, when))
}

func (x *trial) tryLock(l locker.Locker, name, when string) *locker.Lock {
	lock, err := x.trySlowly(l, name)
	if err != nil {
		x.failf("TryLock %s: %w", when, err)
	}
	return lock
}

// taken requires that TryLock finds the name taken.
func (x *trial) taken(l locker.Locker, name, when string) {
	lock, err := x.trySlowly(l, name)
	if err == nil {
		_ = lock.Unlock(x.ctx)
		x.failf("TryLock %s succeeded", when)
	}
	if !errors.Is(err, locker.ErrTaken) || lock != nil {
		x.failf("TryLock %s returned %s and error %q, want ErrTaken", when, had(lock), err)
	}
}

// had names a result in an error.
func had(lock *locker.Lock) string {
	if lock == nil {
		return "no lock"
	}
	return "a lock"
}

// unlockInACrowd is for clauses that keep the machine busy: Unlock waits for two seconds at
// most, which may not be enough on a slow machine. Then the lock comes free in the
// background, and those that wait for it see that it does.
func (x *trial) unlockInACrowd(lock *locker.Lock) error {
	if err := lock.Unlock(x.ctx); !tooSlow(err) {
		return err
	}
	return nil
}

// tooSlow reports whether Unlock has not heard in time that the lock is free.
func tooSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrUnavailable)
}

// unlockAll unlocks locks that a stalled machine may have lost, and returns why they were
// lost, if they were.
func (x *trial) unlockAll(lost error, locks []*locker.Lock) error {
	for _, lock := range locks {
		switch err := lock.Unlock(x.patient()); {
		case errors.Is(err, locker.ErrLost):
			lost = errors.Join(lost, err)
		case lost == nil && err != nil:
			x.failf("Unlock: %w", err)
		}
	}
	return lost
}

func (x *trial) unlock(lock *locker.Lock) {
	begun := time.Now()
	if err := lock.Unlock(x.patient()); err != nil && !x.ended(lock, begun, err) && !x.unanswered(begun, err) {
		x.failf("Unlock: %w", err)
	}
}

// waiter is a call of Lock in a goroutine of its own.
type waiter struct {
	done    chan struct{} // closed when Lock has returned
	lock    *locker.Lock
	err     error
	ctx     context.Context
	at      time.Time // when Lock has returned
	late    bool      // its context had ended before Lock was called
	overlap bool      // it was served while the holder before it still believed
}

// wait starts a waiter.
func (x *trial) wait(ctx context.Context, l locker.Locker, name string, opts ...locker.Option) *waiter {
	w := &waiter{done: make(chan struct{}), ctx: mustCome(ctx)}
	go func() {
		defer close(w.done)
		w.late = ctx.Err() != nil
		w.lock, w.err = l.Lock(ctx, name, opts...)
		x.noteBack(w, opts)
	}()
	return w
}

// refused reports whether Lock has returned with ErrUnavailable.
func (w *waiter) refused() bool {
	select {
	case <-w.done:
		return errors.Is(w.err, locker.ErrUnavailable)
	default:
		return false
	}
}

// waitBehind starts a waiter for held's name, and notes an overlap with held.
func (x *trial) waitBehind(held *locker.Lock, l locker.Locker, opts ...locker.Option) *waiter {
	return x.waitBehindWithin(x.patient(), held, l, opts...)
}

func (x *trial) waitBehindWithin(ctx context.Context, held *locker.Lock, l locker.Locker, opts ...locker.Option) *waiter {
	w := &waiter{done: make(chan struct{}), ctx: mustCome(ctx)}
	go func() {
		defer close(w.done)
		w.lock, w.err = l.Lock(ctx, held.Name(), opts...)
		w.overlap = w.err == nil && held.Err() == nil
		x.noteBack(w, opts)
	}()
	return w
}

// noteBack notes when a waiter's Lock has returned.
func (x *trial) noteBack(w *waiter, opts []locker.Option) {
	w.at = time.Now()
	if w.err == nil && w.lock != nil {
		x.noteHold(w.lock, opts)
	}
}

// alone fails if the waiter was served while the holder believed. Both looked at
// clocks of this machine, so one of them was wrong.
func (x *trial) alone(held *locker.Lock, w *waiter) {
	if w.overlap {
		x.failf("another client was given the lock while its holder believed in it (until %v)", held.Deadline())
	}
}

// returned waits until the waiter's Lock has returned.
func (x *trial) returned(w *waiter, when string) {
	x.event(w.done, "Lock returns "+when)
	if w.err == nil {
		x.came(w.ctx, w.at, "Lock that was to return "+when)
	}
}

// served waits until the waiter has the lock.
func (x *trial) served(w *waiter, when string) *locker.Lock {
	x.returned(w, when)
	if w.err != nil {
		x.failf("the waiter was not served %s: %w", when, w.err)
	}
	return w.lock
}

// next waits until one of ws has the lock, and returns it and the others.
func (x *trial) next(ws []*waiter, when string) (*waiter, []*waiter) {
	w, others := x.first(ws, when)
	x.served(w, when)
	return w, others
}

// first waits until Lock has returned to one of ws, and returns it and the others.
func (x *trial) first(ws []*waiter, when string) (*waiter, []*waiter) {
	first := -1
	x.eventually("a waiter is served "+when, func() bool {
		first = slices.IndexFunc(ws, (*waiter).back)
		return first >= 0
	})
	return ws[first], slices.Delete(slices.Clone(ws), first, first+1)
}

// back reports whether Lock has returned.
func (w *waiter) back() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// event waits for something that must happen.
func (x *trial) event(done <-chan struct{}, what string) {
	receive(x, x.h.patience, done, what)
}

// eventually waits until ok returns true.
func (x *trial) eventually(what string, ok func() bool) {
	x.comes(x.h.patience, what, func(most time.Duration) bool { return happens(most, ok) })
}

// settles is eventually for what would be left behind. No stall of the machine excuses that.
func (x *trial) settles(what string, ok func() bool) {
	if !happens(x.h.patience, ok) {
		x.failf("it did not happen in %v that %s", x.h.patience, what)
	}
}

// happens waits until ok returns true, for most at most, and reports whether it did.
func happens(most time.Duration, ok func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(most); !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			return false
		}
		pause = min(2*pause, 50*time.Millisecond) // what waits must not keep the machine busy
	}
	return true
}

// inspector returns l as an Inspector, or skips.
func (x *trial) inspector(l locker.Locker) locker.Inspector {
	i, ok := x.inspects(l)
	if !ok {
		x.skip("locker.Inspector")
	}
	return i
}

// inspects returns l as an Inspector, if it is one. A Locker of package driver always has
// the method, and its Store may not.
func (x *trial) inspects(l locker.Locker) (locker.Inspector, bool) {
	i, ok := l.(locker.Inspector)
	if !ok {
		return nil, false
	}
	_, err := i.Inspect(x.patient(), x.name())
	return i, !errors.Is(err, errors.ErrUnsupported)
}

// breaker returns l as a Breaker, or skips.
func (x *trial) breaker(l locker.Locker) locker.Breaker {
	b, ok := x.breaks(l)
	if !ok {
		x.skip("locker.Breaker")
	}
	return b
}

// breakNow breaks what is held. After an answer that came too late nobody knows whether
// there is still something to break.
func (x *trial) breakNow(b locker.Breaker, name, what string) {
	x.breakBy(what, func() (bool, error) { return b.Break(x.patient(), name) })
}

// breakOnly breaks what one holder has.
func (x *trial) breakOnly(b locker.Breaker, name, what string, number locker.Number) {
	x.breakBy(what, func() (bool, error) { return b.BreakHolder(x.patient(), name, number) })
}

func (x *trial) breakBy(what string, breaks func() (bool, error)) {
	tries := 0
	ok, err := askSlowly(x.patient(), x, func() (bool, error) { tries++; return breaks() })
	if err != nil || !ok && tries == 1 {
		x.failf("Break of %s returned %v, %v", what, ok, err)
	}
}

// breaks is inspects for a Breaker.
func (x *trial) breaks(l locker.Locker) (locker.Breaker, bool) {
	b, ok := l.(locker.Breaker)
	if !ok {
		return nil, false
	}
	_, err := b.Break(x.patient(), x.name())
	return b, !errors.Is(err, errors.ErrUnsupported)
}

func (x *trial) inspect(i locker.Inspector, name string) locker.Info {
	ctx := x.patient()
	info, err := askSlowly(ctx, x, func() (locker.Info, error) { return i.Inspect(ctx, name) })
	if err != nil {
		x.failf("Inspect: %w", err)
	}
	return info
}

// queued waits until the store knows of n waiters.
func (x *trial) queued(i locker.Inspector, name string, n int) {
	x.eventually("Inspect counts the waiters", func() bool { return x.inspect(i, name).Waiters == n })
}
