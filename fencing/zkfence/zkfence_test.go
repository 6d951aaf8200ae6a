package zkfence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/zkfence"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/zookeeper"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

func setUp(t *testing.T, opts zkfence.Options) (*zkfence.Guard, *zk.Conn, context.Context) {
	t.Helper()
	s := testserver.ZooKeeper(t, 1)[0]
	conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	g, err := zkfence.NewGuard(conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return g, conn, ctx
}

func set(path, data string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: path, Data: []byte(data), Version: -1}
}

func data(t *testing.T, conn *zk.Conn, path string) string {
	t.Helper()
	b, _, err := conn.Get(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStaleWriteIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{Base: "/a/b/c/d/e/f"})
	if _, err := conn.Create("/data", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	results, err := g.Write(ctx, "k", 34, set("/data", "new"))
	if err != nil || len(results) != 1 || results[0].Stat.Version != 1 {
		t.Fatalf("the first write: %+v, %v", results, err)
	}
	_, err = g.Write(ctx, "k", 33, set("/data", "old"))
	var stale *fencing.StaleError
	if !errors.Is(err, fencing.ErrStale) || !errors.As(err, &stale) || *stale != (fencing.StaleError{Resource: "k", Token: 33, Seen: 34}) {
		t.Errorf("a stale write: %v", err)
	}
	if got := data(t, conn, "/data"); got != "new" {
		t.Errorf("the stale write got in: %q", got)
	}
	if _, err := g.Write(ctx, "k", 34, set("/data", "again")); err != nil || data(t, conn, "/data") != "again" {
		t.Errorf("the same token again: %v", err)
	}
	if err := g.Check(ctx, "k/../other", 1); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

func TestZeroTokenIsRefusedAndWritesNothing(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	create := &zk.CreateRequest{Path: "/balance", Data: []byte("0"), Acl: zk.WorldACL(zk.PermAll)}
	if _, err := g.Write(ctx, "r", 0, create); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a write: %v", err)
	}
	if err := g.Check(ctx, "r", 0); !errors.Is(err, fencing.ErrZeroToken) {
		t.Errorf("a check: %v", err)
	}
	for _, path := range []string{"/balance", zkfence.DefaultBase} {
		if there, _, err := conn.Exists(path); err != nil || there {
			t.Errorf("%s is there: %v, %v", path, there, err)
		}
	}
}

func TestClaimClosesTheWindowBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	g, _, ctx := setUp(t, zkfence.Options{})
	if err := g.Check(ctx, "k", 34); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a claim with an earlier token: %v", err)
	}
	if err := g.Check(ctx, "k", 34); err != nil {
		t.Errorf("the same token again: %v", err)
	}
}

func TestWriteThatTheServerRefusesIsTheCallersErrorAndLeavesNoToken(t *testing.T) {
	t.Parallel()
	g, _, ctx := setUp(t, zkfence.Options{})
	for range 2 { // with no node of the resource yet, and with one
		if _, err := g.Write(ctx, "k", 9, set("/missing", "x")); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("a write to a node that is missing: %v", err)
		}
		if err := g.Check(ctx, "k", 5); err != nil {
			t.Errorf("a smaller token after a write that failed: %v", err)
		}
	}
}

// A look at the token may be old. The transaction must notice: of writers that
// run at once, none may get in after one with a greater token.
func TestTokensNeverGoBackUnderConcurrentWriters(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	const writers, rounds = 8, 20
	if _, err := conn.Create("/log", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for r := range rounds {
				token := fencing.Token(r*writers + w + 1)
				entry := &zk.CreateRequest{
					Path: "/log/" + token.String() + "-", Flags: zk.FlagSequence,
					Acl: zk.WorldACL(zk.PermAll),
				}
				for range 3 { // the first sets the token, the others find it
					if _, err := g.Write(ctx, "k", token, entry); err != nil && !errors.Is(err, fencing.ErrStale) {
						t.Errorf("token %d: %v", token, err)
					}
				}
			}
		})
	}
	all.Wait()
	entries, _, err := conn.Children("/log")
	if err != nil {
		t.Fatal(err)
	}
	order := make(map[string]fencing.Token)
	var greatest fencing.Token
	for _, e := range entries {
		text, seq, _ := strings.Cut(e, "-")
		token, err := fencing.ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		order[seq] = token
		greatest = max(greatest, token)
	}
	var last fencing.Token
	for i := range entries {
		token, ok := order[sequenceOf(i)]
		if !ok || token < last {
			t.Fatalf("write %d has token %d after %d", i, token, last)
		}
		last = token
	}
	if greatest != writers*rounds {
		t.Errorf("the greatest token written is %d, want %d", greatest, writers*rounds)
	}
}

func sequenceOf(i int) string {
	digits := fencing.Token(i).String()
	return strings.Repeat("0", 10-len(digits)) + digits
}

func newLocker(t *testing.T, conn *zk.Conn) *zookeeper.Locker {
	t.Helper()
	l, err := zookeeper.New(conn, zookeeper.Options{SessionTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // never fails
	return l
}

func TestLateWriterOfALostLockIsRefused(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	l, other := newLocker(t, conn), newLocker(t, conn)
	first, err := l.Lock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Break(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	second, err := other.Lock(ctx, "k", locker.WithTTL(10*time.Second))
	if err == nil {
		err = g.Check(ctx, "k", second.Token())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx, "k", first.Token()); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("the first holder's token: %v", err)
	}
}

// Whoever may write to the nodes can undo the guard.
func TestNodesAreMadeWithTheACL(t *testing.T) {
	t.Parallel()
	const base = "/app/fences"
	acl := zk.DigestACL(zk.PermAll, "user", "secret")
	g, conn, ctx := setUp(t, zkfence.Options{Base: base, ACL: acl})
	if err := conn.AddAuth("digest", []byte("user:secret")); err != nil {
		t.Fatal(err)
	}
	for token := range fencing.Token(3) { // makes the nodes, and writes to them
		if err := g.Check(ctx, "k", token+1); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/app", base, base + "/k"} {
		if got, _, err := conn.GetACL(path); err != nil || !slices.Equal(got, acl) {
			t.Errorf("%s has the ACL %v, %v", path, got, err)
		}
	}
}

// Goal: what the servers say of the guard's own nodes is what the caller hears, and is no
// verdict. Method: a base that may not be made, a node that may not be written, and a
// connection that is closed.
func TestErrorsOfTheStoreAreNoVerdict(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{Base: "/app/fences"})
	for _, node := range []struct{ path, data string }{{"/app", ""}, {zkfence.DefaultBase, ""}, {zkfence.DefaultBase + "/k", "1"}} {
		acl := zk.WorldACL(zk.PermRead)
		if node.path == zkfence.DefaultBase {
			acl = zk.WorldACL(zk.PermAll)
		}
		if _, err := conn.Create(node.path, []byte(node.data), zk.FlagPersistent, acl); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Check(ctx, "k", 2); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("a base that may not be made: %v", err)
	}
	g, err := zkfence.NewGuard(conn, zkfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx, "k", 2); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("a node that may not be written: %v", err)
	}
	conn.Close()
	if err := g.Check(ctx, "k", 2); !errors.Is(err, zk.ErrClosing) && !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("a connection that is closed: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if _, err := zkfence.NewGuard(nil, zkfence.Options{}); err == nil {
		t.Error("a nil connection was accepted")
	}
	g, conn, ctx := setUp(t, zkfence.Options{})
	if _, err := zkfence.NewGuard(conn, zkfence.Options{Base: "locks"}); err == nil {
		t.Error("a base without a slash was accepted")
	}
	if err := g.Check(ctx, "", 1); err == nil {
		t.Error("a resource without a name was accepted")
	}
	if _, err := conn.Create(zkfence.DefaultBase, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Create(zkfence.DefaultBase+"/k", []byte("x"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx, "k", 1); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("a node that holds no token: %v", err)
	}
}
