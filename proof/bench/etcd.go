package main

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

func startEtcd(lab *matrix.Lab) *running {
	cluster := testserver.Etcd(lab, 3)
	// Messages are counted, and not calls: keep-alives and watches are calls that stay open.
	requests := func(...string) func() int64 {
		return func() int64 {
			n := 0.0
			for _, s := range cluster.Members {
				n += s.Metric("grpc_server_msg_received_total")
			}
			return int64(n)
		}
	}
	addrs := cluster.Endpoints()
	return &running{store: "etcd", addrs: addrs, names: 50_000, subjects: etcdSubjects(addrs, requests)}
}

// etcdSubjects are the subjects on one cluster.
func etcdSubjects(addrs []string, requests counter) []subject {
	connect := func() (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 10 * time.Second})
	}
	messages := requests()
	return []subject{
		{name: "bare put with a lease and delete", kind: floor, requests: messages, open: func() (client, error) { return newBareEtcd(connect()) }},
		{name: "lockstile/etcd", kind: ours, scales: true, requests: messages, open: func() (client, error) { return newEtcd(connect()) }},
		{name: "Mutex, a session per client", kind: peer, requests: messages,
			open: func() (client, error) { return newEtcdMutex(connect()) }},
		{name: "Mutex, a session per goroutine", kind: peer, requests: messages,
			open: func() (client, error) { return newEtcdMutexes(connect()) }},
	}
}

func newEtcd(cl *clientv3.Client, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	l, err := etcd.New(cl, etcd.Options{Prefix: "/lockstile/"})
	if err != nil {
		return nil, err
	}
	return lockstile{l, nil, func() { _ = l.Close(); _ = cl.Close() }}, nil
}

type bareEtcd struct {
	cl    *clientv3.Client
	lease clientv3.LeaseID
}

type bareEtcdKey struct {
	cl   *clientv3.Client
	name string
}

func newBareEtcd(cl *clientv3.Client, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	lease, err := cl.Grant(context.Background(), 600)
	if err != nil {
		return nil, err
	}
	return bareEtcd{cl, lease.ID}, nil
}

func (b bareEtcd) Lock(ctx context.Context, name string) (held, error) {
	_, err := b.cl.Put(ctx, "/bare/"+name, "v", clientv3.WithLease(b.lease))
	return bareEtcdKey{b.cl, name}, err
}

func (b bareEtcd) Close() { _ = b.cl.Close() }

func (k bareEtcdKey) Unlock(ctx context.Context) error {
	_, err := k.cl.Delete(ctx, "/bare/"+k.name)
	return err
}

// etcdMutex is the client's own lock with one session. Two Mutexes of one
// session do not exclude each other, so the goroutines queue for a name in the
// process first, as its users have to make them.
type etcdMutex struct {
	cl      *clientv3.Client
	session *concurrency.Session
	mu      sync.Mutex
	names   map[string]chan struct{} // a place for one each
}

func newEtcdMutex(cl *clientv3.Client, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(cl, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	return &etcdMutex{cl: cl, session: session, names: map[string]chan struct{}{}}, nil
}

func (c *etcdMutex) Lock(ctx context.Context, name string) (held, error) {
	c.mu.Lock()
	turn := c.names[name]
	if turn == nil {
		turn = make(chan struct{}, 1)
		c.names[name] = turn
	}
	c.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m := concurrency.NewMutex(c.session, "/mutex/"+name)
	if err := m.Lock(ctx); err != nil {
		<-turn
		return nil, err
	}
	return etcdMutexHeld{m, func() { <-turn }}, nil
}

func (c *etcdMutex) Close() {
	_ = c.session.Close()
	_ = c.cl.Close()
}

type etcdMutexHeld struct {
	mutex *concurrency.Mutex
	done  func()
}

func (h etcdMutexHeld) Unlock(ctx context.Context) error {
	defer h.done()
	return h.mutex.Unlock(ctx)
}

// etcdMutexes is the client's own lock with as many sessions as are in use at
// once, and no queue of ours.
type etcdMutexes struct {
	cl   *clientv3.Client
	mu   sync.Mutex
	idle []*concurrency.Session
	all  []*concurrency.Session
}

func newEtcdMutexes(cl *clientv3.Client, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	return &etcdMutexes{cl: cl}, nil
}

func (c *etcdMutexes) Lock(ctx context.Context, name string) (held, error) {
	session, err := c.take()
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, "/mutexes/"+name)
	if err := m.Lock(ctx); err != nil {
		c.giveBack(session)
		return nil, err
	}
	return etcdMutexHeld{m, func() { c.giveBack(session) }}, nil
}

func (c *etcdMutexes) take() (*concurrency.Session, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		session := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return session, nil
	}
	c.mu.Unlock()
	session, err := concurrency.NewSession(c.cl, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, session)
	return session, nil
}

func (c *etcdMutexes) giveBack(session *concurrency.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, session)
}

func (c *etcdMutexes) Close() {
	_ = spread(len(c.all), 64, func(i int) error { return c.all[i].Close() })
	_ = c.cl.Close()
}
