package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/zkclient"
)

// store is the [driver.Store]. What its zk client is asked may take for ever, so every
// call is in a goroutine of its own, of which there are 512 at most.
type store struct {
	zk      *zkclient.Client
	renewal *zkclient.Client // the same, for calls that wait behind no others here
	opts    Options
	locks   *driver.Locker[*attempt]
	hub     atomic.Pointer[hub] // the latest
	making  chan struct{}       // held by who makes the next
	watches watches
}

func newStore(conn *zk.Conn, opts Options) *store {
	s := &store{zk: zkclient.New(conn, opts.ACL), renewal: zkclient.New(conn, opts.ACL), opts: opts, making: make(chan struct{}, 1)}
	s.watches.live = make(map[string]<-chan zk.Event)
	s.locks = driver.New("zookeeper", s, driver.Options{})
	return s
}

func (s *store) Features() driver.Features {
	return driver.Features{Guarantees: (*Locker)(nil).Guarantees()}
}

func (s *store) Begin(req *locker.Request) (*attempt, error) {
	return &attempt{req: req, queue: s.queue(req.Name)}, fits(req, s.opts.Session.Timeout())
}

// queue is the path below which the places for a name are.
func (s *store) queue(name string) string { return s.opts.Base + "/" + zkclient.Escape(name) }

// fits returns an error if a session with this timeout, 0 if that is not known yet,
// cannot do what is wanted.
func fits(req *locker.Request, timeout time.Duration) error {
	if req.TTL < timeout {
		return fmt.Errorf("ttl %v is under the session timeout of %v, for which the store keeps a dead holder's locks: ask for a longer ttl or connect with a shorter session timeout",
			req.TTL, timeout)
	}
	valid := believable(timeout)
	valid -= locker.Drift(valid)
	switch {
	case timeout == 0:
	case believable(timeout) < locker.MinTTL:
		return fmt.Errorf("a session timeout of %v is too short for a lock", timeout)
	case req.MinValidity >= valid:
		return fmt.Errorf("minimum validity %v cannot be met with a session timeout of %v: it leaves %v", req.MinValidity, timeout, valid)
	}
	return nil
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	grant, err := s.acquire(ctx, a, wait)
	if zkclient.Refused(err) {
		err = driver.Refused(err)
	}
	return grant, err
}

// acquire takes a place, and waits until nobody is ahead of it.
func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	for {
		ahead, err := s.approach(ctx, a, wait == nil)
		switch {
		case errors.Is(err, errGone), err == nil && ahead == "" && !s.lasts(a.hub):
			continue // with another place, or another session to believe in
		case err != nil:
			return driver.Grant{}, err
		case ahead == "":
			return a.grant()
		case wait == nil:
			return driver.Grant{}, nil
		}
		ctx = wait()
		if err := s.waitFor(ctx, a, a.queue+"/"+ahead); err != nil {
			return driver.Grant{}, err
		}
	}
}

// turns is how many tokens a grant has: it is part of every token, for ever.
const turns = 1024

func (a *attempt) grant() (driver.Grant, error) {
	first, err := firstToken(a.zxid)
	return driver.Grant{First: first, Count: turns, Since: a.since, Session: a.hub}, err
}

func firstToken(zxid int64) (uint64, error) {
	if zxid <= 0 || zxid > math.MaxUint64/turns {
		return 0, driver.Refused(fmt.Errorf("the zxid %#x makes no token, which has 54 bits for it", zxid))
	}
	return uint64(zxid) * turns, nil
}

// mostChecks bounds the locks that one transaction looks at. Servers refuse
// requests of a megabyte; a path is less than two kilobytes, mostly a tenth.
const mostChecks = 500

// Renew looks whether the nodes are there: a session's own, or a lock's.
func (s *store) Renew(ctx context.Context, as []*attempt) []error {
	errs := make([]error, len(as))
	var there []int // indexes into as
	for i, a := range as {
		if errs[i] = s.ended(a); errs[i] == nil {
			there = append(there, i)
		}
	}
	for some := range slices.Chunk(there, mostChecks) {
		s.renewSome(ctx, as, some, errs)
	}
	return errs
}

// renewSome looks at some in one transaction. A node that is refused makes it fail, so it is
// tried again without that one.
func (s *store) renewSome(ctx context.Context, as []*attempt, some []int, errs []error) {
	for len(some) > 0 {
		ops := make([]any, len(some))
		for i, at := range some {
			ops[i] = &zk.CheckVersionRequest{Path: as[at].path, Version: -1}
		}
		_, failed, err := s.renewal.Multi(ctx, ops...)
		if failed < 0 {
			for _, at := range some {
				errs[at] = err
			}
			return
		}
		errs[some[failed]] = s.lost(as[some[failed]], err)
		some = slices.Concat(some[:failed], some[failed+1:])
	}
}

// ended returns an error if the session that a hangs on has ended for certain: the
// client was told so by a server, and has another one or none.
func (s *store) ended(a *attempt) error {
	if a.session == s.zk.SessionID() {
		return nil
	}
	return &locker.LostError{Reason: locker.SessionEnded}
}

// lost makes a loss of a server's answer that there is no such node.
func (s *store) lost(a *attempt, err error) error {
	switch {
	case !errors.Is(err, zk.ErrNoNode):
		return err
	case a.req == nil || s.ended(a) != nil:
		return &locker.LostError{Reason: locker.SessionEnded}
	}
	return &locker.LostError{Reason: locker.TakenOver}
}

func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	err := s.zk.Remove(ctx, a.path)
	a.gone = err == nil || errors.Is(err, zk.ErrNoNode)
	return s.lost(a, err)
}

func (s *store) Left(a *attempt) bool { return a.path != "" && !a.gone && s.ended(a) == nil }

// End leaves the session. The zk client keeps that alive, and in it what the Locker could
// not remove in its time, and who waits behind that waits for ever: so it goes on
// until it is gone, the session has ended or the Locker is closed.
func (s *store) End(a *attempt) {
	switch {
	case a.hub == nil:
	case a.req == nil:
		s.opts.Session.forget(a.hub)
	default:
		a.hub.Leave()
	}
	if !s.Left(a) {
		return
	}
	s.locks.Go(func() {
		for s.Left(a) && s.locks.Closing().Err() == nil {
			s.locks.Persist(func(ctx context.Context) error { return s.Withdraw(ctx, a) })
		}
	})
}
