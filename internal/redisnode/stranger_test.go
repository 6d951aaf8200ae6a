package redisnode

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// afterScript acts once when the server has carried out a script, whose reply it then
// loses.
type afterScript struct {
	redis.Hook
	text bool // only one that is sent as text
	keep bool // its reply is not lost
	act  func()
}

func (*afterScript) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *afterScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if act := h.act; act != nil && err == nil && strings.HasPrefix(cmd.Name(), "eval") && (!h.text || cmd.Name() == "eval") {
			h.act = nil
			act()
			if h.keep {
				return nil
			}
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

func (*afterScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The node grants, and its password is changed and all connections are closed
// before the reply is there. Sent again, the request is refused: we are strangers
// now, and were none when it was sent for the first time. What it has left there
// must not be taken for nothing.
func TestGrantWhoseReplyWasLostWithThePasswordIsNotTakenForNone(t *testing.T) {
	for answered, first := range map[string]func(*testing.T, *Node){
		"a request for a lock": func(t *testing.T, n *Node) { mustGrant(t, n, newAttempt(t, "warm")) },
		"which server it is": func(t *testing.T, n *Node) {
			if _, err := n.Run(background(t)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(answered, func(t *testing.T) { losesItsPassword(t, first) })
	}
}

func losesItsPassword(t *testing.T, first func(*testing.T, *Node)) {
	srv := testserver.Redis(t)
	srv.Do("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
	admin := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "admin", Password: "admin"})
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	n := NewOfQuorum(rdb, 0)
	t.Cleanup(func() {
		n.mail.Close()
		_ = rdb.Close()
		_ = admin.Close()
	})
	do := func(args ...any) any {
		t.Helper()
		reply, err := admin.Do(background(t), args...).Result()
		if err != nil {
			t.Error(err)
		}
		return reply
	}
	first(t, n)
	rdb.AddHook(&afterScript{act: func() {
		do("CONFIG", "SET", "requirepass", "another")
		do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}})
	a := newAttempt(t, "a")
	_, err := n.Acquire(background(t), a, Ask{})
	if !isStranger(err) {
		t.Fatalf("the scenario does not show what it should: %v", err)
	}
	if do("EXISTS", "a") != int64(1) {
		t.Fatal("the scenario does not show what it should: nothing was granted")
	}
	if !a.Unsure() {
		t.Error("a lock is left behind, and the attempt says that there is none")
	}
}

// What somebody else keeps under the name may be long, or a secret: to free the name
// must not make a key's name of it, which every MONITOR and slow log shows.
func TestBreakingAStrangersKeyDoesNotCopyItsValue(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	keys, err := NewKeys("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{strings.Repeat("secret", 1000), "#secret", "7#secret"} { // the last look like a reader's, and a slot's
		srv.Do("SET", "a", secret, "PX", "60000")
		if broken, err := n.Break(background(t), keys, Numbered(0)); err != nil || !broken {
			t.Errorf("%v, %v", broken, err)
		}
		if left := srv.Do("KEYS", "*"); strings.Contains(left, "secret") || srv.Do("EXISTS", "a") != "0" {
			t.Errorf("left behind: %.200s", left)
		}
	}
}

// The answer to a Break is lost, so it is sent again, when the next holder has the
// lock already, or nobody. It breaks the first holder and says so.
func TestBreakWhoseAnswerIsLostBreaksOneHolder(t *testing.T) {
	for name, value := range map[string]string{"ours": "", "a stranger's": "a stranger's"} {
		for _, served := range []bool{false, true} {
			srv := testserver.Redis(t)
			n, _ := client(t, srv.Addr())
			a, next := newAttempt(t, "a"), newAttempt(t, "a")
			if mustGrant(t, n, a); value != "" {
				srv.Do("SET", "a", value, "PX", "60000")
			}
			if _, err := n.Look(background(t), a.Keys); err != nil { // its script is known
				t.Fatal(err)
			}
			n.rdb.(*redis.Client).AddHook(&afterScript{text: true, act: func() {
				if served {
					srv.Do("SET", "a", next.Value, "PX", "60000")
				}
			}})
			broken, err := n.Break(background(t), a.Keys, Numbered(0))
			if broken == (err != nil) || err != nil && (value == "" || !errors.Is(err, locker.ErrUnavailable)) {
				t.Errorf("%s: %v, %v", name, broken, err)
			}
			if served && srv.Do("GET", "a") != next.Value {
				t.Errorf("%s: the next holder was broken, too", name)
			}
		}
	}
}

// The lock changes hands between the look and its end: the next holder is looked at. A request that
// never arrived has broken nobody.
func TestBreakThatComesTooLateLooksAgain(t *testing.T) {
	never := []error{nil, io.EOF} // the look is answered
	for what, c := range map[string]struct {
		first, next string
		lost        []error
	}{
		"a stranger's changes hands":          {"a stranger's", "another's", nil},
		"ours changes hands, and it is lost":  {newAttempt(t, "a").Value, "another's", never},
		"a stranger's stays, and it is lost":  {"a stranger's", "a stranger's", never},
		"a stranger's changes hands for ours": {"a stranger's", newAttempt(t, "a").Value, nil},
	} {
		srv := testserver.Redis(t)
		n, _ := client(t, srv.Addr())
		a := newAttempt(t, "a")
		srv.Do("SET", "a", c.first, "PX", "60000")
		if _, err := n.Look(background(t), a.Keys); err != nil { // its script is known
			t.Fatal(err)
		}
		n.rdb.AddHook(&afterScript{keep: true, act: func() { srv.Do("SET", "a", c.next, "PX", "60000") }})
		n.rdb.AddHook(&losing{with: c.lost, unsent: true})
		if broken, err := n.Break(background(t), a.Keys, Numbered(0)); err != nil || !broken || srv.Do("EXISTS", "a") != "0" {
			t.Errorf("%s: %v, %v, and the key has %q", what, broken, err, srv.Do("GET", "a"))
		}
	}
}

// A withdrawal is sent again where its connection broke, and the first may arrive
// late: after the value was granted anew, if it is used again.
func TestWithdrawalThatWasSentTwiceLeavesAValueThatIsNotUsedAgain(t *testing.T) {
	srv := testserver.Redis(t)
	n, _ := client(t, srv.Addr())
	a := newAttempt(t, "a")
	mustGrant(t, n, a)
	n.rdb.(*redis.Client).AddHook(&afterScript{act: func() {}})
	if err := n.Withdraw(background(t), a); err != nil || !a.Unsure() {
		t.Errorf("error %v, unsure %v", err, a.Unsure())
	}
}
