package zkfence_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/zkfence"
)

// What is not text, or too much of it, is an error before the server is asked: a
// request that is too large would cost the connection, and all locks with it.
//
//	check a name that ends in half a character; check one of 1.2 MB; is the
//	session still the same, and are other resources guarded?
func TestResourceThatIsNoTextIsAnErrorAndHarmsNobody(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	if err := g.Check(ctx, "k", 7); err != nil {
		t.Fatal(err)
	}
	server := conn.Server()
	for _, resource := range []string{"", "\xff", "a\xc3", "\xffbc", "ab\xf0\x9f", strings.Repeat("x", 513), strings.Repeat("x", 1200<<10)} {
		err := g.Check(ctx, resource, 1)
		if err == nil || errors.Is(err, zk.ErrConnectionClosed) || len(err.Error()) > 500 {
			t.Errorf("the resource %.20q: %.200v", resource, err)
		}
	}
	if conn.State() != zk.StateHasSession || conn.Server() != server {
		t.Errorf("the connection is in %v", conn.State())
	}
	if err := g.Check(ctx, "k", 6); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale token afterwards: %v", err)
	}
}

func TestHostileNamesAreResourcesOfTheirOwn(t *testing.T) {
	t.Parallel()
	g, _, ctx := setUp(t, zkfence.Options{})
	names := []string{
		".", "..", "/", "//", "a", "a/b", "a%2Fb", "a%252Fb", "%", "%2E", "...", "zookeeper", " ", "\n\t\x01\x7f\u0085",
		"größe", "鍵", "🔒", "\uf8ff\ufff0\uffff\ufffd", "lock-0000000000", strings.Repeat("/", 512), strings.Repeat("x", 512),
	}
	for i, name := range names {
		if err := g.Check(ctx, name, fencing.Token(len(names)-i)); err != nil { // smaller and smaller
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for i, name := range names {
		if err := g.Check(ctx, name, fencing.Token(len(names)-i)-1); i < len(names)-1 && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%.20q: a stale token: %v", name, err)
		}
	}
}

func TestTokensBeyondInt64AreComparedAsNumbers(t *testing.T) {
	t.Parallel()
	g, _, ctx := setUp(t, zkfence.Options{})
	for _, token := range []fencing.Token{9, 10, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, math.MaxUint64} {
		if err := g.Check(ctx, "r", token); err != nil {
			t.Errorf("token %d: %v", token, err)
		}
	}
	for _, token := range []fencing.Token{1, 9, math.MaxInt64, math.MaxUint64 - 1} {
		if err := g.Check(ctx, "r", token); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %d: %v", token, err)
		}
	}
}

// Goal: what the guard remembers of one resource is not written over under another.
//
// Interleaving: 34 has written "victim". Somebody who chooses paths writes, deletes or
// makes a node below the guard's base; 33 comes late.
func TestGuardsOwnNodesAreNotWritten(t *testing.T) {
	t.Parallel()
	for _, base := range []string{zkfence.DefaultBase, "/app/fences"} {
		g, _, ctx := setUp(t, zkfence.Options{Base: base})
		if err := g.Check(ctx, "victim", 34); err != nil {
			t.Fatal(err)
		}
		acl := zk.WorldACL(zk.PermAll)
		for name, op := range map[string]any{
			"set":               set(base+"/victim", "0"),
			"set of its own":    set(base+"/other", "0"),
			"set of the base":   set(base, "0"),
			"delete":            &zk.DeleteRequest{Path: base + "/victim", Version: -1},
			"create":            &zk.CreateRequest{Path: base + "/new", Data: []byte("9"), Acl: acl},
			"create in a child": &zk.CreateRequest{Path: base + "/victim/a", Acl: acl},
		} {
			if _, err := g.Write(ctx, "other", 9, op); err == nil || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := g.Check(ctx, "other", 1); err != nil {
			t.Errorf("a smaller token afterwards: %v", err)
		}
		if err := g.Check(ctx, "victim", 33); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a stale token: %v", err)
		}
		beside := &zk.CreateRequest{Path: base + "-beside", Acl: acl}
		if _, err := g.Write(ctx, "other", 9, beside, &zk.CheckVersionRequest{Path: base + "/victim", Version: 0}); err != nil {
			t.Errorf("a node beside the base, and a look at one below it: %v", err)
		}
	}
}
