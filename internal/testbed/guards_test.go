package testbed_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/etcdfence"
	"github.com/lockstile/locker/fencing/httpfence"
	"github.com/lockstile/locker/fencing/pgfence"
	"github.com/lockstile/locker/fencing/redisfence"
	"github.com/lockstile/locker/fencing/zkfence"
	"github.com/lockstile/locker/internal/testserver"
)

// A holder's process is stopped past its lease on every backend that has one,
// and the tokens of that holder and of the next are taken to every storage: the
// later one claims, the earlier one is refused.
func TestTokenOfAStoppedHolderIsRefusedByEveryStorage(t *testing.T) {
	all := guards(t)
	for _, name := range []string{"singlenode", "redlock-rule", "etcd", "zookeeper", "postgres"} {
		t.Run(name, func(t *testing.T) {
			c := played(t, subject(t, name), "pause before the write")
			spans := c.History.Spans
			if len(spans) != 2 {
				t.Fatalf("%d holders: %s\n%s", len(spans), c.Why, c.History.Tale())
			}
			stopped, next := spans[0].Token, spans[1].Token
			for storage, check := range all {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := check(ctx, name, next); err != nil {
					t.Errorf("%s: the claim of token %d: %v", storage, next, err)
				}
				if err := check(ctx, name, stopped); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("%s: token %d after %d: %v", storage, stopped, next, err)
				}
				cancel()
			}
		})
	}
}

type checkFunc func(ctx context.Context, resource string, token fencing.Token) error

func guards(t *testing.T) map[string]checkFunc {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testserver.Etcd(t, 1).Endpoints(), DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := zk.Connect([]string{testserver.ZooKeeper(t, 1)[0].Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	zoo, err := zkfence.NewGuard(conn, zkfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t).URL("postgres"))
	if err == nil {
		_, err = pool.Exec(t.Context(), pgfence.Schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = rdb.Close()
		_ = etcd.Close()
		conn.Close()
		pool.Close()
	})
	return map[string]checkFunc{
		"Redis":     redisfence.NewGuard(rdb).Check,
		"etcd":      etcdfence.NewGuard(etcd).Check,
		"ZooKeeper": zoo.Check,
		"Postgres":  inTransaction(pool),
		"HTTP":      overHTTP(t),
	}
}

func inTransaction(pool *pgxpool.Pool) checkFunc {
	return func(ctx context.Context, resource string, token fencing.Token) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := pgfence.New(tx).Check(ctx, resource, token); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
}

// overHTTP is a server that keeps its numbers in memory; 412 is its ErrStale.
func overHTTP(t *testing.T) checkFunc {
	t.Helper()
	guarded, err := httpfence.Middleware(new(fencing.Memory), func(r *http.Request) string { return r.URL.Path })
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	t.Cleanup(srv.Close)
	return func(ctx context.Context, resource string, token fencing.Token) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, srv.URL+"/"+resource, nil)
		if err != nil {
			return err
		}
		httpfence.Set(req, token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusNoContent:
			return nil
		case http.StatusPreconditionFailed:
			return fencing.ErrStale
		}
		return errors.New(resp.Status)
	}
}
