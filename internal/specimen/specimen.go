// Package specimen is a lock on one Redis that is broken on purpose, in a way that the
// caller chooses. The suites that check locks are checked with it.
package specimen

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/contract"
	"github.com/lockstile/locker/internal/simplelock"
)

// Locker is a simple lock on one Redis that keeps every clause of the contract,
// unless it has a flaw. Its waiters poll, which is slow and breaks nothing.
type Locker struct {
	flaw    string
	rdb     *redis.Client
	lines   lines
	closing context.Context
	close   context.CancelFunc
	waits   atomic.Int32
	longest atomic.Int64 // TTL that was asked for, in milliseconds
	voids   atomic.Int64 // clean-ups that have begun
	one     sync.Mutex   // of flaws that hold it for too long
}

// New returns a Locker on the server at addr, with a flaw, or "" for none. Code that has a
// flaw asks for it by name: see is, and the scripts. The Locker has a client of its own,
// as a process has; end closes both.
func New(addr, flaw string) (l *Locker, end func()) {
	// The client must not repeat requests: the code here does, where it has to.
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 10 * time.Second, PoolSize: 8})
	s := &Locker{flaw: flaw, rdb: rdb}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, func() {
		s.close()
		_ = s.rdb.Close()
	}
}

// attempt is one call of Lock or TryLock, and the hold that comes of it.
type attempt struct {
	req   *driver.Request
	id    string // of the attempt
	value string // of the lock's key while it is held
	place *place
	grant
	early int64 // the token of a flaw that draws it too early
	since driver.Instant
	least driver.Instant // the end of WithMinHold

	called driver.Instant

	lease  int64        // the token of the lease's first turn, if goroutines share it
	passed atomic.Bool  // the lease was passed on to the next goroutine
	left   atomic.Bool  // leave was called
	putOff atomic.Int64 // until when no renewal is sent
}

// beside reports whether others may hold the lock at the same time. Such a lock has its own
// entry in the store, and the line of its process goes on.
func (a *attempt) beside() bool { return a.req.Kind != locker.KindExclusive }

// turn is a lock on a lease that goroutines share.
type turn struct {
	contract.Held
	lease uint64
}

// Lease is for [driver.LeaseOf].
func (t turn) Lease() uint64 { return t.lease }

// locked is a lock that needs a mutex to say whether it is held.
type locked struct {
	contract.Held
	mu *sync.Mutex
}

// Err implements [contract.Held].
func (l locked) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Held.Err()
}

// boast is a lock that promises more than it keeps.
type boast struct {
	contract.Held
	more time.Duration
}

// Deadline implements [contract.Held].
func (b boast) Deadline() time.Time {
	if b.Err() != nil {
		return b.Held.Deadline()
	}
	return b.Held.Deadline().Add(b.more)
}

// unlockedIsLost is a lock that knows one end only.
type unlockedIsLost struct{ contract.Held }

// Err implements [contract.Held].
func (l unlockedIsLost) Err() error {
	if err := l.Held.Err(); err != nil {
		return &locker.LostError{Name: l.Name()}
	}
	return nil
}

// unlimited is a lock whose bounds cannot be set later.
type unlimited struct{ contract.Held }

// Limit implements [contract.Held].
func (unlimited) Limit(*contract.Settings) error { return nil }

// keys returns the lock's own key, those of its counter, its holder and its queue, and two
// for readers and slots.
func (s *Locker) keys(name string) []string {
	switch {
	case s.is("names are cut") && len(name) > 64:
		name = name[:64]
	case s.is("names are folded"):
		name = strings.ToLower(name)
	case s.is("names are hashed"):
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprint(binary.BigEndian.Uint32(sum[:]) % 4096)
	}
	return []string{"k:" + name, "c:" + name, "h:" + name, "q:" + name, "b:" + name, "a:" + name}
}

func (s *Locker) is(flaw string) bool { return s.flaw == flaw }

func (s *Locker) begin(ctx context.Context, name string, opts []locker.Option) (*attempt, error) {
	req, err := driver.NewRequest(nil, name, opts...)
	if s.is("checks nothing") {
		req, err = unchecked(name, opts), nil
	}
	switch {
	case err != nil:
		return nil, err
	case s.is("a context is asked under a mutex") && s.overUnderMutex(ctx):
		return nil, fmt.Errorf("specimen: %w", context.Cause(ctx))
	case s.closing.Err() != nil && !s.is("close is ignored"):
		return nil, fmt.Errorf("specimen: %w", locker.ErrClosed)
	case ctx.Err() != nil && !s.is("context is not looked at"):
		return nil, fmt.Errorf("specimen: %w", context.Cause(ctx))
	}
	a := &attempt{req: req, id: rand.Text(), called: driver.Now()}
	if a.value = a.id; s.is("fixed value") {
		a.value = "locked"
	}
	return a, nil
}

func (s *Locker) overUnderMutex(ctx context.Context) bool {
	s.one.Lock()
	defer s.one.Unlock()
	return ctx.Err() != nil
}

// unchecked makes the request of a backend that does not check options: it does without those
// that are bad.
func unchecked(name string, opts []locker.Option) *driver.Request {
	r, _ := driver.NewRequest(nil, "any")
	for i, opt := range opts {
		if with, err := driver.NewRequest(nil, "any", append(opts[:i:i], opt)...); err == nil {
			r = with
		}
	}
	r.Name = name
	r.MaxHold, r.MinValidity = 0, 0
	return r
}

// TryLock implements locker.Locker.
func (s *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := s.begin(ctx, name, opts)
	switch {
	case err != nil:
		return nil, err
	case a.req.Wait > 0:
		return nil, errors.New("specimen: TryLock does not wait")
	case s.is("context is not looked at"):
		ctx = context.WithoutCancel(ctx)
	}
	if a.place, err = s.lines.tryEnter(ctx, name, a); err != nil && a.beside() && s.is("a writer may read as well") {
		return fromMemory(a), nil
	} else if err != nil {
		return nil, fmt.Errorf("specimen: %w", err)
	}
	return s.finish(a, s.ask(ctx, a, false))
}

// fromMemory grants what nobody has asked the store for.
func fromMemory(a *attempt) *locker.Lock {
	nothing := func(context.Context) error { return nil }
	return simplelock.New(simplelock.Lease{Request: a.req, Token: 1, Slot: -1, Since: driver.Now(), Renew: nothing, Release: nothing})
}

// Lock implements locker.Locker.
func (s *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	a, err := s.begin(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if s.is("context is not looked at") {
		ctx = context.WithoutCancel(ctx)
	}
	if a.req.Wait > 0 && !s.is("waits without a bound") {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, a.req.Wait)
		defer stop()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !s.is("close is ignored") {
		defer context.AfterFunc(s.closing, func() { cancel(locker.ErrClosed) })()
	}
	inLine := ctx
	if s.is("waits for the one before it") {
		inLine = context.WithoutCancel(ctx)
	}
	if a.place, err = s.lines.enter(inLine, name, a); err != nil {
		return nil, fmt.Errorf("specimen: %w", err)
	}
	if s.is("a waiter is forgotten") && s.waits.Add(1) == 30 {
		<-ctx.Done()
	}
	return s.finish(a, s.wait(ctx, a))
}

// wait polls.
func (s *Locker) wait(ctx context.Context, a *attempt) error {
	switch {
	case a.token != 0 && s.is("a lease is passed on to the dead") && ctx.Err() != nil:
		a.value = ""
		return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
	case a.token != 0:
		return nil // passed on to us
	}
	switch {
	case s.is("a connection for every waiter"):
		own := redis.NewClient(&redis.Options{Addr: s.rdb.Options().Addr})
		defer own.Close()
		_ = own.Ping(ctx).Err()
	case s.is("a connection is left by every wait"):
		if own, err := net.Dial("tcp", s.rdb.Options().Addr); err == nil {
			context.AfterFunc(s.closing, func() { _ = own.Close() })
		}
	case s.is("a goroutine for every wait"):
		go func() { <-s.closing.Done() }()
	}
	told := s.is("silence is taken")
	for {
		err := s.askSoon(ctx, a, told)
		if errors.Is(err, locker.ErrTaken) && !errors.Is(err, locker.ErrUnavailable) {
			told = true
			a.place.hear()
		}
		a.place.silent.Store(errors.Is(err, locker.ErrUnavailable) && !s.is("taken is for ever"))
		pause := 3 * time.Millisecond
		switch {
		case ctx.Err() != nil && !told && s.is("the cause is dropped"):
			return locker.ErrUnavailable
		case ctx.Err() != nil && told:
			return fmt.Errorf("%w: %w", locker.ErrTaken, context.Cause(ctx))
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", locker.ErrUnavailable, context.Cause(ctx))
		case err != nil && s.is("waiters rely on being told"):
			pause = time.Hour
		case !told || err == nil || errors.Is(err, locker.ErrMismatch):
			return err
		case s.is("waiters sleep until the lease ends"), s.is("a broken value is refused"):
			info, _ := s.Inspect(ctx, a.req.Name)
			pause = info.TimeLeft
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// askSoon asks the store for a waiter. One that was told "taken" notices soon that the store is
// silent.
func (s *Locker) askSoon(ctx context.Context, a *attempt, told bool) error {
	if told {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	return s.ask(ctx, a, true)
}

// ask asks the store once, and notes a grant in a.
func (s *Locker) ask(ctx context.Context, a *attempt, waits bool) error {
	if s.is("token is drawn before the wait") && a.early == 0 {
		a.early, _ = s.rdb.Incr(ctx, s.keys(a.req.Name)[1]).Result()
	}
	if s.is("names wait for one another") {
		s.one.Lock()
		defer s.one.Unlock()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
	}
	since, voids := driver.Now(), s.voids.Load()
	got, err := bounded(ctx, s, func() (grant, error) { return s.acquire(ctx, a, waits) })
	if err != nil && ctx.Err() == nil && s.is("a repeated request is a stranger's") {
		a.id = rand.Text()
		a.value = a.id
		got, err = bounded(ctx, s, func() (grant, error) { return s.acquire(ctx, a, waits) })
	}
	if s.is("a clean-up is for all names") && s.voids.Load() != voids {
		err = errors.New("the attempt was withdrawn")
	}
	switch {
	case s.is("validity from the reply"):
		since = driver.Now()
	case s.is("validity from the call"):
		since = a.called
	}
	switch {
	case err != nil && s.is("a cause is the store's word") && errors.Is(err, locker.ErrTaken):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", locker.ErrUnavailable, err)
	case got.have != "":
		return got.mismatch(a.req)
	case got.token <= 0:
		return locker.ErrTaken
	}
	a.grant, a.since, a.least = got, since, driver.Now().Add(a.req.MinHold)
	if a.early != 0 {
		a.token = a.early
	}
	return nil
}

// bounded returns at the end of ctx though the client does not.
func bounded[T any](ctx context.Context, s *Locker, f func() (T, error)) (T, error) {
	if s.is("waits for the network") {
		return f()
	}
	return async.Start(f).Wait(ctx)
}

// finish makes the lock of a grant, and clears away what a failed attempt left.
func (s *Locker) finish(a *attempt, err error) (*locker.Lock, error) {
	a.place.hear()
	unseen := a.lease != 0 && (s.is("a lease is passed on unseen") || s.is("a lost lease is passed on"))
	if err == nil && !s.is("validity is not checked") && !s.is("checks nothing") && !unseen {
		err = simplelock.Check(a.req, a.since)
	}
	if err != nil {
		if known := errors.Is(err, locker.ErrTaken) && s.is("taken is all that is known"); !known && !s.withdraw(a) {
			err = fmt.Errorf("%w: %w", locker.ErrOutcomeUnknown, err)
		}
		a.place.leave()
		return nil, fmt.Errorf("specimen: %w", err)
	}
	if s.is("a goroutine for every lock") {
		go func() { <-s.closing.Done() }()
	}
	if a.beside() {
		a.left.Store(true)
		a.place.leave()
	}
	lock := simplelock.New(simplelock.Lease{
		Request: s.believed(a), Token: fencing.Token(a.token), Slot: a.slot, Since: a.since, //nolint:gosec // positive
		Lasting: s.is("no clock of its own"),
		Renew:   func(ctx context.Context) error { return s.renew(ctx, a) },
		Release: func(ctx context.Context) error { return s.release(ctx, a) },
		Lost: func() {
			next, first := s.leave(a)
			if next != nil && s.is("a lost lease is passed on") {
				s.passOn(a, next)
			}
			if first {
				a.place.leave()
			}
		},
		Detached: func() contract.Detached { return s.detach(a) },
	})
	if s.shares() && !a.beside() {
		if a.lease == 0 {
			a.lease = a.token
		}
		lock = locker.NewLock(contract.Key{}, turn{locker.HeldOf(contract.Key{}, lock), uint64(a.lease)}) //nolint:gosec // positive
	}
	if s.is("bounds cannot be set later") {
		lock = locker.NewLock(contract.Key{}, unlimited{locker.HeldOf(contract.Key{}, lock)})
	}
	if s.is("a context is asked under a mutex") {
		lock = locker.NewLock(contract.Key{}, locked{locker.HeldOf(contract.Key{}, lock), &s.one})
	}
	if s.is("an unlock is a loss") {
		lock = locker.NewLock(contract.Key{}, unlockedIsLost{locker.HeldOf(contract.Key{}, lock)})
	}
	if s.is("the deadline is too late") {
		lock = locker.NewLock(contract.Key{}, boast{locker.HeldOf(contract.Key{}, lock), a.req.TTL / 4})
	}
	if end := a.since + driver.Instant(a.req.MaxHold); s.is("long times wrap") && end < a.since {
		simplelock.Lose(lock, locker.ReasonMaxHold, nil)
	}
	return lock, nil
}

// withdraw removes what a has left, in the background if need be, and reports
// whether that was confirmed.
func (s *Locker) withdraw(a *attempt) bool {
	if s.is("no clean-up") {
		return true
	}
	s.voids.Add(1)
	confirmed := make(chan bool, 1)
	go func() {
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			_, err := bounded(ctx, s, func() (int64, error) { return s.run(ctx, withdraw, a.req.Name, a.id, a.value, s.flaw) })
			cancel()
			if err == nil || s.closing.Err() != nil {
				confirmed <- err == nil
				return
			}
		}
	}()
	select {
	case ok := <-confirmed:
		return ok
	case <-time.After(250 * time.Millisecond):
		return false
	}
}

func (s *Locker) release(ctx context.Context, a *attempt) error {
	next, first := s.leave(a)
	if first {
		defer a.place.leave()
	}
	switch {
	case s.is("unlock does nothing"):
		return nil
	case a.beside():
		return s.releaseBeside(ctx, a)
	case s.shares() && next != nil:
		s.passOn(a, next)
		return nil
	case s.is("a hand-over counts from the answer") && next != nil:
		token, err := s.run(ctx, handOver, a.req.Name, a.value, next.value, next.req.TTL.Milliseconds(), s.flaw)
		next.token, next.since = token, driver.Now()
		return err
	case s.is("get, then del"):
		return s.getThenDel(context.WithoutCancel(ctx), a)
	case s.is("timestamps"):
		return s.rdb.Del(ctx, s.keys(a.req.Name)[0]).Err()
	}
	keep := max(a.least.Sub(driver.Now()), 0)
	if s.is("a minimum hold goes with its process") && keep > 0 {
		time.AfterFunc(keep, func() { _, _ = s.run(context.Background(), release, a.req.Name, a.value, 0, s.flaw) })
		return nil
	}
	give := func() (int64, error) {
		return s.run(ctx, release, a.req.Name, a.value, (keep + time.Millisecond - 1).Milliseconds(), s.flaw)
	}
	freed, err := bounded(ctx, s, give)
	if err != nil && s.is("asks again and finds nothing") {
		freed, err = give()
	}
	return s.released(a, freed, err)
}

func (s *Locker) released(a *attempt, freed int64, err error) error {
	switch {
	case err != nil:
		s.withdraw(a)
		return fmt.Errorf("specimen: unlock: %w", err)
	case freed == 0:
		return &locker.LostError{Name: a.req.Name, Reason: locker.ReasonTakenOver}
	}
	return nil
}

// leave returns who is next in line and gets a's lease, or nil, and whether this is the
// first call: after a loss the lock is released, too, and only one of the two may leave the
// line.
func (s *Locker) leave(a *attempt) (next *attempt, first bool) {
	if !a.left.CompareAndSwap(false, true) {
		return nil, false
	}
	if s.shares() || s.is("a hand-over counts from the answer") {
		next, _ = a.place.successor()
	}
	return next, true
}

// sharing are the flaws of goroutines that share a lease.
var sharing = []string{
	"keeps the lock among its goroutines", "a lease is passed on unseen", "a turn has its predecessor's bound",
	"a renewal belongs to its turn", "a lost lease is passed on", "a lease is passed on to the dead",
}

func (s *Locker) shares() bool { return slices.Contains(sharing, s.flaw) }

// passOn passes a's lease on to the next goroutine, and asks the store for a token.
func (s *Locker) passOn(a, next *attempt) {
	next.value, next.since, next.lease = a.value, a.since, a.lease
	if s.is("a turn has its predecessor's bound") {
		req := *next.req
		req.MaxHold = a.req.MaxHold
		next.req = &req
	}
	a.passed.Store(true)
	next.token = s.rdb.Incr(context.Background(), s.keys(a.req.Name)[1]).Val()
}

func (s *Locker) renew(ctx context.Context, a *attempt) error {
	switch {
	case s.is("renewal is not sent"), s.is("readers are not renewed") && a.req.Kind == locker.KindShared, s.is("slots are not renewed") && a.req.Kind == locker.KindSlots:
		return nil
	case s.is("timestamps"):
		return errors.New("specimen: a timestamp is not renewed")
	case s.is("a failed renewal puts off the next") && driver.Now() < driver.Instant(a.putOff.Load()):
		a.putOffRenewals()
		return errors.New("specimen: it is too soon to try again")
	}
	if s.is("a renewal may not be sent") && ctx.Err() != nil {
		return nil //nolint:nilerr // the flaw
	}
	script, value := renew, a.value
	if a.beside() {
		script, value = renewBeside, a.id
	}
	n, err := bounded(ctx, s, func() (int64, error) {
		return s.run(ctx, script, a.req.Name, value, a.req.TTL.Milliseconds(), s.flaw)
	})
	if s.is("a renewal belongs to its turn") && a.passed.Load() {
		_, _ = s.run(ctx, release, a.req.Name, a.value, 0, s.flaw) // that is the flaw: its turn is over
	}
	if err != nil {
		a.putOffRenewals()
	}
	if err == nil && n == 0 && !s.is("the holder is not told") {
		return &locker.LostError{Name: a.req.Name, Reason: locker.ReasonTakenOver}
	}
	if err != nil && !s.is("a cause is the store's word") {
		return fmt.Errorf("%w: %s", locker.ErrUnavailable, err.Error()) // an ErrLost among the causes is another lock's
	}
	return err
}

func (a *attempt) putOffRenewals() { a.putOff.Store(int64(driver.Now().Add(a.req.TTL / 15))) }

// Inspect implements locker.Inspector.
func (s *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	if err := locker.CheckName(name); err != nil {
		return locker.Info{}, err
	}
	got, err := look.Run(ctx, s.rdb, s.keys(name), s.flaw).StringSlice()
	if err != nil {
		return locker.Info{}, err
	}
	info := locker.Info{Name: name, Held: got[0] != ""}
	info.Token, _ = fencing.ParseToken(got[2])
	info.Waiters, _ = strconv.Atoi(got[4])
	if left, _ := strconv.Atoi(got[1]); info.Held {
		info.Holder, info.TimeLeft = got[3], time.Duration(left)*time.Millisecond
		info.Kept = strings.HasPrefix(got[0], "kept after ") && !s.is("shows a holder of what is kept")
	}
	besides(&info, got[5], got[6:])
	return info, nil
}

// List implements locker.Lister.
func (s *Locker) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	var infos []locker.Info
	for _, key := range []string{s.keys("")[0], s.keys("")[1], s.keys("")[4]} { // nobody has both keys of a lock that is held
		if key == s.keys("")[1] && !s.is("lists what is free") {
			continue
		}
		for found := s.rdb.Scan(ctx, 0, key+"*", 1000).Iterator(); found.Next(ctx); {
			name := strings.TrimPrefix(found.Val(), key)
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			info, err := s.Inspect(ctx, name)
			if err != nil {
				return nil, err
			}
			if info.Held || s.is("lists what is free") {
				infos = append(infos, info)
			}
		}
	}
	slices.SortFunc(infos, func(a, b locker.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// Break implements locker.Breaker.
func (s *Locker) Break(ctx context.Context, name string) (bool, error) {
	n, err := s.run(ctx, force, name, s.flaw)
	return n > 0, err
}

// BreakHolder implements locker.Breaker.
func (s *Locker) BreakHolder(ctx context.Context, name string, number locker.Number) (bool, error) {
	n, err := s.run(ctx, force, name, uint64(number), s.flaw)
	return n > 0, err
}

// Close ends the waiting.
func (s *Locker) Close() error {
	s.close()
	return nil
}

// Guarantees implements locker.Locker.
func (s *Locker) Guarantees() locker.Guarantees {
	g := locker.Guarantees{Fair: true, FreedBy: locker.FreedByExpiry, KeepsMinHold: true, Detaches: true, Shared: true, Slots: true, Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.DurableServer, Tokens: locker.DurableServer}
	if s.is("declares nothing") {
		g.FreedBy = 0
	}
	return g
}

func (s *Locker) run(ctx context.Context, script *redis.Script, name string, args ...any) (int64, error) {
	return script.Run(ctx, s.rdb, s.keys(name), args...).Int64()
}
