package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/zookeeper"
)

// zkTimeout is the session timeout, as for our own backend in the testbed.
const zkTimeout = 2 * time.Second

// zkPeer is one connection. zk.Lock reports no loss. A careful user follows ZooKeeper's
// advice: when an event says that the connection is gone, the session may be gone too.
type zkPeer struct {
	conn *zk.Conn

	mu   sync.Mutex
	held map[*attached]struct{}
}

func openZooKeeper(ctx context.Context, url string) (matrix.Peer, error) {
	conn, events, err := zk.Connect(servers(url), zkTimeout, zk.WithLogger(silent{}))
	if err != nil {
		return nil, fmt.Errorf("zk.Lock: %w", err)
	}
	p := &zkPeer{conn: conn, held: make(map[*attached]struct{})}
	ready := make(chan struct{})
	go p.listen(events, sync.OnceFunc(func() { close(ready) }))
	select {
	case <-ready:
		return p, nil
	case <-ctx.Done():
		conn.Close()
		return nil, context.Cause(ctx)
	}
}

// silent is a logger that drops everything.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}

func (p *zkPeer) listen(events <-chan zk.Event, ready func()) {
	for ev := range events {
		switch ev.State {
		case zk.StateHasSession:
			ready()
		case zk.StateDisconnected, zk.StateExpired:
			p.endAll(fmt.Errorf("the connection is in the state %v", ev.State))
		}
	}
}

// endAll tells all holders that they may have lost. Each gives its lock back, for
// the session may live on, and the lock with it.
func (p *zkPeer) endAll(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.held {
		a.lose(locker.ReasonSessionEnded, cause)
		go func() { _ = a.release(context.Background()) }() // bounded; the session's end frees it otherwise
		delete(p.held, a)
	}
}

// Lock returns when ctx ends. The library goes on waiting, and what it is granted then is
// given back.
func (p *zkPeer) Lock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	lock := zk.NewLock(p.conn, zookeeper.DefaultBase+"/"+req.Name, zk.WorldACL(zk.PermAll))
	got := make(chan error, 1)
	go func() { got <- lock.Lock() }()
	select {
	case err := <-got:
		if err != nil {
			return nil, fmt.Errorf("zk.Lock: lock %q: %w", req.Name, err)
		}
		return p.hold(req, lock), nil
	case <-ctx.Done():
		go func() {
			if <-got == nil {
				_ = unlock(lock) // if that fails it is the session's end that frees it
			}
		}()
		return nil, fmt.Errorf("zk.Lock: lock %q: %w: %w", req.Name, locker.ErrTaken, context.Cause(ctx))
	}
}

// TryLock is Lock: the library has no single attempt.
func (p *zkPeer) TryLock(ctx context.Context, req *driver.Request) (matrix.Holding, error) {
	return p.Lock(ctx, req)
}

func (p *zkPeer) hold(req *driver.Request, lock *zk.Lock) matrix.Holding {
	a := newAttached(req.Name, 0, p.over, releaser(lock))
	p.mu.Lock()
	p.held[a] = struct{}{}
	p.mu.Unlock()
	go func() {
		<-a.done
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.held, a)
	}()
	if !req.Renew { // the session goes on: it is its holder who stops
		time.AfterFunc(req.TTL, func() {
			a.lose(locker.ReasonExpired, nil)
			_ = a.release(context.Background()) // its holder calls Unlock as well
		})
	}
	return a
}

var errNoSession = errors.New("the connection has no session")

func (p *zkPeer) over() error {
	if p.conn.State() != zk.StateHasSession {
		return errNoSession
	}
	return nil
}

// releaser returns an Unlock that returns when its context ends. The library's takes no
// context, and goes on.
func releaser(lock *zk.Lock) func(context.Context) error {
	var mu sync.Mutex // a zk.Lock is for one goroutine at a time
	return func(ctx context.Context) error {
		freed := make(chan error, 1)
		go func() {
			mu.Lock()
			defer mu.Unlock()
			freed <- unlock(lock)
		}()
		select {
		case err := <-freed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unlock tries again, for a while, if the connection is gone: the node may still be there,
// and the session may live on.
func unlock(lock *zk.Lock) error {
	for end := time.Now().Add(10 * zkTimeout); ; time.Sleep(zkTimeout / 20) {
		switch err := lock.Unlock(); {
		case errors.Is(err, zk.ErrNoNode):
			return nil // an earlier attempt did it
		case err == nil, errors.Is(err, zk.ErrNotLocked), errors.Is(err, zk.ErrSessionExpired), time.Now().After(end):
			return err
		}
	}
}
