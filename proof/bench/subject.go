package main

import (
	"context"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/proof/matrix"
)

// client is what a lock library gives one process.
type client interface {
	Lock(ctx context.Context, name string) (held, error)
	Close()
}

// held is a lock that was granted. A *locker.Lock is one.
type held interface {
	Unlock(ctx context.Context) error
}

type kind int

const (
	ours kind = iota
	peer
	floor // the two cheapest commands; it excludes nobody
	inner // a lock of this process alone
)

// subject is a lock library, with its settings, on a running store.
type subject struct {
	name string
	kind kind
	open func() (client, error)
	// requests counts what subjects of its kind have sent to the servers.
	requests func() int64
	// scales says that it takes part in the workloads of very many locks, waiters or
	// names; alone, that it takes part only where nobody else wants the lock.
	scales, alone bool
}

// counter returns a function that counts some commands of a store.
type counter func(commands ...string) func() int64

// running is a store that runs, and the subjects that lock on it.
type running struct {
	subjects []subject
	// store and addrs are for processes that compete; addrs is nil where they cannot.
	store string
	addrs []string
	// memory returns how many bytes the servers use; nil where they do not say.
	memory func() int64
	// forgets is how long the servers keep anything of a name after its last lock; 0
	// if nothing, or if memory is nil.
	forgets time.Duration
	// joining is by how much each goroutine delays the start of a contest, if by more
	// than elsewhere.
	joining time.Duration
	// names is how many names the workload of many names locks.
	names int
}

type store struct {
	name, about string
	start       func(lab *matrix.Lab) *running
	at          func(addrs []string, requests counter) []subject // on servers that run; nil where processes do not compete
}

func stores() []store {
	return []store{
		{name: "redis", about: "One Redis", start: startRedis, at: redisSubjects},
		{name: "redlock", about: "Five Redis", start: startRedlock, at: redlockSubjects},
		{name: "etcd", about: "etcd, three nodes", start: startEtcd, at: etcdSubjects},
		{name: "zookeeper", about: "ZooKeeper, one node", start: startZooKeeper, at: zooKeeperSubjects},
		{name: "postgres-rows", about: "PostgreSQL, leases in rows (with fsync)", start: startPostgresRows, at: rowSubjects},
		{name: "postgres-sessions", about: "PostgreSQL, advisory locks of sessions", start: startPostgresSessions, at: sessionSubjects},
		{name: "nats", about: "NATS, one server (requests are writes)", start: startNATS, at: natsSubjects},
		{name: "mariadb", about: "MariaDB", start: startMariaDB, at: mariaSubjects},
		{name: "local", about: "Files of one host", start: startLocal},
	}
}

func storeNames() []string {
	var names []string
	for _, s := range stores() {
		names = append(names, s.name)
	}
	return names
}

// lockstile is our client on any backend.
type lockstile struct {
	locker.Locker
	opts  []locker.Option
	close func()
}

func (l lockstile) Lock(ctx context.Context, name string) (held, error) {
	return l.Locker.Lock(ctx, name, l.opts...)
}

func (l lockstile) Close() { l.close() }

// channel is a lock made of a channel. It shows how fast goroutines can pass a lock on at
// all.
var channel = subject{name: "a channel", kind: inner, requests: func() int64 { return 0 }, open: func() (client, error) { return line, nil }}

type channelLock chan struct{}

var line = make(channelLock, 1)

func (c channelLock) Lock(ctx context.Context, _ string) (held, error) {
	select {
	case c <- struct{}{}:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c channelLock) Unlock(context.Context) error {
	<-c
	return nil
}

func (c channelLock) Close() {}
