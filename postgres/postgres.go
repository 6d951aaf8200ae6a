package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
)

// defaultPoll is how often waiters look where no notifications arrive.
const defaultPoll = 100 * time.Millisecond

// Options are a Locker's settings. The zero value is ready to use.
type Options struct {
	// Poll is how often waiters look at the database where they cannot be
	// told. The default, 0, is to be told (LISTEN and NOTIFY), unless the
	// first waiter finds that a connection pooler is in between: then it is
	// 100 ms. Set it to spare the connection that listening takes, or where
	// a pooler hides itself. More than 500 ms is refused, for that is how
	// long a lock waits for the one whose turn it is.
	Poll time.Duration

	// SyncStandby declares that only a synchronous standby is ever promoted.
	// Leases and tokens then survive a failover, for every grant and renewal
	// waits until that standby has it; advisory locks do not. Locks are
	// refused unless the server has synchronous_standby_names set. Nobody may
	// cancel a statement that waits for the standby (pg_cancel_backend, a
	// client's cancel request): the server then answers as if the standby
	// had it, with a warning that the pool's owner alone can see.
	SyncStandby bool

	// NoStandby declares that nothing ever takes this server's place: no standby
	// is promoted, no backup is restored under its clients. Tokens then never go
	// back, and leases survive what the server survives. Nobody checks it.
	NoStandby bool
}

// check refuses options that no Locker can have.
func (o Options) check() error {
	switch {
	case o.Poll < 0 || o.Poll > claimTime:
		return fmt.Errorf("postgres: poll %v is not from 0 to %v", o.Poll, claimTime)
	case o.SyncStandby && o.NoStandby:
		return errors.New("postgres: SyncStandby and NoStandby exclude each other")
	}
	return nil
}

// Locker grants leases: rows in a table that end by the database's clock.
type Locker struct {
	opts     Options
	queue    queue
	listener *listener
	pooled   atomic.Bool // a pooler was found: no notifications
	swept    atomic.Bool // the dead were cleared away
}

var (
	_ locker.Locker    = (*Locker)(nil)
	_ locker.Inspector = (*Locker)(nil)
	_ locker.Breaker   = (*Locker)(nil)
)

// New returns a Locker on the pool's database, which must have the Schema. It
// never closes the pool. While somebody waits it has one more connection with
// the pool's settings, which does not count in the pool. Make one Locker per
// process and database: its goroutines share one place in a queue and their
// renewals.
func New(pool *pgxpool.Pool, opts Options) (*Locker, error) {
	if pool == nil {
		return nil, errors.New("postgres: the pool is nil")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	l := &Locker{opts: opts}
	runner := newPoolRunner(pool)
	q := &l.queue
	q.closing, q.close = context.WithCancel(context.Background())
	q.store = &store{runner: runner, sql: leaseSQL}
	q.admin = runner
	q.mail = newMailbox(q.returnTurn)
	q.post = leases{l}
	q.keeper = locker.NewKeeper(runner.renew)
	l.listener = newListener(runner, q.mail)
	return l, nil
}

// Lock implements [locker.Locker].
func (l *Locker) Lock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.queue.lock(ctx, name, opts)
}

// TryLock implements [locker.Locker].
func (l *Locker) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return l.queue.tryLock(ctx, name, opts)
}

// Inspect implements [locker.Inspector].
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	return l.queue.inspect(ctx, name)
}

// Break implements [locker.Breaker].
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	return l.queue.force(ctx, name, `SELECT lockstile_force($1, $2)`, (lateTime + locker.MaxTTL).Milliseconds())
}

// EnsureSchema applies [Schema]. The pool's role must be allowed to create tables
// and functions in the first schema of the search path, and own those of ours that
// are there already.
func (l *Locker) EnsureSchema(ctx context.Context) error {
	return ensureSchema(ctx, l.queue.admin.pool)
}

// Guarantees implements [locker.Locker].
func (l *Locker) Guarantees() locker.Guarantees {
	g := locker.Guarantees{
		Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.DurableReplica,
		Tokens:    locker.DurableReplica,
		Fair:      true,
		Release:   locker.ByExpiry,
	}
	if l.opts.SyncStandby || l.opts.NoStandby {
		g.Exclusion &^= locker.DurableReplica
		g.Tokens &^= locker.DurableReplica
	}
	return g
}

// Close ends the waiting: waiters get [locker.ErrClosed]. It waits, for about a
// second at most, for clean-ups under way. Locks that are held stay held,
// renewed and unlockable; the pool stays open.
func (l *Locker) Close() error {
	l.queue.stop()
	l.listener.close()
	l.queue.chores.Wait()
	return nil
}

// leases is the post of lease rows.
type leases struct{ *Locker }

// bind looks, before the first question, whether the server is what the options
// say. And once it clears away, in the background, what dead processes have left.
func (l leases) bind(ctx context.Context, _ *lease) error {
	if err := l.queue.checkStandby(ctx, l.opts); err != nil {
		return err
	}
	if l.swept.CompareAndSwap(false, true) {
		l.queue.sweep()
	}
	return nil
}

// open listens, unless that is known to lead nowhere.
func (l leases) open(ctx context.Context) error {
	if l.poll() > 0 {
		return nil
	}
	err := l.listener.open(ctx)
	if errors.Is(err, errPooled) {
		l.pooled.Store(true)
		return nil
	}
	return err
}

func (l leases) channel() string { return l.listener.channel() }

func (l leases) poll() time.Duration {
	if l.opts.Poll == 0 && l.pooled.Load() {
		return defaultPoll
	}
	return l.opts.Poll
}

func (l leases) withdraw(ctx context.Context, a *lease, spare bool) error {
	return l.queue.store.withdraw(ctx, a, l.channel(), spare, false)
}

func (l leases) held(*lease, *locker.Lock) {}

func (l leases) ended(*lease, bool) {}
