package redisnode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redishook"
	"github.com/lockstile/locker/internal/testserver"
)

func mustList(t *testing.T, n *Node, prefix string) []string {
	t.Helper()
	views, err := n.List(background(t), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range views {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

var oddNames = []string{"a", "ab", "b", "{a}", "{a}b", "x{a}", "a}b", "{}", "{}x", "{", "}", "{{a}}", "x{y", "a*", "a?", "a[b]", `a\b`, "a:b", "}:a", "lockstile", "ä/ö"}

// Whatever a prefix has in it stands for itself, and braces hide no name.
func TestListFindsTheNamesThatBeginWithAPrefixAndNoOthers(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	for _, name := range oddNames {
		mustGrant(t, n, newAttempt(t, name))
	}
	prefixes := []string{"", "none"}
	for _, name := range oddNames {
		for i := range len(name) {
			prefixes = append(prefixes, name[:i+1])
		}
	}
	for _, prefix := range prefixes {
		var want []string
		for _, name := range oddNames {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if got := mustList(t, n, prefix); !slices.Equal(got, want) {
			t.Errorf("below %q: %q, want %q", prefix, got, want)
		}
	}
}

func TestListShowsWhatIsHeldAndNothingElse(t *testing.T) {
	srv := testserver.Redis(t)
	n, m := client(t, srv.Addr())
	held, kept, free, reserved := newAttempt(t, "held"), newAttempt(t, "kept"), newAttempt(t, "free"), newAttempt(t, "reserved")
	token := mustGrant(t, n, held).First
	for _, a := range []*Attempt{kept, free, reserved} {
		mustGrant(t, n, a)
	}
	mustQueue(t, n, m, newAttempt(t, "held"))
	mustQueue(t, n, m, newAttempt(t, "reserved"))
	for a, keep := range map[*Attempt]time.Duration{kept: time.Hour, free: 0, reserved: 0} {
		if err := n.Release(background(t), a, keep); err != nil {
			t.Fatal(err)
		}
	}
	srv.Do("SET", "stranger", "theirs")                 // it has no counter
	srv.Do("SET", "lockstile:t:garbage", "1")           // no name has this key
	srv.Do("SET", "lockstile:t:{a}:stranger", "1")      // nor this
	srv.Do("HSET", "another", "key of", "another kind") // and this no lock any more
	srv.Do("SET", "lockstile:t:{another}", "1")
	if got := mustList(t, n, ""); !slices.Equal(got, []string{"held", "kept"}) {
		t.Errorf("listed as held: %q", got)
	}
	views, err := n.List(background(t), "held")
	if err != nil || len(views) != 1 {
		t.Fatalf("%+v, %v", views, err)
	}
	if v := views[0]; v.Holder != "the test" || uint64(v.Token) != token || v.Waiters != 1 || v.TimeLeft <= 0 || !v.Held {
		t.Errorf("%+v", v)
	}
}

// More names than are looked at in one round trip, in more pages than one.
func TestListGoesThroughManyNames(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	const names = 2*lookCount + 1
	srv.Do("EVAL", `for i = 1, ARGV[1] do redis.call('SET', 'n' .. i, 'v') redis.call('SET', 'lockstile:t:{n' .. i .. '}', '1') redis.call('SET', 'other' .. i, 'v') end`, "0", fmt.Sprint(names))
	if got := len(mustList(t, n, "n")); got != names {
		t.Errorf("%d names listed, want %d", got, names)
	}
}

// A server that has restarted knows no scripts: a batch is one round trip all the same.
func TestListNeedsNoScriptThatTheServerKnows(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	hook := &redishook.Tenant{}
	n.rdb.(*redis.Client).AddHook(hook)
	for i := range 20 {
		mustGrant(t, n, newAttempt(t, fmt.Sprint(i)))
	}
	srv.Do("SCRIPT", "FLUSH")
	before := hook.Count("evalsha")
	if got := len(mustList(t, n, "")); got != 20 {
		t.Errorf("%d names listed", got)
	}
	if n := hook.Count("evalsha") - before; n != 0 {
		t.Errorf("%d scripts were named that the server does not know", n)
	}
}

func TestListAsksEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	n := c.node(t, 0)
	for _, name := range oddNames {
		mustGrant(t, n, newAttempt(t, name))
	}
	want := slices.Sorted(slices.Values(oddNames))
	if got := mustList(t, n, ""); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	c.failOver()
	if got := mustList(t, n, ""); !slices.Equal(got, want) {
		t.Errorf("after a failover: %q, want %q", got, want)
	}
	c.masters[1].Kill()
	if got, err := n.List(background(t), ""); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("with a master down: %d names, %v", len(got), err)
	}
}

// The keys that the server has are not those that we name: to find none would be a lie.
func TestListIsRefusedWhereAHookRewritesKeys(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	n.rdb.(*redis.Client).AddHook(&redishook.Tenant{Prefix: "tenant:"})
	mustGrant(t, n, newAttempt(t, "a"))
	if _, err := n.List(background(t), ""); err == nil || !strings.Contains(err.Error(), "set Options.Prefix in place of the hook") {
		t.Errorf("%v", err)
	}
}
