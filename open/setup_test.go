package open_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/local"
	"github.com/lockstile/locker/open"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/redlock"
	"github.com/lockstile/locker/singlenode"
	"github.com/lockstile/locker/zookeeper"
)

// What docs/CHOOSING.md shows of each backend's set-up is here line by line, so
// that it compiles.
var (
	_ = func() (locker.Locker, error) {
		locks, err := local.New("/run/app", local.Options{})
		return locks, err
	}
	_ = func() (locker.Locker, error) {
		rdb := redis.NewClient(&redis.Options{Addr: "h:6379"})
		locks, err := singlenode.New(rdb, singlenode.Options{})
		return locks, err
	}
	_ = func(h1, h2, h3 *redis.Client) (locker.Locker, error) {
		nodes := []redis.UniversalClient{h1, h2, h3}
		locks, err := redlock.New(nodes, redlock.Options{})
		return locks, err
	}
	_ = func() (locker.Locker, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"h1:2379", "h2:2379", "h3:2379"}})
		locks, err2 := etcd.New(client, etcd.Options{})
		return locks, errors.Join(err, err2)
	}
	_ = func() (locker.Locker, error) {
		session := zookeeper.NewSession(nil)
		conn, events, err := zk.Connect([]string{"h1:2181", "h2:2181", "h3:2181"}, 10*time.Second, zk.WithDialer(session.Dial))
		locks, err2 := zookeeper.New(conn, zookeeper.Options{Session: session})
		_ = events
		return locks, errors.Join(err, err2)
	}
	_ = func(ctx context.Context) (locker.Locker, error) {
		pool, err := pgxpool.New(ctx, "postgres://h/app")
		locks, err2 := postgres.New(pool, postgres.Options{})
		_ = err
		err = locks.EnsureSchema(ctx)
		return locks, errors.Join(err, err2)
	}
	_ = func(ctx context.Context, tx pgx.Tx) (fencing.Token, error) {
		token, err := postgres.LockTx(ctx, tx, "invoices/42")
		return token, err
	}
	_ = func(ctx context.Context, tx pgx.Tx, token fencing.Token) (err error) {
		_, err = tx.Exec(ctx, pgfence.Schema)
		_ = err
		err = pgfence.New(tx).Check(ctx, "account/7", token)
		return err
	}
	_ = func(ctx context.Context) (locker.Locker, error) {
		locks, err := open.URL(ctx, os.Getenv("LOCKS"))
		return locks, err
	}
)

func TestSetUpInTheGuideIsWhatCompilesHere(t *testing.T) {
	guide, err := os.ReadFile("../docs/CHOOSING.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("setup_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for line := range strings.Lines(string(source)) {
		known = append(known, strings.TrimSpace(line))
	}
	shown := 0
	for i, block := range strings.Split(string(guide), "```") {
		code, isGo := strings.CutPrefix(block, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		for line := range strings.Lines(code) {
			line, _, _ = strings.Cut(line, " //")
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "//") {
				continue
			}
			shown++
			if !slices.Contains(known, line) {
				t.Errorf("the guide shows what is not compiled: %s", line)
			}
		}
	}
	if shown < 15 {
		t.Errorf("%d lines of Go are in the guide", shown)
	}
}
