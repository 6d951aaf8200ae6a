package redisfence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/redisfence"
)

// Interleaving: 34 has written through a Ring. The server that remembers it is down, or a
// wrapper sends 33's question elsewhere: a server that knows nothing accepts it.
func TestClientsThatMayAskAnotherServerAreRefused(t *testing.T) {
	_, rdb, _ := setUp(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for want, client := range map[string]redis.UniversalClient{
		"*redis.Ring":                     ring,
		"struct { *redis.Ring }":          struct{ *redis.Ring }{ring},
		"struct { *redis.Client }":        struct{ *redis.Client }{rdb},
		"struct { *redis.ClusterClient }": struct{ *redis.ClusterClient }{cluster},
		"is nil":                          (*redis.Client)(nil),
	} {
		if _, err := redisfence.NewGuard(client); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a guard on %s: %v", want, err)
		}
		if _, err := redisfence.NewCounter(client); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a counter on %s: %v", want, err)
		}
	}
	newGuard(t, cluster)
}

// Goal: what the guard remembers of one key is not written over under another, nor
// is what a Counter counts.
//
// Interleaving: 34 has written "k". Somebody who chooses keys or arguments names the key
// in which that is remembered; 33 comes late.
func TestGuardsOwnKeysAreNotWritten(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 34, "SET", "new"); err != nil {
		t.Fatal(err)
	}
	srv.Do("SET", "other", "0")
	for i, c := range []struct {
		key, command string
		args         []any
	}{
		{"lockstile:f:{k}", "SET", []any{"0"}},
		{"lockstile:f:x", "SET", []any{"0"}},
		{"lockstile:c:{x}", "SET", []any{"0"}},
		{"other", "RENAME", []any{"lockstile:f:{k}"}},
		{"other", "COPY", []any{[]byte("lockstile:f:{k}"), "REPLACE"}},
		{"other", "MSET", []any{1, "lockstile:f:{k}", 0}},
		{"other", "DEL", []any{"another", encoded("lockstile:f:{k}")}},
		{"AND", "BITOP", []any{"lockstile:c:{x}", "other"}},
	} {
		if _, err := g.Do(ctx, c.key, 1, c.command, c.args...); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%d: %s %s %q: %v", i, c.command, c.key, c.args, err)
		}
	}
	if got := srv.Do("EXISTS", "other", "lockstile:f:{other}", "lockstile:f:{AND}", "lockstile:c:{x}"); got != "1" {
		t.Errorf("of what was refused something was done: %s", got)
	}
	if _, err := g.Do(ctx, "k", 33, "SET", "old"); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a stale write: %v", err)
	}
	if got := srv.Do("GET", "k"); got != "new" {
		t.Errorf("the stale write got in: %q", got)
	}
}

// Goal: a token is accepted by the master alone. Interleaving: 33 has checked it. A replica
// takes over, and 34 writes there. The former master is a replica now, of which nobody has
// told 33's client, and it has not heard of 34.
func TestServerThatHasBecomeAReplicaAcceptsNothing(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	if _, err := g.Do(ctx, "k", 33, "SET", "old"); err != nil {
		t.Fatal(err)
	}
	if err := g.CheckShared(ctx, "readers", 33); err != nil {
		t.Fatal(err)
	}
	srv.Do("REPLICAOF", "127.0.0.1", "1") // where nobody is
	for what, ask := range map[string]func() error{
		"Check":                             func() error { return g.Check(ctx, "k", 33) },
		"a read":                            func() error { _, err := g.Do(ctx, "k", 33, "GET"); return err },
		"a write":                           func() error { _, err := g.Do(ctx, "k", 33, "SET", "older"); return err },
		"a newer":                           func() error { return g.Check(ctx, "k", 35) },
		"a reader that has raised its mark": func() error { return g.CheckShared(ctx, "readers", 33) },
		"a read of such a reader":           func() error { _, err := g.Read(ctx, "readers", 33, "GET"); return err },
	} {
		if ask() == nil {
			t.Errorf("%s was accepted by a replica", what)
		}
	}
}

// encoded is an argument whose text the client finds out as it sends it.
type encoded string

func (e encoded) MarshalBinary() ([]byte, error) { return []byte(e), nil }

// Goal: a reply is the server's, or an error that says that the write was done. No
// interleaving is needed: the numbers of Redis' scripts are exact below 2^53 alone.
func TestIntegerThatAScriptRoundsIsAnErrorAndNotAnotherNumber(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	for _, c := range []struct {
		before, command string
		args            []any
		after           string
		exact           any
	}{
		{"9007199254740990", "INCR", nil, "9007199254740991", int64(9007199254740991)},
		{"9007199254740991", "INCR", nil, "9007199254740992", nil},
		{"9007199254740992", "INCR", nil, "9007199254740993", nil},
		{"9223372036854775805", "INCR", nil, "9223372036854775806", nil},
		{"-9007199254740990", "DECR", nil, "-9007199254740991", int64(-9007199254740991)},
		{"-9007199254740991", "DECR", nil, "-9007199254740992", nil},
		{"-9223372036854775807", "DECR", nil, "-9223372036854775808", nil},
		{"12345678", "BITFIELD", []any{"GET", "u8", 0, "GET", "i64", 0}, "12345678", nil},
		{"9223372036854775807", "GET", nil, "9223372036854775807", "9223372036854775807"},
	} {
		srv.Do("SET", "k", c.before)
		reply, err := g.Do(ctx, "k", 1, c.command, c.args...)
		if reply != c.exact || errors.Is(err, redisfence.ErrInexact) != (c.exact == nil) || err != nil && c.exact != nil {
			t.Errorf("%s of %s: %v, %v", c.command, c.before, reply, err)
		}
		if got := srv.Do("GET", "k"); got != c.after {
			t.Errorf("%s of %s left %s", c.command, c.before, got)
		}
	}
}

// Goal: what is refused leaves nothing behind. Method: the most arguments that there
// may be, and one more.
func TestTooManyArgumentsAreRefusedBeforeTheTokenIsRemembered(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	values := make([]any, 7000)
	for i := range values {
		values[i] = i
	}
	if reply, err := g.Do(ctx, "k", 5, "RPUSH", values...); err != nil || reply != int64(len(values)) {
		t.Errorf("%d arguments: %v, %v", len(values), reply, err)
	}
	for _, n := range []int{1, 2000, 100000} {
		if _, err := g.Do(ctx, "k", 9, "RPUSH", append(make([]any, n), values...)...); err == nil || !strings.Contains(err.Error(), "7000") {
			t.Errorf("%d arguments: %v", n+len(values), err)
		}
	}
	if got := srv.Do("LLEN", "k"); got != "7000" {
		t.Errorf("the list has %s elements", got)
	}
	if err := g.Check(ctx, "k", 8); err != nil {
		t.Errorf("the token of what was refused is remembered: %v", err)
	}
}

// Goal: what a write that the server refuses leaves behind is what the documentation
// says, the token and nothing else.
func TestWriteThatTheServerRefusesLeavesItsTokenAlone(t *testing.T) {
	srv, rdb, ctx := setUp(t)
	g := newGuard(t, rdb)
	srv.Do("RPUSH", "k", "a")
	for i, c := range [][]any{{"INCR"}, {"LSET", 7, "b"}, {"LSET", "x"}, {"EVAL", 0}, {"NOSUCHCOMMAND"}, {"SUBSCRIBE"}} {
		token := fencing.Token(10 + i)
		if _, err := g.Do(ctx, "k", token, c[0].(string), c[1:]...); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%v: %v", c, err)
		}
		if err := g.Check(ctx, "k", token-1); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%v: a smaller token afterwards: %v", c, err)
		}
	}
	if got := srv.Do("LRANGE", "k", "0", "-1"); got != "a" {
		t.Errorf("the list is %q", got)
	}
}
