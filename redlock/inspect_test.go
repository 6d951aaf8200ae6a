package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

func TestInspectSaysWhatAMajoritySays(t *testing.T) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithHolder("me"))
	for _, s := range servers { // one that was late may have drawn a token of its own
		s.Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d %s %d me", lock.Token()+redisnode.Tokens-1, s.Do("GET", "a"), lock.Token()))
	}
	want := func(what string, held bool) {
		t.Helper()
		info, err := l.Inspect(patience(t), "a")
		if err != nil || info.Held != held || info.Name != "a" || info.Token != lock.Token() {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		if held && (info.Holder != "me" || info.TimeLeft <= 0 || info.TimeLeft > locker.DefaultTTL) {
			t.Errorf("%s: %+v", what, info)
		}
	}
	want("held on five nodes", true)
	servers[0].Do("DEL", "a")
	servers[1].Do("SET", "a", "somebody", "PX", "60000")
	want("held on three nodes", true)
	servers[2].Do("DEL", "a")
	want("held on two nodes", false)
	servers[3].Kill()
	servers[4].Kill()
	want("two nodes down", false)
	servers[2].Kill()
	var q *redlock.QuorumError
	if _, err := l.Inspect(patience(t), "a"); !errors.Is(err, locker.ErrUnavailable) || !errors.As(err, &q) {
		t.Errorf("three nodes down: %v", err)
	}
}

// Whatever is asked of a name, it is asked of the key that the lock has.
func TestPrefixGoesBeforeNamesThatAreInspectedOrBroken(t *testing.T) {
	servers := startNodes(t, 3)
	opts := patient
	opts.Prefix = "app:"
	l := newLocker(t, servers, opts)
	lock := mustLock(t, l, "a", locker.WithoutRenewal())
	if info, err := l.Inspect(patience(t), "a"); err != nil || !info.Held || info.Name != "a" || info.Token < lock.Token() {
		t.Errorf("%+v, %v", info, err)
	}
	if broken, err := l.Break(patience(t), "a"); err != nil || !broken {
		t.Errorf("broken: %v, %v", broken, err)
	}
}

func TestBreakFreesTheLockOnAllNodesAndTheHolderLearnsOfIt(t *testing.T) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithoutRenewal())
	servers[4].Kill()
	if broken, err := l.Break(patience(t), "a"); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
	free(t, "a", servers[:4]...)
	var lost *locker.LostError
	if err := lock.Renew(patience(t)); !errors.As(err, &lost) || lost.Reason != locker.ReasonForced {
		t.Errorf("the holder is told: %v", err)
	}
	if broken, err := l.Break(patience(t), "a"); err != nil || broken {
		t.Errorf("nobody has it: %v, %v", broken, err)
	}
}

// What every client that follows the Redlock page does: SET NX PX with a random
// value, and a script that deletes the key if the value is still there.
func TestOtherRedlockClientsExcludeUsAndWeThem(t *testing.T) {
	servers := startNodes(t, 3)
	l := newLocker(t, servers, patient)
	for _, s := range servers[1:] {
		if s.Do("SET", "a", "theirs", "NX", "PX", "60000") != "OK" {
			t.Fatal("not set")
		}
	}
	if _, err := l.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("they hold it: %v", err)
	}
	// The majority that refused may have been faster than the node that granted.
	eventually(t, "nothing is left to do", func() bool { return redlock.UnderWay(l) == 0 })
	free(t, "a", servers[0])
	for _, s := range servers[1:] {
		if s.Do("GET", "a") != "theirs" {
			t.Error("their lock was touched")
		}
		s.Do("EVAL", "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end", "1", "a", "theirs")
	}
	lock := mustLockOn(t, l, servers)
	for _, s := range servers {
		if got := s.Do("SET", "a", "theirs", "NX", "PX", "60000"); got != "" {
			t.Error("they got a lock that we hold")
		}
		if len(s.Do("GET", "a")) != 27 || s.Do("PTTL", "a") == "-1" { // 20 bytes in base64
			t.Errorf("value %q, time left %s", s.Do("GET", "a"), s.Do("PTTL", "a"))
		}
	}
	mustUnlock(t, lock)
	free(t, "a", servers...)
}

// slow delays every command before it is sent.
type slow struct {
	passive
	by time.Duration
}

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(s.by)
		return next(ctx, cmd)
	}
}

// Interleaving: a holder's lock is broken on three nodes, and Break returns. Its requests to the others
// have not been sent yet. Somebody else locks the name on all five, and then they are sent. They must
// not take the lock from its next holder, whom nobody wanted to break: the nodes that are left would be too few
// where another one fails, and a third process would hold the lock besides.
func TestBreakThatIsLateAtANodeLeavesTheNextHolder(t *testing.T) {
	for range 20 {
		if breakIsLate(t) {
			return
		}
	}
	t.Error("each time the requests were given up before they could be sent")
}

// breakIsLate reports whether the requests were sent.
func breakIsLate(t *testing.T) bool {
	t.Helper()
	servers := startNodes(t, 5)
	a, c := newLocker(t, servers, patient), newLocker(t, servers, patient)
	b, send, late := behindGate(t, servers, 3, 4)
	held := mustLockOn(t, a, servers, locker.WithTTL(time.Minute))
	if broken, err := b.Break(patience(t), "a"); err != nil || !broken {
		t.Fatalf("Break: %v, %v", broken, err)
	}
	if err := held.Unlock(patience(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of the lock that was broken: %v", err)
	}
	next := mustLockOn(t, c, servers, locker.WithTTL(time.Minute))
	send()
	eventually(t, "the late requests are over", func() bool { return redlock.UnderWay(b) == 0 })
	for i, s := range servers {
		if s.Do("EXISTS", "a") != "1" {
			t.Errorf("node %d has lost the next holder's lock", i)
		}
	}
	mustUnlock(t, next)
	return late.Load()
}

// Interleaving: a lock is granted by three nodes of five, and the requests to the others are still under
// way. Somebody breaks it. Three nodes have answered: one had the lock, and the two others did not, for it
// had not got there yet. Then the holder's requests arrive on these two. Were Break to return now, the
// holder would have four nodes, and its next renewal would succeed. The same with another reader, of whom all
// nodes have something to break.
func TestBreakWaitsUntilTheHolderCanHaveNoMajority(t *testing.T) {
	for _, shared := range []bool{false, true} {
		played := false
		for range 20 {
			if played = grantIsLate(t, shared); played {
				break
			}
		}
		if !played {
			t.Error("each time the requests were given up before they could be sent")
		}
	}
}

// grantIsLate reports whether the requests were sent.
func grantIsLate(t *testing.T, shared bool) bool {
	t.Helper()
	opts := []locker.Option{locker.WithTTL(time.Minute), locker.WithoutRenewal()}
	servers := startNodes(t, 5)
	a, grant, granted := behindGate(t, servers, 3, 4)
	b, send, sent := behindGate(t, servers, 1, 2)
	defer send()
	defer grant()
	if shared {
		opts = append(opts, locker.WithShared())
		mustLockOn(t, newLocker(t, servers, patient), servers, opts...)
	}
	held := mustLock(t, a, "a", opts...)
	broken := make(chan error, 1)
	go func() {
		ok, err := b.Break(patience(t), "a")
		if err == nil && !ok {
			err = errors.New("it broke nothing")
		}
		broken <- err
	}()
	eventually(t, "three nodes have answered", func() bool {
		return !slices.ContainsFunc([]int{0, 3, 4}, func(i int) bool { return servers[i].Do("EXISTS", "a") == "1" }) && redlock.UnderWay(b) == 2
	})
	grant()
	eventually(t, "the late requests are over", func() bool { return redlock.UnderWay(a) == 0 })
	select {
	case err := <-broken:
		broken <- err
	case <-time.After(100 * time.Millisecond): // as it should be; a machine on which this is too short finds nothing
		send()
	}
	if err := <-broken; err != nil {
		t.Fatalf("Break: %v", err)
	}
	if !granted.Load() {
		return false
	}
	if err := held.Renew(patience(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew after Break had returned: %v", err)
	}
	return sent.Load()
}

// Interleaving: as before, but the node of the three that answers first has forgotten the lock. So no node that has
// answered had anything, and Break would say so at once. The others of the three have not got its request yet.
func TestBreakThatFindsNothingHearsAllNodes(t *testing.T) {
	servers := startNodes(t, 5)
	a, grant, _ := behindGate(t, servers, 3, 4)
	b, send, _ := behindGate(t, servers, 1, 2)
	defer send()
	defer grant()
	held := mustLock(t, a, "a", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	servers[0].Do("DEL", "a")
	time.AfterFunc(100*time.Millisecond, send)
	if ok, err := b.Break(patience(t), "a"); !ok || err != nil {
		t.Errorf("Break: %v, %v", ok, err)
	}
	grant()
	eventually(t, "the late requests are over", func() bool { return redlock.UnderWay(a) == 0 })
	if err := held.Renew(patience(t)); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Renew after Break had returned: %v", err)
	}
}

// Interleaving: two readers' requests cross, so that on nodes 3 and 4 each has the number that the other one has on nodes
// 0 to 2. Some of these go down. Who has the number that is to be broken, the others cannot say.
func TestBreakHolderTakesNobodyElse(t *testing.T) {
	for down := range 3 {
		servers := startNodes(t, 5)
		ahead := fmt.Sprint(time.Now().Add(time.Minute).UnixMicro()) // of all clocks, so nodes number one by one
		for _, s := range servers {
			s.Do("SET", "lockstile:t:{a}", ahead, "PX", "3600000")
		}
		opts := []locker.Option{locker.WithShared(), locker.WithTTL(time.Minute), locker.WithoutRenewal()}
		one, openOne, _ := behindGate(t, servers, 3, 4)
		two, openTwo, _ := behindGate(t, servers, 3, 4)
		first, second := mustLock(t, one, "a", append(opts, locker.WithHolder("1"))...), mustLock(t, two, "a", append(opts, locker.WithHolder("2"))...)
		numbers := map[string]locker.Number{"1": locker.Number(first.SharedToken()), "2": locker.Number(second.SharedToken())}
		openTwo()
		eventually(t, "the second is there", func() bool { return redlock.UnderWay(two) == 0 })
		openOne()
		eventually(t, "the first is there", func() bool { return redlock.UnderWay(one) == 0 })
		for _, s := range servers[:down] {
			s.Kill()
		}
		l := newLocker(t, servers, patient)
		for _, held := range []*locker.Lock{first, second} {
			info, err := l.Inspect(patience(t), "a")
			for _, h := range info.Holders {
				if h.Number != numbers[h.Text] && (down == 0 || h.Number != 0) {
					t.Errorf("%d nodes are down, and with the numbers %v it is shown as %+v, %v", down, numbers, info, err)
				}
			}
			ok, err := l.BreakHolder(patience(t), "a", locker.Number(held.SharedToken()))
			if gone := errors.Is(held.Renew(patience(t)), locker.ErrLost); ok != gone || ok != (err == nil) || err != nil && !errors.Is(err, locker.ErrUnavailable) || down == 0 && !ok {
				t.Errorf("%d nodes are down: BreakHolder: %v, %v; the holder has lost it: %v", down, ok, err, gone)
			}
			if held == first {
				if err := second.Renew(patience(t)); err != nil {
					t.Errorf("%d nodes are down: the other reader has lost it: %v", down, err)
				}
			}
		}
	}
}

// A holder has three nodes of five, of which one is away.
func TestBreakHolderDoesNotKnowWhereANodeThatIsAwayDecides(t *testing.T) {
	servers := startNodes(t, 5)
	a, grant, _ := behindGate(t, servers, 3, 4)
	defer grant()
	held := mustLock(t, a, "a", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	servers[0].Kill()
	l := newLocker(t, servers, patient)
	if ok, err := l.BreakHolder(patience(t), "a", locker.Number(held.Token())); ok || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("BreakHolder: %v, %v", ok, err)
	}
	if ok, err := l.BreakHolder(patience(t), "a", locker.Number(held.Token()+1)); ok || err != nil {
		t.Errorf("BreakHolder of a number that nobody has: %v, %v", ok, err)
	}
}

// behindGate returns a Locker whose requests to some nodes are held back until open is called, and whether any of them
// was wanted then.
func behindGate(t *testing.T, servers []*testserver.RedisServer, nodes ...int) (l *redlock.Locker, open func(), passed *atomic.Bool) {
	t.Helper()
	clients, opens := clientsOf(servers), make(chan struct{})
	passed = new(atomic.Bool)
	for _, i := range nodes {
		clients[i].AddHook(gate{opens: opens, passed: passed})
	}
	return newLockerOn(t, clients, patient), sync.OnceFunc(func() { close(opens) }), passed
}

// gate holds back what is sent until it opens, and notes whether somebody still wanted an answer then.
type gate struct {
	passive
	opens  <-chan struct{}
	passed *atomic.Bool
}

func (g gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-g.opens
		if ctx.Err() == nil {
			g.passed.Store(true)
		}
		return next(ctx, cmd)
	}
}

// A thousand names at once have four connections to each node, where a request takes 20
// ms: five seconds for all of them. An attempt's requests are sent at about the same time,
// so its lease of two seconds is long enough. Where each waited for each node by itself,
// most would have some nodes early and the others late, and no majority in time. A stall
// of the machine costs the few attempts that are under way.
func TestAttemptsOfManyNamesDoNotKeepOneAnotherFromAMajority(t *testing.T) {
	t.Parallel()
	clients := clientsOf(startNodes(t, 3))
	for i, c := range clients {
		opts := *c.(*redis.Client).Options()
		opts.PoolSize = 4
		clients[i] = redis.NewClient(&opts)
		clients[i].AddHook(slow{by: 20 * time.Millisecond})
	}
	l := newLockerOn(t, clients, patient)
	var all sync.WaitGroup
	var failed atomic.Int32
	for i := range 1000 {
		all.Go(func() {
			if _, err := l.Lock(t.Context(), fmt.Sprint(i), locker.WithTTL(2*time.Second), locker.WithoutRenewal()); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 100 {
		t.Errorf("%d of 1000 attempts had no majority in time", n)
	}
}

// A holder with a bare majority: the waiter gets the other nodes whenever it
// asks, and must not ask all the time.
func TestWaiterDoesNotPollForAMinority(t *testing.T) {
	servers := startNodes(t, 3)
	for _, s := range servers[1:] {
		s.Do("SET", "a", "somebody", "PX", "5000")
	}
	l := newLocker(t, servers, patient)
	servers[1].Do("CONFIG", "RESETSTAT")
	mustUnlock(t, mustLock(t, l, "a"))
	if n := calls(servers[1], "evalsha") + calls(servers[1], "eval"); n > 150 { // a stranger's is looked at ten times a second, in two requests
		t.Errorf("%d requests for a lock that was taken for 5 s", n)
	}
}

func TestGuaranteesFollowTheOptions(t *testing.T) {
	servers := startNodes(t, 5)
	g := newLocker(t, servers, redlock.Options{}).Guarantees()
	if g.Exclusion != locker.PromptHolder|locker.SteadyClocks || g.Tokens != locker.ForwardClock || g.ServerFailures != 2 || g.FreedBy != locker.FreedByExpiry {
		t.Errorf("%+v", g)
	}
	if g := newLocker(t, servers, patient).Guarantees(); !g.Exclusion.Has(locker.DurableServer) || g.Tokens != locker.DurableServer|locker.ForwardClock {
		t.Errorf("with the rule off: %+v", g)
	}
	if g := newLocker(t, servers[:4], patient).Guarantees(); g.ServerFailures != 1 {
		t.Errorf("four nodes tolerate %d failures", g.ServerFailures)
	}
	if err := locker.Require(newLocker(t, servers, redlock.Options{}), locker.Correctness); err != nil {
		t.Error(err)
	}
}

func Example() {
	var nodes []redis.UniversalClient
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	l, err := redlock.New(nodes, redlock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	fmt.Println(l.Guarantees().ServerFailures)
	// Output: 1
}

// A node that hangs is waited for only if its answer could matter.
func TestInspectAndBreakDoNotWaitForANodeThatHangs(t *testing.T) {
	servers := startNodes(t, 5)
	l := newLocker(t, servers, patient)
	lock := mustLockOn(t, l, servers, locker.WithoutRenewal())
	servers[0].Pause()
	start := time.Now()
	for range 5 { // where tokens differ, it is waited for a second
		if info, err := l.Inspect(patience(t), "a"); err != nil || !info.Held {
			t.Errorf("%+v, %v", info, err)
		}
	}
	asked := time.Now()
	if broken, err := l.Break(patience(t), "a"); err != nil || !broken {
		t.Errorf("%v, %v", broken, err)
	}
	for range 20 { // a node that was too late to count may have drawn a greater token
		if info, err := l.Inspect(patience(t), "a"); err != nil || info.Held || info.Token < lock.Token() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %v: the node that hangs was waited for", d)
	}
	servers[0].Resume()
	if time.Since(asked) > time.Second/2 { // Break gives up on a node after a second
		eventually(t, "a second Break reaches all nodes", func() bool {
			_, _ = l.Break(patience(t), "a") // a node that has just woken may yet be too late
			return servers[0].Do("EXISTS", "a") == "0"
		})
	}
	free(t, "a", servers...)
}

// Three answers are a majority, and here they do not say that a majority holds
// the lock.
func TestInspectWaitsForANodeWhoseAnswerDecides(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	var clients []redis.UniversalClient
	for i, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		if i == 0 {
			c.AddHook(slow{by: 300 * time.Millisecond})
		}
		clients = append(clients, c)
	}
	l := newLockerOn(t, clients, patient)
	mustLockOn(t, l, servers, locker.WithoutRenewal())
	for _, s := range servers[3:] {
		s.Do("DEL", "a")
	}
	if info, err := l.Inspect(patience(t), "a"); err != nil || !info.Held {
		t.Errorf("%+v, %v", info, err)
	}
}
