package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/zookeeper"
)

var anybody = zk.WorldACL(zk.PermAll)

func startZooKeeper(lab *matrix.Lab) *running {
	srv := testserver.ZooKeeper(lab, 1)[0]
	requests := func(...string) func() int64 { return func() int64 { return srv.Stat("zk_packets_received") } }
	addrs := []string{srv.Addr()}
	return &running{store: "zookeeper", addrs: addrs, names: 50_000, subjects: zooKeeperSubjects(addrs, requests)}
}

// zooKeeperSubjects are the subjects on one server.
func zooKeeperSubjects(addrs []string, requests counter) []subject {
	addr, packets := addrs[0], requests()
	return []subject{
		{name: "bare create and delete", kind: floor, requests: packets, open: func() (client, error) { return newBareZooKeeper(addr) }},
		{name: "lockstile/zookeeper", kind: ours, scales: true, requests: packets, open: func() (client, error) { return newZooKeeper(addr) }},
		{name: "zk.Lock", kind: peer, requests: packets, open: func() (client, error) { return newZKLock(addr) }},
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connectZooKeeper returns a connection that has its session.
func connectZooKeeper(addr string, dial zk.Dialer) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	patience := time.After(30 * time.Second)
	for {
		select {
		case ev := <-events:
			if ev.State == zk.StateHasSession {
				return conn, nil
			}
		case <-patience:
			conn.Close()
			return nil, errors.New("no zookeeper session after 30 s")
		}
	}
}

func newZooKeeper(addr string) (client, error) {
	session := zookeeper.NewSession(nil)
	conn, err := connectZooKeeper(addr, session.Dial)
	if err != nil {
		return nil, err
	}
	l, err := zookeeper.New(conn, zookeeper.Options{Session: session})
	if err != nil {
		return nil, err
	}
	return lockstile{l, nil, func() { _ = l.Close(); conn.Close() }}, nil
}

type bareZooKeeper struct{ conn *zk.Conn }

type bareZooKeeperNode struct {
	conn *zk.Conn
	path string
}

func newBareZooKeeper(addr string) (client, error) {
	conn, err := connectZooKeeper(addr, zookeeper.NewSession(nil).Dial)
	if err != nil {
		return nil, err
	}
	return bareZooKeeper{conn}, nil
}

func (b bareZooKeeper) Lock(context.Context, string) (held, error) {
	path, err := b.conn.Create("/bare-", nil, zk.FlagEphemeralSequential, anybody)
	return bareZooKeeperNode{b.conn, path}, err
}

func (b bareZooKeeper) Close() { b.conn.Close() }

func (n bareZooKeeperNode) Unlock(context.Context) error { return n.conn.Delete(n.path, -1) }

// zkLock is the client's own lock. It takes no context: a waiter is served in the end, or
// gets an error when the connection is closed.
type zkLock struct{ conn *zk.Conn }

type zkLockHeld struct{ lock *zk.Lock }

func newZKLock(addr string) (client, error) {
	conn, err := connectZooKeeper(addr, zookeeper.NewSession(nil).Dial)
	if err != nil {
		return nil, err
	}
	return zkLock{conn}, nil
}

func (c zkLock) Lock(_ context.Context, name string) (held, error) {
	l := zk.NewLock(c.conn, "/zklock/"+name, anybody)
	return zkLockHeld{l}, l.Lock()
}

func (c zkLock) Close() { c.conn.Close() }

func (h zkLockHeld) Unlock(context.Context) error { return h.lock.Unlock() }
