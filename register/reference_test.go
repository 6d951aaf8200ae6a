package register_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstile/locker/register"
)

// What follows plays sequences of operations on the record and on stores that have the same rules in other words: scripts, functions of
// a database, a store in memory. All have to answer alike. There is one request at a time: what processes do at once, other tests try.

var (
	firstSequence = flag.Uint64("reference.seed", 1, "the first sequence that is played on stores")
	sequences     = flag.Int("reference.sequences", 0, "how many are; 0 is as many as take a minute, or with -short a second")
)

// game plays sequences on the record and on a store.
type game struct {
	store       string
	short, long int // how many sequences
	open        func(t *testing.T) (begin func(name string) *backend)
	bubble      bool          // the store has the clock of a bubble
	step        time.Duration // for how long the living are silent

	// quiet is for how long a waiter that is silent keeps its place, at least: then some stores take it for dead, and after [gone] all do.
	// Nothing is compared between: nobody promises for how long. With shared locks a writer that comes to the front has to look at once.
	quiet, quietShared time.Duration

	rules map[string]bool
	begin func(name string) *backend
	plays int
}

// gone is when a silent waiter has lost its place in every store.
const gone = register.ReferencePlace + 500*time.Millisecond

func games() []*game {
	all := []*game{
		{store: "lockertest", short: 250, long: 4000, open: inMemory, bubble: true, step: 900 * time.Millisecond, quiet: gone, quietShared: gone},
		// See package singlenode, Losing a lock.
		{store: "singlenode", short: 25, long: 400, open: onRedis, step: 300 * time.Millisecond,
			quiet: 4800 * time.Millisecond, quietShared: 400 * time.Millisecond},
		// See lockstile_wait in postgres/schema_queue.go.
		{store: "postgres", short: 12, long: 200, open: onPostgres, step: 900 * time.Millisecond,
			quiet: 9600 * time.Millisecond, quietShared: 9600 * time.Millisecond},
	}
	for _, g := range all {
		g.rules = make(map[string]bool)
		for _, d := range differences() {
			g.rules[d.rule] = strings.Contains(d.stores, g.store)
		}
	}
	return all
}

// difference is a rule in which stores differ from the record, and are said to. A [register.Reference] with the rule is as they are. Without
// it the example shows the difference.
type difference struct {
	rule, stores string
	file, says   string
	example      []op
}

func differences() []difference {
	const a, b, c, d, e = 0, 1, 2, 3, 4
	return []difference{
		// In the record the waiter whose turn it is takes the lock from the queue, until others have waited for it long enough. In stores it is
		// no waiter any more. All whose turn it is have the same half a second, which begins when somebody asks.
		{"reservations", "lockertest singlenode postgres", "docs/BACKENDS.md", "reserve the lock for half a second for the waiter whose turn it is",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {verb: release, who: a}}},
		// In the others it begins as soon as anybody looks. Who claims the lock too late is behind the next one then.
		{"reserved at once", "lockertest", "lockertest/server.go", "whatever became free is reserved for those who waited for it",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {ask, c, exclusive, ttl}, {verb: stop, who: b}, {verb: stop, who: c},
				{verb: release, who: a}, {verb: pass, d: 600 * time.Millisecond}, {ask, b, exclusive, ttl}}},
		// In the record, and in lockertest, it queues anew.
		{"places are kept", "singlenode postgres", "docs/BACKENDS.md", "it keeps its place if it asks again",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {ask, c, exclusive, ttl}, {verb: stop, who: b}, {verb: release, who: a},
				{verb: pass, d: 600 * time.Millisecond}, {ask, c, exclusive, ttl}, {ask, d, exclusive, ttl}, {ask, b, exclusive, ttl},
				{verb: release, who: c}, {ask, d, exclusive, ttl}}},
		{"a place lasts for the TTL", "lockertest", "lockertest/server.go", "A waiter asks three times in its TTL at least, which its place lasts for",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {verb: stop, who: b}, {verb: pass, d: ttl + 200*time.Millisecond}}},
		// The others remove a dead waiter when its turn would come, or somebody else asks.
		{"the dead count", "singlenode postgres", "locker.go", "waiters that the store knows of",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {verb: stop, who: b}, {verb: pass, d: long}}},
		// Clients of stores know themselves whether they have to ask again. The driver never asks again after an answer.
		{"a release is forgotten", "lockertest singlenode postgres", "docs/BACKENDS.md", "the second release finds nothing, and that is no loss",
			[]op{{ask, a, exclusive, ttl}, {verb: release, who: a}, {verb: release, who: a}}},
		// The driver never withdraws what is kept before its end.
		{"what is kept stays", "lockertest singlenode postgres", "internal/redisnode/lua/withdraw.lua", "A lock that is kept taken stays so",
			[]op{{ask, a, exclusive, ttl}, {verb: release, who: a, d: time.Second}, {verb: withdraw, who: a}}},
		{"a loss passes the lock on", "singlenode", "internal/redisnode/lua/why_lost.lua", "is passed on: its waiters do not know yet",
			[]op{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {ask, c, exclusive, ttl}, {verb: stop, who: a}, {verb: stop, who: b},
				{verb: stop, who: c}, {verb: breakAll}, {verb: pass, d: 600 * time.Millisecond}, {verb: renew, who: a},
				{verb: pass, d: 600 * time.Millisecond}, {try, d, exclusive, ttl}}},
		// In the others a slot is chosen when it is granted.
		{"slots are reserved", "postgres", "postgres/schema_queue.go", "lockstile_pass reserves the lock for the first waiters, one after another",
			[]op{{ask, a, 2, ttl}, {ask, b, 2, ttl}, {ask, c, 2, ttl}, {verb: release, who: b}, {verb: release, who: a}, {ask, c, 2, ttl}}},
		// Who claims the lock too late has it, and passes nothing on, unless another one has found the turn to be over.
		{"somebody has to notice", "postgres", "postgres/schema_queue.go", "the next in the queue is told to look again by then, so that somebody notices",
			[]op{{ask, a, 2, ttl}, {ask, b, 2, ttl}, {ask, c, 2, ttl}, {ask, d, 2, ttl}, {ask, e, 2, ttl}, {verb: stop, who: c}, {verb: stop, who: d},
				{verb: stop, who: e}, {verb: breakAll}, {verb: pass, d: 600 * time.Millisecond}, {ask, c, 2, ttl}, {ask, d, 2, ttl}}},
	}
}

// differed are sequences in which a store once differed, and was mended.
func differed() [][]op {
	const a, b, c = 0, 1, 2
	return [][]op{
		// In PostgreSQL a waiter that came back had its old place only when others had been let in.
		{{ask, a, exclusive, ttl}, {ask, b, exclusive, ttl}, {ask, c, exclusive, ttl}, {verb: release, who: a}, {ask, b, exclusive, ttl},
			{verb: stop, who: b}, {verb: stop, who: c}, {verb: pass, d: ttl + 200*time.Millisecond}, {ask, b, exclusive, ttl}},
	}
}

func TestStoresKeepTheRulesOfTheRecord(t *testing.T) {
	for _, g := range games() {
		t.Run(g.store, func(t *testing.T) {
			t.Parallel()
			g.begin = g.open(t)
			t.Run("rules_that_differ", g.differs)
			t.Run("sequences", g.agrees)
		})
	}
}

func (g *game) agrees(t *testing.T) {
	n, late := g.long, 0
	if testing.Short() {
		n = g.short
	}
	if *sequences > 0 {
		n = *sequences
	}
	for _, seq := range differed() {
		if res := g.play(t, seq); res.differ {
			t.Errorf("as once:\n%s", res.describe(seq))
		}
	}
	for s := *firstSequence; s < *firstSequence+uint64(n); s++ {
		seq := g.draw(s)
		switch res := g.play(t, seq); {
		case res.late:
			late++
		case res.differ:
			t.Fatalf("sequence %d (-reference.seed=%[1]d):\n%s", s, g.shortest(t, seq, res))
		}
	}
	if late > n/2 {
		t.Errorf("the machine stood still in %d of %d sequences: nothing is tested", late, n)
	}
}

func (g *game) differs(t *testing.T) {
	for _, d := range differences() {
		if !g.rules[d.rule] {
			continue
		}
		if res := g.play(t, d.example); res.differ {
			t.Errorf("with the rule %q:\n%s", d.rule, res.describe(d.example))
		}
		g.rules[d.rule] = false
		if res := g.play(t, d.example); !res.differ && !res.late {
			t.Errorf("the store keeps to the record without the rule %q:\n%s", d.rule, res.describe(d.example))
		}
		g.rules[d.rule] = true
	}
}

func TestRulesThatDifferAreSaidTo(t *testing.T) {
	prose := regexp.MustCompile(`[\s/-]+`) // of comments in any language
	for _, d := range differences() {
		text, err := os.ReadFile("../" + d.file)
		if err != nil || !strings.Contains(prose.ReplaceAllString(string(text), " "), prose.ReplaceAllString(d.says, " ")) {
			t.Errorf("%s does not say %q: %v", d.file, d.says, err)
		}
	}
}

// played is what became of a sequence: all answers up to the first difference.
type played struct {
	record, store []string
	differ        bool
	late          bool // the machine stood still, and the store's clock did not
}

func (g *game) play(t *testing.T, seq []op) (res played) {
	if g.bubble {
		synctest.Test(t, func(*testing.T) { res = g.once(seq) })
		return res
	}
	for range 10 {
		if res = g.once(seq); !res.late {
			break
		}
	}
	return res
}

func (g *game) once(seq []op) (res played) {
	g.plays++
	name := fmt.Sprintf("name%08d", g.plays)
	store := g.begin(name)
	r, s := g.player(name, register.NewReference(name, g.rules)), g.player(name, store)
	for _, o := range seq {
		if o.verb == pass && !r.comparable(o.d, seq) {
			return res
		}
		x, y := r.do(o), s.do(o)
		if store.late > mostLate {
			return played{late: true}
		}
		res.record, res.store = append(res.record, x), append(res.store, y)
		if res.differ = x != y; res.differ {
			break
		}
	}
	return res
}

// shortest drops operations from a sequence in which the store differs until it differs in none that is shorter by one.
func (g *game) shortest(t *testing.T, seq []op, res played) string {
	for i := 0; i < len(seq); i++ {
		less := slices.Delete(slices.Clone(seq), i, i+1)
		if r := g.play(t, less); r.differ {
			seq, res, i = less, r, -1
		}
	}
	return res.describe(seq)
}

// describe writes a sequence, what was answered, and in the end both answers.
func (p played) describe(seq []op) string {
	var b strings.Builder
	for i, x := range p.record {
		fmt.Fprintf(&b, "%3d  %-38v %s\n", i+1, seq[i], x)
	}
	if n := len(p.store); n > 0 {
		fmt.Fprintf(&b, "%43s %s\n", "and the store", p.store[n-1])
	}
	return b.String()
}
