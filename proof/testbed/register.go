package testbed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql" // MariaDB's driver
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/register/natskv"
	"github.com/lockstile/locker/register/sqltable"
)

// registerSubjects are stores of package register that have a server. (The one on files is in local.go.)
func registerSubjects() []matrix.Subject {
	return []matrix.Subject{
		{Name: "natskv", About: "one NATS server, which syncs every two minutes", Guarantees: natsGuarantees(), Start: oneNATS},
		{Name: "sqltable", About: "one MariaDB, which syncs each commit", Guarantees: sqlGuarantees(), Start: oneMariaDB},
	}
}

// bucket is that of the locks.
const bucket = "locks"

// natsGuarantees are those of a bucket on one server. The backend asks the server, which is not there yet. TestSubjectOfNATSDeclaresWhatTheBackendDoes
// compares.
func natsGuarantees() locker.Guarantees {
	g := sqlGuarantees() // of a register on one server that is asked for a record's age
	g.Exclusion |= locker.DurableServer
	g.Tokens |= locker.DurableServer
	return g
}

// sqlGuarantees asks the backend for its declaration. The database is not used.
func sqlGuarantees() locker.Guarantees {
	l, err := sqltable.New(new(sql.DB), sqltable.MySQL, sqltable.Options{NoReplica: true})
	if err != nil {
		panic(err) // valid options: nothing that could be wrong
	}
	return l.Guarantees()
}

// oneNATS has no clock to step: a Go program does not ask the C library for the time. After a crash it may lack what it
// had not synced.
func oneNATS(lab *matrix.Lab) (*matrix.System, error) {
	srv := testserver.NATS(lab)
	prepare := func() { must(lab, "bucket", makeBucket(srv.URL())) }
	err := lab.Try(prepare)
	return &matrix.System{
		Client:       clients(lab, "nats://", srv.Addr()),
		CrashKeeping: try(lab, srv.Kill, srv.Start),
		CrashEmpty:   try(lab, srv.Kill, srv.Wipe, srv.Start, prepare),
		Snapshot:     try(lab, srv.Kill, srv.Keep, srv.Start),
		CrashOld:     try(lab, srv.Kill, srv.Restore, srv.Start),
		Pause:        try(lab, srv.Pause),
		Resume:       try(lab, srv.Resume),
		Stored:       func() (matrix.Stored, error) { return storedOnNATS(srv.URL()) },
	}, err
}

func makeBucket(url string) error {
	return askNATS(url, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket})
		return err
	})
}

// storedOnNATS returns the keys, and the size of the bucket.
func storedOnNATS(url string) (sum matrix.Stored, err error) {
	err = askNATS(url, func(ctx context.Context, js jetstream.JetStream) error {
		kv, err := js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		status, err := kv.Status(ctx)
		if err == nil {
			sum = matrix.Stored{Entries: int(status.Values()), Bytes: int64(status.Bytes())} //nolint:gosec // a test's
		}
		return err
	})
	return sum, err
}

func askNATS(url string, ask func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return ask(ctx, js)
}

func openNATS(ctx context.Context, url string) (locker.Locker, error) {
	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.PingInterval(time.Second))
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return natskv.New(ctx, js, bucket, natskv.Options{})
}

func oneMariaDB(lab *matrix.Lab) (*matrix.System, error) {
	clock := newClock(lab)
	srv := testserver.MariaDBWithEnv(lab, clock.env())
	err := askMariaDB(srv.DSN(""), func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+bucket)
		return err
	})
	dsn := srv.DSN(bucket)
	if err == nil {
		err = askMariaDB(dsn, func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, sqltable.Schema(sqltable.MySQL, ""))
			return err
		})
	}
	return &matrix.System{
		Client:       clients(lab, "mariadb://", srv.Addr()),
		CrashKeeping: try(lab, srv.Kill, srv.Start),
		Pause:        try(lab, srv.Pause),
		Resume:       try(lab, srv.Resume),
		StepClock:    clock.checked(timeOfMariaDB(dsn)),
		Stored: func() (sum matrix.Stored, err error) {
			err = askMariaDB(dsn, func(ctx context.Context, db *sql.DB) error {
				return db.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(length(record)), 0) FROM lockstile").Scan(&sum.Entries, &sum.Bytes)
			})
			return sum, err
		},
	}, err
}

func timeOfMariaDB(dsn string) func() (time.Time, error) {
	return func() (now time.Time, err error) {
		var seconds int64
		err = askMariaDB(dsn, func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "SELECT unix_timestamp()").Scan(&seconds)
		})
		return time.Unix(seconds, 0), err
	}
}

func askMariaDB(dsn string, ask func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	return errors.Join(ask(ctx, db), db.Close())
}

// openMariaDB opens the table behind a proxy.
func openMariaDB(addr string) (locker.Locker, error) {
	db, err := sql.Open("mysql", testserver.MariaDBDSN(addr, bucket))
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return sqltable.New(db, sqltable.MySQL, sqltable.Options{NoReplica: true})
}
