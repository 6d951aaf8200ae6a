package lockertest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

const (
	// tokens is how many tokens a grant has.
	tokens = 64
	// reserveTime is how long a lock stays reserved for the waiter whose turn it is.
	reserveTime = 500 * time.Millisecond
	// forever is the lease of a lock that was taken by Take.
	forever = locker.Instant(math.MaxInt64)
)

// server is the store. Each method is one atomic step.
type server struct {
	now func() locker.Instant

	mu    sync.Mutex
	names map[string]*entry
}

// entry is what the server knows of a name.
type entry struct {
	holder  *attempt // has the lock until end; nil with an end: taken by Take
	kept    bool     // holder has unlocked it, and nobody else gets it until end
	next    *attempt // for whom the lock is reserved until end
	end     locker.Instant
	waiters []*attempt
	last    uint64 // token
}

// attempt is one attempt at a name, and the hold that comes of it: the driver's H.
type attempt struct {
	req  *locker.Request
	word chan struct{} // of the server: ask again
	left bool          // something of it may be in the store
	link *Link

	// What follows is the server's.
	withdrawn, forced bool
	first             uint64
}

// answer is the server's to an attempt.
type answer struct {
	first     uint64        // 0: taken
	left      time.Duration // until it is worth asking again
	withdrawn bool
}

func (s *server) entry(name string) *entry {
	e := s.names[name]
	if e == nil {
		e = new(entry)
		s.names[name] = e
	}
	if e.end != 0 && s.now() >= e.end {
		e.pass(s.now())
	}
	return e
}

// pass reserves a lock that has become free for the first waiter, and tells it.
func (e *entry) pass(now locker.Instant) {
	e.holder, e.kept, e.next, e.end = nil, false, nil, 0
	if len(e.waiters) == 0 {
		return
	}
	e.next, e.waiters, e.end = e.waiters[0], e.waiters[1:], now.Add(reserveTime)
	e.next.tell()
	if len(e.waiters) > 0 {
		e.waiters[0].tell() // asks again, and is told to wait for reserveTime
	}
}

func (a *attempt) tell() {
	a.link.push(func() {
		select {
		case a.word <- struct{}{}:
		default:
		}
	})
}

// acquire is what Acquire sends.
func (s *server) acquire(a *attempt, queue bool) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := s.entry(a.req.Name), s.now()
	switch {
	case a.withdrawn:
		return answer{withdrawn: true}
	case e.holder == a && !e.kept: // the same answer to a request that is sent again
		e.end = now.Add(a.req.TTL)
	case e.next == a, e.end == 0:
		e.holder, e.next, e.end = a, nil, now.Add(a.req.TTL)
		a.first, e.last = e.last+1, e.last+tokens
		e.waiters = slices.DeleteFunc(e.waiters, func(w *attempt) bool { return w == a })
	default:
		if queue && !slices.Contains(e.waiters, a) {
			e.waiters = append(e.waiters, a)
		}
		ahead := max(slices.Index(e.waiters, a), 0)
		return answer{left: e.end.Sub(now) + time.Duration(ahead)*reserveTime}
	}
	return answer{first: a.first}
}

// renew answers nil, or that a no longer has the lock.
func (s *server) renew(a *attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.req.Name)
	if err := e.lost(a); err != nil {
		return err
	}
	e.end = s.now().Add(a.req.TTL)
	return nil
}

func (s *server) release(a *attempt, keep time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.req.Name)
	switch err := e.lost(a); {
	case err != nil && e.holder == a: // kept already
		return nil
	case err != nil:
		return err
	case keep == 0:
		e.pass(s.now())
		return nil
	}
	e.kept, e.end = true, s.now().Add(keep)
	for _, w := range e.waiters { // they ask again, and hear how long to wait
		w.tell()
	}
	return nil
}

func (e *entry) lost(a *attempt) error {
	switch {
	case e.holder == a && !e.kept:
		return nil
	case a.forced:
		return &locker.LostError{Reason: locker.Forced}
	}
	return &locker.LostError{Reason: locker.TakenOver}
}

// withdraw removes what a has left, and refuses what may yet come.
func (s *server) withdraw(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(a.req.Name)
	a.withdrawn = true
	e.waiters = slices.DeleteFunc(e.waiters, func(w *attempt) bool { return w == a })
	if e.holder == a && !e.kept || e.next == a {
		e.pass(s.now())
	}
}

func (s *server) inspect(name string) locker.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info(name)
}

// list returns what is held.
func (s *server) list(prefix string) []locker.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []locker.Info
	for name := range s.names {
		if info := s.info(name); info.Held && strings.HasPrefix(name, prefix) {
			infos = append(infos, info)
		}
	}
	return infos
}

func (s *server) info(name string) locker.Info {
	e := s.entry(name)
	info := locker.Info{Name: name, Token: fencing.Token(e.last), Waiters: len(e.waiters), Held: e.end != 0 && e.next == nil}
	if e.holder != nil {
		info.Holder, info.Token, info.TimeLeft = e.holder.req.Holder, fencing.Token(e.holder.first), e.end.Sub(s.now())
	}
	return info
}

// free takes the lock from its holder, or ends Take.
func (s *server) free(name string) (holder *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	holder = e.holder
	e.pass(s.now())
	return holder
}

// lose takes the lock from its holder, if that is behind this link.
func (s *server) lose(name string, link *Link) (holder *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	if e.holder == nil || e.holder.link != link {
		return nil
	}
	holder = e.holder
	e.pass(s.now())
	return holder
}

func (s *server) take(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	e.holder, e.kept, e.next, e.end = nil, false, nil, forever
}

// client is a [driver.Store]: it asks the server, and waits.
type client struct {
	server *server
	link   *Link
}

func (c *client) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		Exclusion: locker.PromptHolder, Tokens: locker.ServerUp, Fair: true, Release: locker.ByExpiry, Keeps: true,
	}
}

func (c *client) Begin(req *locker.Request) (*attempt, error) {
	return &attempt{req: req, word: make(chan struct{}, 1), link: c.link}, nil
}

var errWithdrawn = errors.New("the attempt was withdrawn")

func (c *client) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	for {
		since := c.server.now()
		a.left = true
		got, err := send(ctx, c.link, func() answer { return c.server.acquire(a, wait != nil) })
		switch {
		case err != nil:
			return driver.Grant{}, err
		case got.withdrawn:
			return driver.Grant{}, errWithdrawn
		case got.first != 0:
			return driver.Grant{First: got.first, Count: tokens, Since: since}, nil
		case wait == nil:
			a.left = false
			return driver.Grant{}, nil
		}
		ctx = wait()
		look := time.NewTimer(got.left)
		select {
		case <-a.word:
		case <-look.C:
		case <-ctx.Done():
		}
		look.Stop()
		if ctx.Err() != nil {
			return driver.Grant{}, context.Cause(ctx)
		}
	}
}

func (c *client) Renew(ctx context.Context, as []*attempt) []error {
	errs, err := send(ctx, c.link, func() []error {
		errs := make([]error, len(as))
		for i, a := range as {
			errs[i] = c.server.renew(a)
		}
		return errs
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(as))
	}
	return errs
}

func (c *client) Release(ctx context.Context, a *attempt, keep time.Duration) error {
	lost, err := send(ctx, c.link, func() error { return c.server.release(a, keep) })
	if err != nil {
		return err
	}
	a.left = false
	return lost
}

func (c *client) Withdraw(ctx context.Context, a *attempt) error {
	_, err := send(ctx, c.link, func() bool { c.server.withdraw(a); return true })
	return err
}

func (c *client) Left(a *attempt) bool { return a.left }
func (c *client) End(*attempt)         {}

func (c *client) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return send(ctx, c.link, func() locker.Info { return c.server.inspect(name) })
}

func (c *client) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	return send(ctx, c.link, func() []locker.Info { return c.server.list(prefix) })
}

func (c *client) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	return send(ctx, c.link, func() bool {
		holder := c.server.free(name)
		if holder != nil {
			holder.forced = true
		}
		return holder != nil
	})
}
