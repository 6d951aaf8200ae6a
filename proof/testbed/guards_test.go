package testbed_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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
	"github.com/lockstile/locker/internal/guardtest"
	"github.com/lockstile/locker/internal/testserver"
)

// Method: a holder's process is stopped past its lease, on every backend that has one. The
// next holder's token claims every storage, and then the stopped one's is shown there.
func TestTokenOfAStoppedHolderIsRefusedByEveryStorage(t *testing.T) {
	all := guards(t)
	for _, name := range []string{"singlenode", "redlock-rule", "etcd", "zookeeper", "postgres"} {
		t.Run(name, func(t *testing.T) {
			const scenario = "pause before the write"
			c := played(t, subject(t, name), scenario)
			for i := 1; i <= 3 && len(c.History.Spans) != 2; i++ { // a stall has hidden the fault
				c = longer(t, subject(t, name), scenario, i)
			}
			spans := c.History.Spans
			if len(spans) != 2 {
				t.Fatalf("%d holders: %s\n%s", len(spans), c.Why, c.History.Text())
			}
			stopped, next := spans[0].Token, spans[1].Token
			for storage, guard := range all {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := guard.Check(ctx, name, next); err != nil {
					t.Errorf("%s: the claim of token %d: %v", storage, next, err)
				}
				if err := guard.Check(ctx, name, stopped); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("%s: token %d after %d: %v", storage, stopped, next, err)
				}
				cancel()
			}
		})
	}
}

// Goal: every storage tells resources apart and compares tokens exactly, for odd names and
// the largest numbers. Method: each name gets a smaller token and reader's number than those
// before it, near 2^64, and then one less each. A storage that confuses two names refuses the
// first, and one that rounds numbers accepts the second.
func TestOddResourcesAndLastNumbersAreKeptApartByEveryStorage(t *testing.T) {
	names := []string{
		"a", "A", " a", "a ", "a/", "/a", "//a", "a/b", "a%2Fb", "%", "%00", ".", "..", "a/../b", "...", "/", "*", "a*", "?", "a?b", "#", "a;b", "'", `"`, `\`, "$1",
		"{a}", "{a}b", "a}b", "{}", "{", "}", "lockstile:f:a", "lockstile:f:{a}", ":a", "0", "00", "1", "-1", "NULL", "\t", "\n", "\u0085", "\ufeff",
		"ü", "u\u0308", "ß", "ẞ", "İ", "鍵", "🔒", "\uf8ff", "\uffff", strings.Repeat("x", 511), strings.Repeat("x", 512),
	}
	mayBeRefused := []string{"", "\x00", "a\x00b", "a\xff", "\xed\xa0\x80", strings.Repeat("y", 100_000)}
	for storage, guard := range guards(t) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for i, name := range slices.Concat(names, mayBeRefused) {
			token := fencing.Token(math.MaxUint64) - 3*fencing.Token(i)
			var err error
			for _, claim := range []error{guard.Check(ctx, name, token-1), guard.CheckShared(ctx, name, fencing.SharedToken(token))} {
				if err = claim; err != nil && (i < len(names) || errors.Is(err, fencing.ErrStale)) {
					t.Errorf("%s: %.20q: token %d: %.300v", storage, name, token, err)
				}
			}
			for _, again := range []error{guard.Check(ctx, name, token-1), guard.CheckShared(ctx, name, fencing.SharedToken(token-2))} {
				if again == nil || err == nil && !errors.Is(again, fencing.ErrStale) {
					t.Errorf("%s: %.20q: less than token %d: %.300v", storage, name, token, again)
				}
			}
		}
		cancel()
	}
}

func guards(t *testing.T) map[string]fencing.SharedGuard {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	inRedis, err := redisfence.NewGuard(rdb)
	if err != nil {
		t.Fatal(err)
	}
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
	return map[string]fencing.SharedGuard{
		"Redis":     inRedis,
		"etcd":      etcdfence.NewGuard(etcd),
		"ZooKeeper": zoo,
		"Postgres":  inTransaction{pool},
		"HTTP":      overHTTP(t),
	}
}

// inTransaction asks a guard in a transaction of its own.
type inTransaction struct{ pool *pgxpool.Pool }

func (g inTransaction) Check(ctx context.Context, resource string, token fencing.Token) error {
	return g.ask(ctx, func(guard *pgfence.Guard) error { return guard.Check(ctx, resource, token) })
}

func (g inTransaction) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	return g.ask(ctx, func(guard *pgfence.Guard) error { return guard.CheckShared(ctx, resource, token) })
}

func (g inTransaction) ask(ctx context.Context, ask func(*pgfence.Guard) error) error {
	tx, err := g.pool.Begin(ctx)
	if err != nil {
		return err
	}
	if err := ask(pgfence.NewGuard(tx)); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

// overHTTP is a server that keeps its numbers in memory.
func overHTTP(t *testing.T) guardtest.Remote {
	t.Helper()
	guarded, err := httpfence.Middleware(new(fencing.Memory), httpfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	t.Cleanup(srv.Close)
	return guardtest.Remote(srv.URL)
}
