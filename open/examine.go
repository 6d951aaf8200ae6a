package open

import (
	"context"
	"path/filepath"

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
