package main

import (
	"context"
	"time"

	"github.com/lockstile/locker"
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
)

// subject is a lock library, with its settings, on a running store.
type subject struct {
	name string
	kind kind
	open func() (client, error)
	// requests counts what subjects of its kind have sent to the servers.
	requests func() int64
	// scales says that it takes part in the workloads of very many.
	scales bool
}

// running is a store that runs, and who locks on it.
type running struct {
	subjects []subject
	// memory is what the servers use, in bytes; nil where they do not tell.
	memory func() int64
	// forgets is how long after its last lock a name leaves nothing behind; 0
	// where that is at once, or memory is nil.
	forgets time.Duration
	// joining is how long a goroutine more delays the start of a contest, if that
	// is more than elsewhere.
	joining time.Duration
	// names is how many names are a great many here, for a run has to end.
	names int
}

type store struct {
	name, about string
	start       func(sc *scope) *running
}

func stores() []store {
	return []store{
		{"redis", "One Redis", startRedis},
		{"redlock", "Five Redis", startRedlock},
		{"etcd", "etcd, three nodes", startEtcd},
		{"zookeeper", "ZooKeeper, one node", startZooKeeper},
		{"postgres-rows", "PostgreSQL, leases in rows (with fsync)", startPostgresRows},
		{"postgres-sessions", "PostgreSQL, advisory locks of sessions", startPostgresSessions},
		{"local", "Files of one host", startLocal},
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
