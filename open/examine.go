package open

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/doctor"
)

// "locker doctor" looks at backends through these, for they have the clients.
var (
	_ doctor.Patient = (*localBackend)(nil)
	_ doctor.Patient = (*redisBackend)(nil)
	_ doctor.Patient = (*redlockBackend)(nil)
	_ doctor.Patient = (*etcdBackend)(nil)
	_ doctor.Patient = (*zkBackend)(nil)
	_ doctor.Patient = (*postgresBackend)(nil)
)

// Examine looks at the store that url stands for, for "locker doctor", and adds to
// r what it finds. Where [URL] would fail its error is returned, and r has what
// could be found all the same.
func Examine(ctx context.Context, url string, r *doctor.Report) error {
	b, err := open(ctx, url)
	if err != nil {
		err = fmt.Errorf("open: %w", err)
	}
	if b == nil {
		return err
	}
	p, ok := b.(doctor.Patient)
	if !ok {
		return errors.Join(errors.New("open: there are no checks for this backend"), b.Close())
	}
	defer b.Close() // nothing was asked for that could be lost
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, 2*answerTime)
		defer cancel()
		_ = p.Examine(ctx, r) // which fails for the same reason as URL, if it does
		return err
	}
	if err := p.Examine(ctx, r); err != nil {
		return fmt.Errorf("open: examine: %w: %w", locker.ErrUnavailable, err)
	}
	return nil
}

// Examine implements [doctor.Patient].
func (b *localBackend) Examine(_ context.Context, r *doctor.Report) error {
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return err
	}
	return doctor.Local(r, dir, b.byDefault)
}

// Examine implements [doctor.Patient].
func (b *redisBackend) Examine(ctx context.Context, r *doctor.Report) error {
	return doctor.Redis(ctx, r, b.rdb, b.opts)
}

// Examine implements [doctor.Patient].
func (b *redlockBackend) Examine(ctx context.Context, r *doctor.Report) error {
	return doctor.Redlock(ctx, r, b.clients, b.opts)
}

// Examine implements [doctor.Patient].
func (b *etcdBackend) Examine(ctx context.Context, r *doctor.Report) error {
	return doctor.Etcd(ctx, r, b.client)
}

// Examine implements [doctor.Patient].
func (b *zkBackend) Examine(ctx context.Context, r *doctor.Report) error {
	return doctor.ZooKeeper(ctx, r, b.conn, doctor.ZooKeeperSettings{
		Hosts: b.hosts, Base: b.opts.Base, ACL: b.opts.ACL, Asked: b.asked, Granted: b.opts.Session.Timeout(),
	})
}

// Examine implements [doctor.Patient].
func (b *postgresBackend) Examine(ctx context.Context, r *doctor.Report) error {
	return doctor.Postgres(ctx, r, b.pool, b.own.session, b.own.opts)
}
