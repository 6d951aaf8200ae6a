package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/redlock"
)

var reading = locker.WithShared()

// number is a lock's token, or a reader's number: one counter draws both.
func number(lock *locker.Lock) uint64 {
	return max(uint64(lock.Token()), uint64(lock.SharedToken()))
}

// Of five nodes a reader reaches three and a writer three. They have one in common, which
// would have to grant both.
func TestReaderAndWriterMeetInOneNode(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	one := reaching(t, servers, patient, 0, 1, 2)
	for common := range 3 {
		other := reaching(t, servers, patient, common, 3, 4)
		for name, kinds := range map[string][2][]locker.Option{
			"a reader, then a writer": {{reading}, nil},
			"a writer, then a reader": {nil, {reading}},
		} {
			held := mustLock(t, one, "a", kinds[0]...)
			if lock, err := other.TryLock(patience(t), "a", kinds[1]...); err == nil {
				t.Errorf("%s: both hold it, with numbers %d and %d, though both need node %d", name, number(held), number(lock), common)
			}
			mustUnlock(t, held)
			free(t, "a", servers...)
			next := mustLock(t, other, "a", kinds[1]...)
			if number(next) <= number(held) {
				t.Errorf("%s: number %d after %d", name, number(next), number(held))
			}
			mustUnlock(t, next)
			free(t, "a", servers...)
		}
		first, second := mustLock(t, one, "a", reading), mustLock(t, other, "a", reading)
		mustUnlock(t, first)
		mustRenew(t, second)
		mustUnlock(t, second)
		free(t, "a", servers...)
	}
}

// Counters run ahead of every clock, differently on each node, and each lock has another
// majority: one counter numbers readers and writers, and what it has drawn is on a majority
// before Lock returns.
func TestNumbersOfReadersAndWritersIncreaseOnAnyMajority(t *testing.T) {
	t.Parallel()
	const ahead = 4000000000000000 // the year 2096
	servers := startNodes(t, 5)
	var lockers []*redlock.Locker
	for i := range servers { // with each node missing, and with each two neighbours missing
		lockers = append(lockers, reaching(t, servers, patient, i, (i+1)%5, (i+2)%5), reaching(t, servers, patient, i, (i+1)%5, (i+3)%5))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	last := uint64(0)
	for range 20 {
		base := max(last, ahead)
		for _, i := range rnd.Perm(5)[:2] { // a minority: what a grant without a majority may have left
			servers[i].Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v h", base+rnd.Uint64N(5)))
		}
		var held []*locker.Lock
		opts, n := []locker.Option(nil), 1
		if rnd.IntN(2) == 0 {
			opts, n = []locker.Option{reading}, 3
		}
		for i := range n {
			lock := mustLock(t, lockers[rnd.IntN(len(lockers))], "a", append(opts, locker.WithHolder(fmt.Sprint(i)))...) // with a lease of its own
			if number(lock) <= last {
				t.Errorf("number %d after %d; reader: %v", number(lock), last, opts != nil)
			}
			last = number(lock)
			agree := 0
			for _, s := range servers {
				if counter(s) >= last {
					agree++
				}
			}
			if agree < 3 {
				t.Errorf("number %d is on %d nodes only", last, agree)
			}
			held = append(held, lock)
		}
		for _, lock := range held {
			mustUnlock(t, lock)
		}
		free(t, "a", servers...)
	}
}

// counter is the last number that a node has drawn.
func counter(s *testserver.RedisServer) (n uint64) {
	_, _ = fmt.Sscan(s.Do("GET", "lockstile:t:{a}"), &n)
	return n
}

// Two readers have node 0 in common, which numbers the second one first. The greatest number
// of each is another node's, and the same. Node 0 gives the one that comes last another.
//
//	node 0   n+1 second   n+2 first
//	node 1   n+3 second
//	node 2                n+3 first
func TestReadersWhoseRequestsCrossHaveNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	const n = 4000000000000000 // the year 2096
	servers := startNodes(t, 3)
	for i, last := range []int64{n, n + 2, n + 2} {
		servers[i].Do("SET", "lockstile:t:{a}", fmt.Sprintf("%d v 1 h", last))
	}
	one, two, all := reaching(t, servers, patient, 0, 2), clientsOf(servers), newLocker(t, servers, patient)
	two[2] = redis.NewClient(&redis.Options{Addr: nowhere(2)})
	var first *locker.Lock
	two[0].AddHook(&onScript{act: func(n int32) {
		if n == 1 {
			first = mustLock(t, one, "a", reading, locker.WithHolder("first"))
		}
	}})
	second := mustLock(t, newLockerOn(t, two, patient), "a", reading, locker.WithHolder("second"))
	if first.SharedToken() != n+3 || second.SharedToken() != n+4 {
		t.Fatalf("the first has number %d, the second %d", first.SharedToken()-n, second.SharedToken()-n)
	}
	if counter(servers[0]) != n+4 || counter(servers[1]) != n+4 {
		t.Errorf("the counters are at %d and %d", counter(servers[0])-n, counter(servers[1])-n)
	}
	holders := func() (text string) {
		info, err := all.Inspect(patience(t), "a")
		if err != nil || info.Kind != locker.KindShared || info.Held != (len(info.Holders) > 0) {
			t.Errorf("%+v, %v", info, err)
		}
		for _, h := range info.Holders {
			text += fmt.Sprintf("%s %d, ", h.Text, h.Number-n)
		}
		return text
	}
	for range 10 { // answers come in another order each time
		if got := holders(); got != "first 3, second 4, " {
			t.Errorf("Inspect shows %s", got)
		}
	}
	if ok, err := all.BreakHolder(patience(t), "a", locker.Number(n+2)); ok || err != nil { // node 0 has drawn it for the first
		t.Errorf("Break of a number that nobody has: %v, %v", ok, err)
	}
	if ok, err := all.BreakHolder(patience(t), "a", locker.Number(n+3)); !ok || err != nil || holders() != "second 4, " {
		t.Errorf("Break of the first: %v, %v; left: %s", ok, err, holders())
	}
	eventually(t, "the first is told", func() bool { // node 2 may be broken after the others
		var lost *locker.LostError
		return errors.As(first.Renew(patience(t)), &lost) && lost.Reason == locker.ReasonForced
	})
	mustRenew(t, second)
	mustUnlock(t, second)
	free(t, "a", servers...)
}

// Two readers have two majorities, with one node in common. The writer has some nodes as
// soon as one of them leaves, and all when both have.
func TestWriterWaitsForReadersOfDifferentMajorities(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	one, two := reaching(t, servers, patient, 0, 1, 2), reaching(t, servers, patient, 2, 3, 4)
	first := mustLock(t, one, "a", reading, locker.WithTTL(time.Minute))
	second := mustLock(t, two, "a", reading, locker.WithTTL(time.Minute))
	served := queueUp(t, []*redlock.Locker{newLocker(t, servers, patient)}, servers)
	mustUnlock(t, first)
	mustRenew(t, second)
	if _, err := one.TryLock(patience(t), "a", reading); err == nil {
		t.Error("a reader was let in before a writer that waits")
	}
	select {
	case <-served:
		t.Error("a writer was served beside a reader")
	default:
	}
	mustUnlock(t, second)
	select {
	case <-served:
	case <-time.After(25 * time.Second): // the leases have a minute
		t.Error("the writer was not woken by the last reader")
	}
	free(t, "a", servers...)
}

// Two of five nodes are free, for a reader has left, and three have another reader, who
// stays. Those who wait can have the two whenever they ask, and must not ask all the time.
func TestWaitersDoNotPollForTheNodesOfAReaderThatHasLeft(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	goes := mustLock(t, reaching(t, servers, patient, 0, 1, 2), "a", reading)
	stays := mustLock(t, reaching(t, servers, patient, 2, 3, 4), "a", reading)
	var lockers []*redlock.Locker
	for range 4 {
		lockers = append(lockers, newLocker(t, servers, patient))
	}
	all := queueKinds(t, lockers, servers, nil, []locker.Option{reading}, []locker.Option{reading}, nil)
	mustUnlock(t, goes)
	servers[0].Do("CONFIG", "RESETSTAT")
	servers[4].Do("CONFIG", "RESETSTAT")
	time.Sleep(5 * time.Second)
	for _, i := range []int{0, 4} {
		n := calls(servers[i], "evalsha") + calls(servers[i], "eval")
		t.Logf("%d requests to node %d", n, i)
		if n > 250 { // each looks once a second, in a few requests, and more often at first
			t.Errorf("%d requests to node %d in 5 s, by 4 who wait", n, i)
		}
	}
	mustUnlock(t, stays)
	all.Wait()
	free(t, "a", servers...)
}

// queueKinds has lockers wait, one after another, as readers or writers.
func queueKinds(t *testing.T, lockers []*redlock.Locker, servers []*testserver.RedisServer, opts ...[]locker.Option) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for i, l := range lockers {
		all.Go(func() {
			lock, err := l.Lock(patience(t), "a", opts[i]...)
			if err != nil {
				t.Error(err)
				return
			}
			mustUnlock(t, lock)
		})
		for _, s := range servers {
			eventually(t, "waiter is in the queue", func() bool { return s.Do("ZCARD", "lockstile:q:{a}") == fmt.Sprint(i+1) })
		}
	}
	return &all
}

// Each of three nodes has another waiter at the front of its queue, of which one or two are
// writers. If each kept what it gets, all would wait for a lease to end.
func TestSplitVoteBetweenReadersAndWritersIsResolved(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][][]locker.Option{
		"a writer and two readers": {nil, {reading}, {reading}},
		"two writers and a reader": {{reading}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := startNodes(t, 3)
			held := mustLockOn(t, newLocker(t, servers, patient), servers)
			var lockers []*redlock.Locker
			for range servers {
				lockers = append(lockers, newLocker(t, servers, patient))
			}
			all := queueKinds(t, lockers, servers, kinds...)
			for i, s := range servers { // another waiter at the front of each
				members := strings.Fields(s.Do("ZRANGE", "lockstile:q:{a}", "0", "-1"))
				s.Do("ZADD", "lockstile:q:{a}", "1", members[(i+1)%len(members)])
			}
			mustUnlock(t, held)
			began := time.Now()
			all.Wait()
			if took := time.Since(began); took > 20*time.Second { // a lease is half a minute
				t.Errorf("it took %v: each of them has kept what it had", took)
			}
			free(t, "a", servers...)
		})
	}
}

// Readers and writers of many processes, while nodes hang, forget and come back: nobody is
// beside a writer, and a guard with two marks refuses nobody.
func TestCrowdOfReadersAndWritersWhileNodesHangAndForget(t *testing.T) {
	whileNodesHangAndForget(t, readAndWrite)
}

func readAndWrite(t *testing.T, lockers []*redlock.Locker) {
	t.Helper()
	const goroutines, rounds = 16, 4
	var readers, writers atomic.Int32
	var guard fencing.Memory
	one := func(l *redlock.Locker, write bool) error {
		var opts []locker.Option
		if !write {
			opts = append(opts, reading)
		}
		lock, err := l.Lock(patience(t), "a", opts...)
		if err != nil {
			return err
		}
		defer mustUnlock(t, lock)
		if !write {
			readers.Add(1)
			defer readers.Add(-1)
			if writers.Load() != 0 {
				return errors.New("a reader beside a writer")
			}
			return guard.CheckShared(t.Context(), "r", lock.SharedToken())
		}
		defer writers.Add(-1)
		if writers.Add(1) != 1 || readers.Load() != 0 {
			return errors.New("a writer beside somebody")
		}
		return guard.Check(t.Context(), "r", lock.Token())
	}
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for k := range rounds {
				if err := one(lockers[i%len(lockers)], (i+k)%4 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// Readers of one process with different options have leases of their own. What a later one
// does must not touch an earlier one's, nor the other way round.
func TestLaterReaderOfAProcessDoesNotDisturbAnEarlierOne(t *testing.T) {
	t.Parallel()
	servers := startNodes(t, 5)
	l, other := newLocker(t, servers, patient), newLocker(t, servers, patient)
	var held []*locker.Lock
	for i := range 4 {
		held = append(held, mustLock(t, l, "a", reading, locker.WithoutRenewal(), locker.WithTTL(time.Minute), locker.WithHolder(fmt.Sprint(i))))
	}
	for i := range held {
		if i > 0 && held[i].SharedToken() <= held[i-1].SharedToken() {
			t.Errorf("number %d after %d", held[i].SharedToken(), held[i-1].SharedToken())
		}
	}
	for _, i := range []int{2, 0, 3} { // the last to go is one in the middle
		mustUnlock(t, held[i])
		if _, err := other.TryLock(patience(t), "a"); err == nil {
			t.Fatal("a writer was granted beside readers")
		}
		for k, lock := range held {
			if lock.Err() == nil {
				mustRenew(t, lock)
			} else if k == 1 {
				t.Errorf("reader %d was lost: %v", k, lock.Err())
			}
		}
	}
	mustUnlock(t, held[1])
	free(t, "a", servers...)
	mustUnlock(t, mustLock(t, other, "a"))
}

// A node that was restarted may have forgotten a writer: it has no vote for readers either.
func TestNodeThatIsTooYoungHasNoVoteForReaders(t *testing.T) {
	t.Parallel()
	servers := startYoung(t, 2, "3600000")
	l := newLocker(t, servers, redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: time.Hour})
	try := func(ctx context.Context, name string, _ ...locker.Option) (*locker.Lock, error) {
		return l.TryLock(ctx, name, reading)
	}
	noVotes(t, patience(t), try, locker.ErrUnavailable)
	for _, s := range servers {
		free(t, "a", s)
	}
}

// The classic double grant, by a reader: a writer on A, B and C; C is restarted empty; a
// reader gets C, D and E. And the other way round.
func TestWithTheRestartRuleReadersAndWritersExcludeEachOther(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for name, kinds := range map[string][2][]locker.Option{
		"a reader, then a writer": {{reading}, nil},
		"a writer, then a reader": {nil, {reading}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := startNodes(t, 5)
			opts := redlock.Options{NodeTimeout: 20 * time.Second, MaxTTL: ttl}
			one, other := reaching(t, servers, opts, 0, 1, 2), reaching(t, servers, opts, 2, 3, 4)
			for _, l := range []*redlock.Locker{one, other} { // all nodes have their votes
				mustUnlock(t, mustLock(t, l, "b", locker.WithTTL(ttl)))
			}
			first := mustLock(t, one, "a", append(slices.Clone(kinds[0]), locker.WithTTL(ttl), locker.WithoutRenewal())...)
			forget(servers[2])
			second := mustLock(t, other, "a", append(slices.Clone(kinds[1]), locker.WithTTL(ttl))...)
			if first.Err() == nil {
				t.Error("both believe")
			}
			if number(second) <= number(first) {
				t.Errorf("number %d after %d", number(second), number(first))
			}
		})
	}
}
