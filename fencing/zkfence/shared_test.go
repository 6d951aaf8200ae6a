package zkfence_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/zkfence"
	"github.com/lockstile/locker/internal/guardtest"
)

func TestGuardKeepsTheContractOfGuards(t *testing.T) {
	t.Parallel()
	g, _, _ := setUp(t, zkfence.Options{})
	guardtest.Run(t, g)
}

// Goal: a resource that was guarded before there were readers still is, and a node that
// holds something else is no mark.
func TestTokenFromBeforeThereWereReadersCounts(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	acl := zk.WorldACL(zk.PermAll)
	if err := g.Check(ctx, "any", 1); err != nil { // makes the base
		t.Fatal(err)
	}
	if _, err := conn.Create(zkfence.DefaultBase+"/k", []byte("34"), zk.FlagPersistent, acl); err != nil {
		t.Fatal(err)
	}
	if err := g.CheckShared(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale reader: %v", err)
	}
	if err := g.Check(ctx, "k", 33); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale writer: %v", err)
	}
	if err := g.CheckShared(ctx, "k", 35); err != nil {
		t.Errorf("a reader: %v", err)
	}
	for i, text := range []string{"1 ", " 1", "1 2 3", "1  2", "1 x", "1 -2"} {
		if _, err := conn.Set(zkfence.DefaultBase+"/k", []byte(text), -1); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{g.Check(ctx, "k", 99), g.CheckShared(ctx, "k", 99)} {
			if err == nil || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%d: a node that holds %q: %v", i, text, err)
			}
		}
	}
}

// Goal: a writer does not lose what readers have marked, nor they what it has.
//
// Interleaving: a reader or a writer looks at the node; another one changes it; the first
// sends what it has made of the old one. Many at once do, and what is left are both marks.
func TestReaderAndWriterAtOnceLeaveBothMarks(t *testing.T) {
	t.Parallel()
	g, conn, ctx := setUp(t, zkfence.Options{})
	done := make(chan error, 2)
	go func() {
		var err error
		for n := fencing.SharedToken(1); n <= 100 && err == nil; n++ {
			err = g.CheckShared(ctx, "k", 1000+n)
		}
		done <- err
	}()
	go func() {
		var err error
		for n := fencing.Token(1); n <= 100 && (err == nil || errors.Is(err, fencing.ErrStale)); n++ {
			err = g.Check(ctx, "k", n)
		}
		if errors.Is(err, fencing.ErrStale) {
			err = nil
		}
		done <- err
	}()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := data(t, conn, zkfence.DefaultBase+"/k"); len(got) < len("0 1100") || got[len(got)-len(" 1100"):] != " 1100" {
		t.Errorf("the node holds %q", got)
	}
}
