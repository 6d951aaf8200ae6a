package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/proof/matrix"
)

// mutexPeer gives every lock a session of its own while it is held or waited for: two
// Mutexes of one session do not exclude each other. Sessions are used again. One with
// which something failed is closed instead, which removes what may be left.
type mutexPeer struct {
	client *clientv3.Client
	// trusting leaves it to the library to remove what a failed Lock has left,
	// as its documentation says that it tries to.
	trusting bool

	mu   sync.Mutex
	idle map[time.Duration][]*concurrency.Session // by TTL
}

func openMutex(trusting bool) func(context.Context, string) (matrix.Peer, error) {
	return func(_ context.Context, url string) (matrix.Peer, error) { return newMutexPeer(servers(url), trusting) }
}

func newMutexPeer(servers []string, trusting bool) (matrix.Peer, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         servers,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("mutex: %w", err)
	}
	return &mutexPeer{client: client, trusting: trusting, idle: make(map[time.Duration][]*concurrency.Session)}, nil
}

func (p *mutexPeer) Lock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	return p.acquire(ctx, req, (*concurrency.Mutex).Lock)
}

func (p *mutexPeer) TryLock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	return p.acquire(ctx, req, (*concurrency.Mutex).TryLock)
}

func (p *mutexPeer) acquire(ctx context.Context, req *driver.Request, lock func(*concurrency.Mutex, context.Context) error) (matrix.Holding, error) {
	session, err := p.take(ctx, req.TTL)
	if err != nil {
		return nil, fmt.Errorf("mutex: session: %w", err)
	}
	m := concurrency.NewMutex(session, req.Name)
	if err := lock(m, ctx); err != nil {
		taken := errors.Is(err, concurrency.ErrLocked)
		p.giveBack(req.TTL, session, taken || p.trusting)
		if taken {
			err = fmt.Errorf("%w: %w", locker.ErrTaken, err)
		}
		return nil, fmt.Errorf("mutex: lock %q: %w", req.Name, err)
	}
	return p.hold(req, session, m), nil
}

func (p *mutexPeer) hold(req *driver.Request, session *concurrency.Session, m *concurrency.Mutex) matrix.Holding {
	token := fencing.Token(m.Header().Revision) //nolint:gosec // revisions are positive
	a := newAttached(req.Name, token, func() error { return ended(session) }, func(ctx context.Context) error {
		err := m.Unlock(ctx)
		p.giveBack(req.TTL, session, err == nil)
		return err
	})
	if !req.Renew {
		session.Orphan() // it ends at its TTL, and says at once that it is not renewed
	}
	go func() {
		select {
		case <-session.Done():
			a.lose(locker.ReasonSessionEnded, ended(session))
		case <-a.done:
		}
	}()
	return a
}

var errSessionDone = errors.New("the session is done")

func ended(session *concurrency.Session) error {
	select {
	case <-session.Done():
		return errSessionDone
	default:
		return nil
	}
}

// take returns a session that nobody uses. One that comes too late for ctx is kept for the
// next lock.
func (p *mutexPeer) take(ctx context.Context, ttl time.Duration) (*concurrency.Session, error) {
	if s := p.reuse(ttl); s != nil {
		return s, nil
	}
	type made struct {
		session *concurrency.Session
		err     error
	}
	answer := make(chan made, 1)
	go func() {
		s, err := concurrency.NewSession(p.client, concurrency.WithTTL(int(ttl.Seconds())))
		answer <- made{s, err}
	}()
	select {
	case m := <-answer:
		return m.session, m.err
	case <-ctx.Done():
		go func() {
			if m := <-answer; m.err == nil {
				p.giveBack(ttl, m.session, true)
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (p *mutexPeer) reuse(ttl time.Duration) *concurrency.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for idle := p.idle[ttl]; len(idle) > 0; idle = p.idle[ttl] {
		s := idle[len(idle)-1]
		p.idle[ttl] = idle[:len(idle)-1]
		if ended(s) == nil {
			return s
		}
	}
	return nil
}

// giveBack keeps a session for the next lock if it is clean, and closes it otherwise.
func (p *mutexPeer) giveBack(ttl time.Duration, s *concurrency.Session, clean bool) {
	if !clean {
		go func() { _ = s.Close() }() // bounded by its TTL; if it fails, the lease ends by itself
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[ttl] = append(p.idle[ttl], s)
}
