package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/zkclient"
)

// store is the [driver.Store]. What its zk client is asked may take for ever, so every
// call is in a goroutine of its own, of which there are 32 at most.
type store struct {
	zk      *zkclient.Client
	renewal *zkclient.Client // the same, so that renewals do not wait behind other calls
	opts    Options
	locks   *driver.Locker[*attempt]
	watches sync.Map // by path: a chan struct{} that is closed when the node has gone or changed

	sessions *driver.Pool[*attempt, struct{}, *session] // one at a time
}

func newStore(conn *zk.Conn, opts Options) *store {
	s := &store{zk: zkclient.New(conn, opts.ACL), renewal: zkclient.New(conn, opts.ACL), opts: opts}
	s.locks = driver.New("zookeeper", s, driver.Options{})
	s.sessions = driver.NewPool(s.locks, driver.Sessions[struct{}, *session]{Open: s.open, Renew: s.renewSession, End: s.endSession, Outlived: true})
	return s
}

func (s *store) Guarantees() locker.Guarantees { return (*Locker)(nil).Guarantees() }

func (s *store) Begin(req *driver.Request) (*attempt, error) {
	return &attempt{req: req, queue: s.queue(req.Name)}, fits(req, s.opts.Session.Timeout())
}

// queue is the path below which the places for a name are.
func (s *store) queue(name string) string { return s.opts.Base + "/" + zkclient.Escape(name) }

// fits returns an error if a session with this timeout, 0 if that is not known yet,
// cannot do what is requested.
func fits(req *driver.Request, timeout time.Duration) error {
	if req.TTL < timeout {
		return fmt.Errorf("ttl %v is under the session timeout of %v, for which the store keeps a dead holder's locks: ask for a longer ttl or connect with a shorter session timeout",
			req.TTL, timeout)
	}
	valid := believable(timeout)
	valid -= driver.Drift(valid)
	switch {
	case timeout == 0:
	case believable(timeout) < locker.MinTTL:
		return fmt.Errorf("a session timeout of %v is too short for a lock", timeout)
	case req.MinValidity >= valid:
		return fmt.Errorf("minimum validity %v cannot be met with a session timeout of %v: it leaves %v", req.MinValidity, timeout, valid)
	}
	return nil
}

func (s *store) Acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, driver.Left, error) {
	grant, err := s.acquire(ctx, a, wait)
	if err != nil && (zkclient.Refused(err) || s.opts.Session.closed.Load()) {
		err = driver.Refused(err)
	}
	return grant, driver.UnsureIf(s.left(a)), err
}

// mostTries bounds the places and sessions that one call goes through.
const mostTries = 4

// acquire takes a place, and waits until nobody is ahead of it.
func (s *store) acquire(ctx context.Context, a *attempt, wait driver.Wait) (driver.Grant, error) {
	for tries := 1; ; {
		ahead, err := s.ask(ctx, a, wait == nil)
		switch {
		case again(err) && tries < mostTries:
			tries++
			continue
		case err != nil:
			return driver.Grant{}, err
		case ahead == "":
			first, err := firstToken(a.zxid)
			return driver.Grant{First: first, Count: a.req.Tokens(tokens), Since: a.since}, err
		case wait == nil:
			return driver.Grant{}, nil
		}
		ctx = wait()
		if err := s.waitFor(ctx, a, a.queue+"/"+ahead); err != nil {
			return driver.Grant{}, err
		}
	}
}

// ask returns who is right ahead of a, "" if nobody is: then the lock is a's. It takes a
// place if a has none; and leaves it again if somebody is ahead and a is to ask only once.
func (s *store) ask(ctx context.Context, a *attempt, once bool) (ahead string, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.join(ctx, a); err != nil {
		return "", err
	}
	if a.zxid == 0 || !s.left(a) { // a place is still good if its session has another node now
		if ahead, err := s.enter(ctx, a); ahead != "" || err != nil {
			return ahead, err
		}
	}
	if !a.alone {
		ahead, err = s.look(ctx, a)
	}
	switch {
	case ahead == "" && err == nil && !a.session.Lasts():
		return "", errEnded
	case ahead != "" && once:
		_ = s.Withdraw(ctx, a) // else the Locker does it
	}
	return ahead, err
}

// tokens is how many a grant has. It is part of every token, and so the same for ever.
const tokens = 1024

func firstToken(zxid int64) (uint64, error) {
	if zxid <= 0 || zxid > math.MaxUint64/tokens {
		return 0, driver.Refused(fmt.Errorf("the zxid %#x makes no token, which has 54 bits for it", zxid))
	}
	return uint64(zxid) * tokens, nil
}

// mostChecks bounds the locks that one transaction looks at. Servers refuse
// requests of a megabyte; a path is less than two kilobytes, mostly a tenth.
const mostChecks = 500

// Renew looks whether the nodes are there.
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

// ended returns an error if the session of a's node has ended for certain: a server has
// told the client so, and the client has another session or none.
func (s *store) ended(a *attempt) error {
	if a.madeIn == s.zk.SessionID() {
		return nil
	}
	return &locker.LostError{Reason: locker.ReasonSessionEnded}
}

// lost makes a loss of a server's answer that there is no such node.
func (s *store) lost(a *attempt, err error) error {
	switch {
	case !errors.Is(err, zk.ErrNoNode):
		return err
	case s.ended(a) != nil:
		return &locker.LostError{Reason: locker.ReasonSessionEnded}
	}
	return &locker.LostError{Reason: locker.ReasonTakenOver}
}

func (s *store) Release(ctx context.Context, a *attempt, _ time.Duration) error {
	err := s.zk.Remove(ctx, a.path)
	a.gone = err == nil || errors.Is(err, zk.ErrNoNode)
	return s.lost(a, err)
}

// left reports whether there may be a node of the attempt's.
func (s *store) left(a *attempt) bool { return a.path != "" && !a.gone && s.ended(a) == nil }

// bounded returns a context that ends when the servers have been silent for as long as a
// session may be.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	patience := s.opts.Session.Timeout()
	if patience == 0 {
		patience = firstAnswer
	}
	heard := func() driver.Instant { return driver.Now().Add(-time.Since(s.zk.Heard())) }
	return driver.Patient(ctx, patience, heard, errSilent)
}

// firstAnswer is how long the first connection may take.
const firstAnswer = 10 * time.Second

var errSilent = errors.New("the servers have not answered for as long as a session lasts")
