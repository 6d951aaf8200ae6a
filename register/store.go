package register

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// store is the [driver.Store] of locks in a [Store].
type store struct {
	Store
	watcher Watcher // the Store, or nil if it does not tell of changes
	opts    Options
	now     func() driver.Instant
	closing context.Context // ends with Close
	sound   atomic.Bool     // the Store was found to honour versions
	took    atomic.Int64    // for how long a request takes

	mu    sync.Mutex
	names map[string]*name
}

// attempt is one attempt at a name.
type attempt struct {
	req    *driver.Request
	name   *name
	id     string
	number number // that was granted

	adopted bool // another process had it
}

// ask calls the store with a time limit.
func ask[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTime, errSilent)
	defer cancel()
	got, err := f(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrChanged) && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return got, err
}

// rtt is for how long a request takes, as measured.
func (s *store) rtt() time.Duration { return max(time.Duration(s.took.Load()), time.Millisecond) }

func (s *store) measure(d time.Duration) {
	d = min(d, requestTime) // the process may have been suspended
	have := cmp.Or(s.took.Load(), int64(d))
	s.took.Store(have + (int64(d)-have)/8)
}

// use returns what is known of a name, and remembers it until drop is called, and then until all who were seen there must have expired.
func (s *store) use(key string) *name {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[key]
	if n == nil {
		n = &name{s: s, key: key, busy: make(chan struct{}, 1), own: make(map[string]struct{}), news: make(chan struct{})}
		s.names[key] = n
	}
	if n.uses++; n.forget != nil {
		n.forget.Stop()
	}
	return n
}

func (s *store) drop(n *name) {
	n.mu.Lock()
	keep := remembered
	if n.record != nil {
		keep = max(keep, n.record.span())
	}
	n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.uses--; n.uses == 0 {
		n.forget = time.AfterFunc(keep, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n.uses == 0 && s.names[n.key] == n {
				delete(s.names, n.key)
			}
		})
	}
}

// age is for how long at least the store has had a record.
func (s *store) age(e Entry, r *record) time.Duration {
	switch {
	case s.opts.Age:
		return max(e.Age, 0)
	case r.Wall == 0:
		return 0
	}
	return max(time.Since(time.UnixMilli(r.Wall))-wallMargin, 0)
}

func (s *store) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | s.opts.Exclusion, Tokens: s.opts.Tokens,
		Fair: true, FreedBy: locker.FreedByExpiry, KeepsMinHold: s.opts.Age, Detaches: true, Shared: true, Slots: true, Herd: true, ServerFailures: s.opts.ServerFailures,
	}
	if !s.opts.Age {
		g.Exclusion |= locker.AgreedClocks
	}
	return g
}

func (s *store) Begin(req *driver.Request) (*attempt, error) {
	if req.Name == probeName {
		return nil, fmt.Errorf("%w: the record of this name shows whether the store honours versions", errors.ErrUnsupported)
	}
	return &attempt{req: req, name: s.use(req.Name), id: rand.Text()}, nil
}

// End implements [driver.Ender].
func (s *store) End(a *attempt) {
	a.name.part(a.id)
	s.drop(a.name)
}

// entry is what an attempt asks for.
func (s *store) entry(a *attempt) entry {
	return entry{
		ID: a.id, TTL: a.req.TTL.Milliseconds(), Kind: a.req.Kind.String(), Slots: a.req.Slots, Text: a.req.Holder,
		Claim: s.claimTime().Milliseconds(),
	}
}

// claimTime is for how long a waiter of this process may take to claim its turn.
func (s *store) claimTime() time.Duration {
	if s.watcher != nil {
		return max(500*time.Millisecond, 4*s.rtt())
	}
	return max(3*time.Second, 4*(s.opts.Poll+s.rtt()))
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	if err := s.probe(ctx); err != nil {
		return driver.Grant{}, driver.Nothing, err
	}
	n, left := a.name, driver.Nothing
	n.join(a.id)
	n.leaveGap(ctx)
	for how := yield; ; {
		var got entry
		var again driver.Instant
		res, err := n.change(ctx, how, func(r *record, now driver.Instant) (v verdict, err error) {
			if s.closing.Err() != nil { // who gets no place has not waited yet
				return pass, locker.ErrClosed
			}
			got, again, v, err = s.acquire(a, r, wait != nil, now)
			if v == pass && left == driver.Nothing {
				v = answer // that it is taken nobody has heard yet
			}
			return v, err
		})
		if res.unsure {
			left = driver.Unsure
		}
		switch {
		case err != nil:
			return driver.Grant{}, left, err
		case got.Number != 0:
			a.number = got.Number
			return driver.Grant{First: uint64(got.Number), Count: a.req.Tokens(tokens), Slot: got.Slot, Since: res.since}, driver.Nothing, nil
		case wait == nil:
			return driver.Grant{}, left, nil
		case left == driver.Nothing:
			left, ctx = driver.Unsure, wait() // it has a place in the queue
			defer n.follow()()
		}
		how = look
		if n.wait(ctx, res.order, again) {
			how = yield
		}
		if ctx.Err() != nil {
			return driver.Grant{}, left, context.Cause(ctx)
		}
	}
}

// acquire is the step of an Acquire. Again is when a waiter reads the record again, if it hears of no change.
func (s *store) acquire(a *attempt, r *record, waits bool, now driver.Instant) (got entry, again driver.Instant, v verdict, err error) {
	n, e := a.name, s.entry(a)
	if have := r.mismatch(&e); have != nil {
		return entry{}, 0, answer, driver.Mismatch(a.req, kindOf(have), have.Slots)
	}
	place := find(r.Queue, a.id)
	comes := place == nil && find(r.Holds, a.id) == nil
	beat := now
	if place != nil {
		beat = now.Add(milliseconds(place.TTL)/2 - n.view.idle(place, now))
	}
	granted, more, err := r.acquire(e, waits, n.view.due(r, now))
	var size int
	if comes && len(r.Holds)+len(r.Queue) > 1 { // one alone fits into the least limit
		size = r.size()
	}
	switch {
	case err != nil:
		return entry{}, 0, answer, err
	case granted == nil && !waits:
		return entry{}, 0, answer, nil
	case comes && r.load(s.rtt()) > 1:
		return entry{}, 0, answer, fmt.Errorf("the renewals of those who have the lock or wait for it take all the writes that the store can do, at %v each: use longer TTLs, or fewer names in one place", s.rtt())
	case size > s.opts.Limit:
		return entry{}, 0, answer, driver.Unfit(fmt.Errorf("the record of this name would have %d bytes with room to grow, for %d holders and %d waiters, and the store's limit is %d",
			size, len(r.Holds), len(r.Queue), s.opts.Limit))
	case granted != nil && place != nil:
		return *granted, 0, claim, nil
	case granted != nil:
		return *granted, 0, write, nil
	case beat <= now:
		beat, v = now.Add(placeTTL/2), write
	default:
		v = pass
	}
	again = min(beat, now.Add(placeTTL/2), n.view.look(r, a.id, more, now, n.alive))
	if s.watcher == nil {
		again = min(again, now.Add(s.opts.Poll))
	}
	return entry{}, again, v, nil
}

// ID implements [driver.Detacher].
func (s *store) ID(a *attempt) string { return a.id }

// Resume implements [driver.Detacher]. It writes in any case: a request of an earlier attempt that is still under way then finds another version, and
// a process that has read nothing of the name before may have read what the store had some time ago.
func (s *store) Resume(ctx context.Context, a *attempt, ids []string) (driver.Grant, driver.Left, error) {
	if err := s.probe(ctx); err != nil {
		return driver.Grant{}, driver.Nothing, err
	}
	a.name.join(a.id)
	var lost error
	t, err := a.name.change(ctx, hurry, func(r *record, _ driver.Instant) (verdict, error) {
		got, err := r.resume(ids, s.entry(a))
		if lost = err; err == nil {
			a.number = got.Number
		} else if !errors.Is(err, locker.ErrLost) {
			return answer, err
		}
		return write, nil
	})
	if err = cmp.Or(err, lost); err != nil {
		return driver.Grant{}, driver.UnsureIf(t.unsure), err
	}
	return driver.Grant{First: uint64(a.number), Count: a.req.Tokens(tokens), Since: t.since}, driver.Unsure, nil
}

// Adopt implements [driver.Detacher]. The attempt does not join the name: this process's writes are no heartbeats of it. Its number is not known, so
// a lock that was broken is one that was taken over.
func (s *store) Adopt(a *attempt, id string) error {
	a.id, a.adopted = id, true
	return nil
}

// Renew asks for each name by itself, so that none waits for another.
func (s *store) Renew(ctx context.Context, as []*attempt) []error {
	if err := s.probe(ctx); err != nil { // for a handle: what this process has acquired has probed
		return slices.Repeat([]error{err}, len(as))
	}
	errs := make([]error, len(as))
	of := make(map[*name][]int)
	for i, a := range as {
		of[a.name] = append(of[a.name], i)
	}
	var all sync.WaitGroup
	for n, which := range of {
		all.Go(func() {
			err := driver.Caught(func() error {
				_, err := n.change(ctx, hurry, func(r *record, _ driver.Instant) (verdict, error) {
					v := answer
					for _, i := range which {
						if errs[i] = r.renew(as[i].id, as[i].number, as[i].req.TTL); errs[i] == nil || as[i].adopted {
							v = write // as Resume does: what is said of a handle is to be true of now
						}
					}
					return v, nil
				})
				return err
			})
			for _, i := range which {
				errs[i] = cmp.Or(err, errs[i])
			}
		})
	}
	all.Wait()
	return errs
}

func (s *store) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	if err := s.probe(ctx); err != nil { // as in Renew
		return err
	}
	var lost error
	_, err := a.name.change(ctx, guess, func(r *record, _ driver.Instant) (verdict, error) {
		var changed bool
		if changed, lost = r.release(a.id, a.number, keep); changed || lost != nil && a.adopted { // as there
			return write, nil
		}
		return answer, nil
	})
	return cmp.Or(err, lost)
}

// Withdraw always writes: a request of the attempt's that is still under way then finds another version, and is refused.
func (s *store) Withdraw(ctx context.Context, a *attempt) error {
	a.name.part(a.id)
	_, err := a.name.change(ctx, yield, func(r *record, _ driver.Instant) (verdict, error) {
		if r.withdraw(a.id) {
			return claim, nil // others wait for what it had
		}
		return write, nil
	})
	return err
}

// Break is not tried again after a lost answer: it might break the next holder.
func (s *store) Break(ctx context.Context, key string, holder locker.Number) (broken bool, err error) {
	n := s.use(key)
	defer s.drop(n)
	_, err = n.change(ctx, guess, func(r *record, _ driver.Instant) (verdict, error) {
		if broken = r.free(number(holder)); broken {
			return write, nil
		}
		return answer, nil
	})
	return broken && err == nil, err
}

func (s *store) Inspect(ctx context.Context, key string) (info locker.Info, err error) {
	n := s.use(key)
	defer s.drop(n)
	if err := n.read(ctx); err != nil {
		return locker.Info{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := s.now()
	return n.living(now).info(&n.view, now), nil
}

// listing is the store of a Store that can list names.
type listing struct {
	*store
	lister Lister
}

// List shows what is held. A record that it cannot read is an error: a later version may have a lock there.
func (s *listing) List(ctx context.Context, prefix string) (infos []locker.Info, err error) {
	entries, err := s.lister.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for key, e := range entries {
		if len(e.Record) == 0 { // it was deleted meanwhile
			continue
		}
		r, err := parse(key, e.Record)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		var v view
		age, now := s.age(e, r), s.now()
		v.observe(r, now, now, age)
		if info := v.living(r, now, func(*entry) bool { return false }).info(&v, now); info.Held {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

const (
	// probeName is the name of a record that is nobody's lock.
	probeName = "lockstile: does this store honour versions?"
	// probes is how often a sound store may refuse a write at the version that it has.
	probes = 10
)

// probe finds out, once, whether the store honours versions: some servers ignore conditions. When a record has been replaced, it must
// neither be replaced once more nor be created. Calls that come at once probe each by themselves: if one waited for another, each would hear
// later and later that the store is silent.
func (s *store) probe(ctx context.Context) error {
	if s.sound.Load() {
		return nil
	}
	swap := func(version string) (string, error) { // to a record in which nobody is
		text := (&record{Format: format, Name: probeName, Order: 1, Nonce: rand.Text()}).encode()
		began := s.now()
		defer func() { s.measure(s.now().Sub(began)) }()
		return ask(ctx, func(ctx context.Context) (string, error) { return s.Swap(ctx, probeName, version, text) })
	}
	get := func() (Entry, error) {
		return ask(ctx, func(ctx context.Context) (Entry, error) { return s.Get(ctx, probeName) })
	}
	e, err := get()
	was, now := "", e.Version                          // a version that was replaced, and the one that has replaced it
	for tries := 1; was == "" && err == nil; tries++ { // the first may create the record
		var next string
		if next, err = swap(now); errors.Is(err, ErrChanged) { // somebody else probes, or the store says no more than that it is busy
			e, err = get()
			if next = e.Version; err == nil && next == now { // or a copy of it is behind
				if tries == probes {
					return driver.Refused(errors.New("the store refuses a write at the version that it has, so it cannot have locks"))
				}
				if !sleep(ctx, time.Duration(tries*tries)*10*time.Millisecond) {
					return context.Cause(ctx)
				}
			}
		}
		if next != now {
			was, now = now, next
		}
	}
	if err != nil {
		return err
	}
	for _, version := range []string{was, ""} {
		switch _, err := swap(version); {
		case err == nil:
			return driver.Refused(errors.New("the store has replaced a record that was another by then: it ignores conditions, so it cannot have locks"))
		case !errors.Is(err, ErrChanged):
			return err
		}
	}
	s.sound.Store(true)
	return nil
}
