package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

// defaultPoll is how often waiters look where no notifications arrive.
const defaultPoll = 100 * time.Millisecond

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Poll is the time between two looks of a waiter at the database. By
	// default, 0, waiters are notified instead (LISTEN and NOTIFY); if the first of
	// them finds that a connection pooler is in between, they look every 100 ms.
	// Set Poll to spare the connection that listening takes, or where a pooler
	// hides itself. More than 500 ms is an error: for that long a free lock is
	// reserved for the waiter whose turn it is.
	Poll time.Duration

	// SyncStandby declares that only a synchronous standby is ever promoted.
	// Leases and tokens then survive a failover, because every grant and renewal
	// waits until that standby has it. Its clock must agree with the primary's: one
	// that is ahead ends leases early. Advisory locks do not survive. Grants and
	// renewals are refused whenever the server has no synchronous_standby_names.
	// Nobody may cancel a statement that waits for the standby (pg_cancel_backend, a
	// client's cancel request, emptying that setting): the server then answers as if
	// the standby had it, with a warning that only the pool's owner can see.
	SyncStandby bool

	// NoStandby declares that nothing ever takes this server's place: no standby
	// is promoted, no backup is restored under its clients. Tokens then never go
	// back, and leases survive what the server survives. A server that is started
	// with its data on another machine is no other server, if the clocks of the two
	// machines agree. We cannot check it.
	NoStandby bool
}

// check refuses what no Locker can have.
func (o Options) check(pool *pgxpool.Pool) error {
	switch {
	case pool == nil:
		return errors.New("postgres: the pool is nil")
	case o.Poll < 0 || o.Poll > mailbox.ClaimTime:
		return fmt.Errorf("postgres: poll %v is not from 0 to %v", o.Poll, mailbox.ClaimTime)
	case o.SyncStandby && o.NoStandby:
		return errors.New("postgres: SyncStandby and NoStandby exclude each other")
	}
	return nil
}

// leases is what lease rows promise with these options.
func (o Options) leases() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion:    locker.PromptHolder | locker.SteadyClocks | locker.AgreedClocks | locker.DurableReplica,
		Tokens:       locker.DurableReplica,
		Fair:         true,
		KeepsMinHold: true,
		Detaches:     true,
		Shared:       true,
		Slots:        true,
		FreedBy:      locker.FreedByExpiry,
	}
	if o.SyncStandby || o.NoStandby {
		g.Exclusion &^= locker.DurableReplica
		g.Tokens &^= locker.DurableReplica
	}
	if o.NoStandby {
		g.Exclusion &^= locker.AgreedClocks
	}
	return g
}

// sessions is what session locks promise with these options. They have no lease that a
// successor could end early.
func (o Options) sessions() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.ServerUp | locker.DurableServer | locker.DurableReplica,
		Tokens:    locker.DurableReplica,
		Shared:    true,
		FreedBy:   locker.FreedByConnection,
	}
	if o.SyncStandby || o.NoStandby {
		g.Tokens &^= locker.DurableReplica
	}
	if o.NoStandby {
		g.Exclusion &^= locker.DurableReplica
	}
	return g
}

// Locker grants leases: rows in a table that end by the database's clock. It implements [locker.Locker],
// [locker.Inspector], [locker.Breaker], [locker.Lister] and [locker.Resumer].
type Locker struct {
	driver.Methods
	opts  Options
	store *store
}

// New returns a Locker on the pool's database, which must have the [Schema]. It sends
// nothing, and never closes the pool. Unlock before you close it: releases go over it. A
// goroutine that asks for a lock while it has the pool's last connection waits for itself.
// The Locker has up to two more connections with the pool's settings and hooks, which do
// not count in the pool: one while somebody waits, and one for renewals of locks that are
// held for longer than a third of their TTL. Make one Locker per process and database:
// its goroutines share one place in a queue and their renewals.
func New(pool *pgxpool.Pool, opts Options) (*Locker, error) {
	if err := opts.check(pool); err != nil {
		return nil, err
	}
	own, err := newOwnPool(pool)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &store{opts: opts, pool: newPoolRunner(pool), own: newPoolRunner(own)}
	listen := s.pool.listen
	if opts.Poll > 0 {
		listen = nil
	}
	s.mail = mailbox.New(listen)
	s.locks = driver.New("postgres", s, driver.Options{})
	return &Locker{s.locks, opts, s}, nil
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees { return l.opts.leases() }

// EnsureSchema applies [Schema]: all of it, or nothing. The pool's role must be allowed
// to create tables and functions in the first schema of the search path, and own those of
// ours that are there already. After an error without an answer it may have been applied;
// applying it again changes nothing.
func (l *Locker) EnsureSchema(ctx context.Context) error {
	return ensureSchema(ctx, l.store.pool.pool)
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for a few seconds at
// most, for calls and clean-ups under way. Locks that are held stay held, renewed and unlockable,
// over the pool from then on. The pool stays open.
func (l *Locker) Close() error {
	err := l.Methods.Close()
	l.store.mail.Close()
	go l.store.own.pool.Close() // it waits for renewals under way
	return err
}
