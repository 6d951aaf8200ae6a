package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// panicsWhile is a hook that panics when an answer has come to a statement with this text,
// while its switch is on.
type panicsWhile struct {
	on     *atomic.Bool
	text   string
	panics atomic.Int32
}

// statement is the key of the text of a statement that is under way.
type statement struct{}

func (*panicsWhile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statement{}, data.SQL)
}

func (p *panicsWhile) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); p.on.Load() && strings.Contains(sql, p.text) {
		p.panics.Add(1)
		panic("the hook")
	}
}

// traced returns a pool with a hook.
func traced(t *testing.T, url string, hook *panicsWhile) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = hook })
}

// What dead processes have left is cleared away in the background, where nobody can recover.
func TestLeasesOutliveAHookThatPanicsInTheBackground(t *testing.T) {
	t.Parallel()
	url := database(t)
	newLocker(t, url, postgres.Options{})
	hook := &panicsWhile{text: "lockstile_sweep", on: new(atomic.Bool)}
	hook.on.Store(true)
	a, err := postgres.New(traced(t, url, hook), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	held := lock(t, a, "a")
	eventually(t, func() string {
		if hook.panics.Load() == 0 {
			return "the hook has not panicked"
		}
		return ""
	})
	unlock(t, held)
}

// A hook panics in the midst of an answer, so the connection ends.
//
//	TryLock, on a connection that is being opened and on one that is open, and Unlock
func TestSessionLocksOutliveAHookThatPanics(t *testing.T) {
	t.Parallel()
	url, on := database(t), new(atomic.Bool)
	b := newSession(t, url)
	a, err := postgres.NewSession(traced(t, url, &panicsWhile{on: on}), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	for _, what := range []string{"opened", "open"} {
		on.Store(true)
		if _, err := a.TryLock(soon(t), "a"); err == nil || !strings.Contains(err.Error(), "panicked: the hook") {
			t.Errorf("on a connection that is %s TryLock returned %v, though the hook has panicked", what, err)
		}
		on.Store(false)
		unlock(t, lock(t, b, "a"))
		unlock(t, lock(t, a, "a"))
	}
	held := lock(t, a, "a", locker.WithTTL(long))
	on.Store(true)
	if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "panicked: the hook") {
		t.Errorf("Unlock in which the hook has panicked: %v", err)
	}
	on.Store(false)
	unlock(t, lock(t, b, "a"))
}

// counted is a connection that counts while it is open.
type counted struct {
	net.Conn
	open *atomic.Int32
}

func (c counted) Close() error {
	err := c.Conn.Close()
	if err == nil { // else it was closed before
		c.open.Add(-1)
	}
	return err
}

// Goal: a hook that panics with a new connection ends the call, and the connection, and nothing else. Method: what
// the collection of garbage closes is not counted.
func TestConnectionWhoseHookPanicsIsClosed(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(c *pgxpool.Config, hook func()){
		"AfterConnect": func(c *pgxpool.Config, hook func()) {
			c.AfterConnect = func(context.Context, *pgx.Conn) error { hook(); return nil }
		},
		"PrepareConn": func(c *pgxpool.Config, hook func()) {
			c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { hook(); return true, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, on, open := database(t), new(atomic.Bool), new(atomic.Int32)
			b := newSession(t, url)
			pool := poolWith(t, url, func(c *pgxpool.Config) {
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, addr)
					open.Add(1)
					return counted{conn, open}, err
				}
				set(c, func() {
					if on.Load() {
						panic("the hook")
					}
				})
			})
			a, err := postgres.NewSession(pool, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			on.Store(true)
			for range 3 {
				if _, err := a.TryLock(soon(t), "a"); err == nil || !strings.Contains(err.Error(), "panicked: the hook") {
					t.Errorf("TryLock in which the hook has panicked: %v", err)
				}
			}
			eventually(t, func() string {
				if n := open.Load(); n > 0 {
					return fmt.Sprintf("%d connections are open", n)
				}
				return ""
			})
			on.Store(false)
			unlock(t, lock(t, a, "a"))
			unlock(t, lock(t, b, "a"))
		})
	}
}
