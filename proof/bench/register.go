package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // MariaDB's driver
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/register/natskv"
	"github.com/lockstile/locker/register/sqltable"
)

// record is as long as one of package register with a holder.
var record = strings.Repeat("x", 300)

// natsServer is the address of a NATS server.
type natsServer string

func startNATS(lab *matrix.Lab) *running {
	srv := testserver.NATS(lab)
	js, _, err := natsServer(srv.Addr()).connect()
	if err != nil {
		lab.Fatalf("connecting to NATS: %w", err)
	}
	lab.Cleanup(js.Conn().Close)
	// Writes are counted: the server does not count what it is asked.
	writes := func(...string) func() int64 {
		return func() int64 {
			stream, err := js.Stream(context.Background(), "KV_locks")
			if err != nil {
				lab.Fatalf("counting writes: %w", err)
			}
			return int64(stream.CachedInfo().State.LastSeq) //nolint:gosec // not that many
		}
	}
	addrs := []string{srv.Addr()}
	return &running{store: "nats", addrs: addrs, names: 10_000, subjects: natsSubjects(addrs, writes)}
}

func natsSubjects(addrs []string, requests counter) []subject {
	s, count := natsServer(addrs[0]), requests()
	return []subject{
		{name: "bare Put and Update", kind: floor, requests: count, open: s.bare},
		{name: "lockstile/register/natskv", kind: ours, requests: count, open: s.ours},
		{name: "Create, Delete and a watch; no token and no end", kind: peer, requests: count, open: s.created},
	}
}

// connect returns a client with the bucket, which it makes.
func (s natsServer) connect() (jetstream.JetStream, jetstream.KeyValue, error) {
	nc, err := nats.Connect("nats://"+string(s), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "locks"})
	return js, kv, err
}

func (s natsServer) ours() (client, error) {
	js, _, err := s.connect()
	if err != nil {
		return nil, err
	}
	l, err := natskv.New(context.Background(), js, "locks", natskv.Options{})
	return lockstile{l, nil, func() { _ = l.Close(); js.Conn().Close() }}, err
}

type natsKey struct {
	kv       jetstream.KeyValue
	key      string
	revision uint64
	close    func()
}

func (s natsServer) bare() (client, error) {
	js, kv, err := s.connect()
	if err != nil {
		return nil, err
	}
	return natsKey{kv: kv, close: js.Conn().Close}, nil
}

func (b natsKey) Lock(ctx context.Context, name string) (held, error) {
	key := "bare/" + name
	revision, err := b.kv.PutString(ctx, key, record)
	return natsKey{b.kv, key, revision, nil}, err
}

func (b natsKey) Unlock(ctx context.Context) error {
	_, err := b.kv.Update(ctx, b.key, []byte(record), b.revision)
	return err
}

func (b natsKey) Close() { b.close() }

// createdKey is the lock that articles on NATS show: whoever creates the key has it.
type createdKey struct{ natsKey }

func (s natsServer) created() (client, error) {
	c, err := s.bare()
	if err != nil {
		return nil, err
	}
	return createdKey{c.(natsKey)}, nil
}

func (c createdKey) Lock(ctx context.Context, name string) (held, error) {
	key := "created/" + name
	_, err := c.kv.Create(ctx, key, []byte("holder"))
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return createdKey{natsKey{kv: c.kv, key: key}}, err
	}
	w, err := c.kv.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }() // it may have ended with its connection
	for e := range w.Updates() {
		if e != nil && e.Operation() == jetstream.KeyValuePut {
			continue
		}
		_, err := c.kv.Create(ctx, key, []byte("holder"))
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return createdKey{natsKey{kv: c.kv, key: key}}, err
		}
	}
	return nil, errors.Join(errors.New("the watch has ended"), ctx.Err())
}

func (c createdKey) Unlock(ctx context.Context) error { return c.kv.Delete(ctx, c.key) }

// mariaServer is the address of a MariaDB.
type mariaServer string

func startMariaDB(lab *matrix.Lab) *running {
	srv := testserver.MariaDB(lab)
	admin, err := sql.Open("mysql", srv.DSN(""))
	if err == nil {
		_, err = admin.Exec("CREATE DATABASE locks")
	}
	for _, statement := range []string{sqltable.Schema(sqltable.MySQL, "locks.lockstile"), "CREATE TABLE locks.bare (name VARBINARY(512) PRIMARY KEY, record BLOB, n BIGINT)"} {
		if err == nil {
			_, err = admin.Exec(statement)
		}
	}
	if err != nil {
		lab.Fatalf("preparing MariaDB: %w", err)
	}
	lab.Cleanup(func() { _ = admin.Close() })
	statements := func(...string) func() int64 {
		return func() (n int64) {
			var name string
			if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
				lab.Fatalf("counting statements: %w", err)
			}
			return n
		}
	}
	addrs := []string{srv.Addr()}
	return &running{store: "mariadb", addrs: addrs, names: 10_000, subjects: mariaSubjects(addrs, statements)}
}

func mariaSubjects(addrs []string, requests counter) []subject {
	s, count := mariaServer(addrs[0]), requests()
	return []subject{
		{name: "bare updates of a row, both wait for the disk", kind: floor, requests: count, open: s.bare},
		{name: "lockstile/register/sqltable", kind: ours, requests: count, open: s.ours},
		{name: "GET_LOCK, a connection per waiter; no token", kind: peer, requests: count, open: s.getLock},
	}
}

func (s mariaServer) connect() (*sql.DB, error) {
	db, err := sql.Open("mysql", testserver.MariaDBDSN(string(s), "locks", "interpolateParams=true"))
	if err == nil {
		db.SetMaxIdleConns(poolSize)
		db.SetMaxOpenConns(poolSize)
	}
	return db, err
}

func (s mariaServer) ours() (client, error) {
	db, err := s.connect()
	if err != nil {
		return nil, err
	}
	l, err := sqltable.New(db, sqltable.MySQL, sqltable.Options{NoReplica: true})
	return lockstile{l, nil, func() { _ = l.Close(); _ = db.Close() }}, err
}

type mariaRow struct {
	db   *sql.DB
	name string
}

func (s mariaServer) bare() (client, error) {
	db, err := s.connect()
	for i := 0; i < 64 && err == nil; i++ { // as many names as goroutines
		_, err = db.Exec("INSERT IGNORE INTO bare VALUES (?, '', 0)", nameOf(i))
	}
	return mariaRow{db: db}, err
}

func (b mariaRow) Lock(ctx context.Context, name string) (held, error) {
	held := mariaRow{b.db, name}
	return held, held.Unlock(ctx)
}

func (b mariaRow) Unlock(ctx context.Context) error {
	_, err := b.db.ExecContext(ctx, "UPDATE bare SET record = ?, n = n + 1 WHERE name = ?", record, b.name)
	return err
}

func (b mariaRow) Close() { _ = b.db.Close() }

// getLock is a lock of the server's own, which ends with its connection.
type getLock struct{ db *sql.DB }

type gotLock struct {
	conn *sql.Conn
	name string
}

func (s mariaServer) getLock() (client, error) {
	db, err := s.connect()
	return getLock{db}, err
}

func (g getLock) Lock(ctx context.Context, name string) (held, error) {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err = says(ctx, conn, "SELECT GET_LOCK(?, "+strconv.Itoa(int(time.Hour.Seconds()))+")", name); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return gotLock{conn, name}, nil
}

func (g getLock) Close() { _ = g.db.Close() }

func (g gotLock) Unlock(ctx context.Context) error {
	return errors.Join(says(ctx, g.conn, "SELECT RELEASE_LOCK(?)", g.name), g.conn.Close())
}

// says returns nil if the server's answer to a question about a lock is 1.
func says(ctx context.Context, conn *sql.Conn, question, name string) error {
	var done sql.NullInt64
	err := conn.QueryRowContext(ctx, question, name).Scan(&done)
	if err == nil && done.Int64 != 1 {
		err = fmt.Errorf("%s says %v", question, done)
	}
	return err
}
