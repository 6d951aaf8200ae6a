// Package open makes a backend from a URL, for programs that choose theirs by
// configuration.
//
//	locks, err := open.URL(ctx, os.Getenv("LOCKER_BACKEND")) // such as redis://localhost:6379/0?prefix=lock:
//	if err != nil {
//		return err
//	}
//	defer locks.Close()
//	if err := locker.Require(locks, locker.Correctness); err != nil {
//		return err // the backend is not good enough for what the locks are for
//	}
//
// It imports every backend, with its client. A program that knows which one it wants imports
// that one alone.
package open

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
)

// Backend is the backend that a URL describes. Close closes the backend and the client
// that [URL] made for it. Unlock before that: after Close most locks can no longer be given
// back, and end as those of a dead holder do.
type Backend interface {
	locker.Locker
	locker.Inspector
	locker.Breaker
	locker.Lister
	locker.Resumer
	io.Closer
}

// URL makes the backend that url describes (the command "locker backends" lists the forms), and waits
// for an answer of its server until ctx ends, or for five seconds. The error wraps
// [locker.ErrUnavailable] if the server cannot be reached, if it refuses the user, the
// password or the database, or if the directory cannot be used. Any other error means that
// url is wrong, and in most of these cases no server was asked. No error shows a password.
//
// In a user name or password write / as %2F, ? as %3F, # as %23 and % as %25. An empty
// host, a parameter without a value and one that is given twice are errors, because a
// variable that is not set looks like that. Only PostgreSQL has a default host, libpq's.
//
// The forms for Redis take parameters, as in "redis://h/0?prefix=app:&replicas=1":
// prefix and replicas are the fields of singlenode.Options, redis-sentinel has
// sentinel_username and sentinel_password. The others are those of go-redis that a
// lock can use: client_name, protocol, max_retries, min_retry_backoff and
// max_retry_backoff; dial_timeout, read_timeout, write_timeout and pool_timeout,
// which cannot be switched off; pool_size, pool_fifo, min_idle_conns, max_idle_conns
// and max_active_conns; conn_max_idle_time and conn_max_lifetime; and over TLS cacert,
// cert and key, files in PEM form, and skip_verify. A redlock has prefix, max_ttl, node_timeout and durable_nodes, the
// fields of redlock.Options, as well.
//
// "local:" alone is local.DefaultDir; another directory must exist, and a relative
// one counts from the working directory. The same goes for the directory of "file:", which has no default. The root
// directory is an error.
//
// For etcd, name all members. It takes prefix, and with etcds:// cacert, cert and
// key, files in PEM form as etcdctl takes them, and skip_verify=true.
//
// Files of certificates and keys, and those in which PostgreSQL's client finds passwords, are read
// again for each connection, so they may be renewed while the program runs. Without cacert (sslrootcert) the system's authorities count;
// on Unix SSL_CERT_FILE names others.
//
// For ZooKeeper, the user and the password are those of digest authentication. With them,
// nodes are made so that nobody else may touch them. The default BASE is /lockstile. The
// parameter session_timeout, 10s by default, says for how long a dead holder's locks are
// kept. No lock's TTL may be less.
//
// A URL for PostgreSQL has the form of libpq's: several hosts, sslmode and so on, and a
// socket's directory as a host (%2Frun%2Fpostgresql). A host that is read-only is passed
// over, unless target_session_attrs says otherwise. The environment and the password file
// count as with every client of PostgreSQL. Parameters for the pool (pool_max_conns) are
// those of pgxpool. These are ours: mode=session for advisory locks instead of leases;
// poll, sync_standby and no_standby, which are fields of postgres.Options; and
// schema=ensure, which makes the locks' tables or brings them up to date, and is best given
// once, by a role that may do so. Without it, a database that has no such tables is
// unavailable.
//
// The client of Redis writes to stderr what goes wrong with its connections, which
// URL also returns as errors; its SetLogger silences it. The other clients are
// silent.
func URL(ctx context.Context, url string) (Backend, error) {
	b, err := dial.URL(ctx, url)
	if err == nil {
		return b, nil
	}
	err = fmt.Errorf("open: %w", err)
	if b != nil {
		err = errors.Join(err, b.Close())
	}
	return nil, err
}
