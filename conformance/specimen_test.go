package conformance

import (
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/internal/testserver"
)

// flaws are the ways in which a specimen is broken, each with the clauses that
// are there to find it.
var flaws = map[string][]string{
	"set, then expire":                     {"dead-while-locking"},
	"fixed value":                          {"unlock-after-break", "late-unlock"},
	"timestamps":                           {"late-unlock"},
	"get, then del":                        {"late-unlock-reply"},
	"release does not compare":             {"unlock-after-break", "late-unlock"},
	"an unlock is a loss":                  {"unlock-twice"},
	"unlock does nothing":                  {"unlock-twice", "unlock-with-context-over", "set"},
	"bounds cannot be set later":           {"set-limits"},
	"asks again and finds nothing":         {"lost-unlock-reply"},
	"no expiry":                            {"expiry", "unlock-after-expiry", "tokens-over-expiry", "silence"},
	"a try finds the lease over early":     {"early"},
	"a lease is as long as the longest":    {"short-after-long"},
	"a new lease is short":                 {"early"},
	"a renewed lease is short":             {"early"},
	"waits for nobody":                     {"lock-waits", "exclusion"},
	"tries are blind":                      {"try-lock"},
	"no order":                             {"order"},
	"a place ends with its TTL":            {"order"},
	"dead waiters stay":                    {"dead-waiter", "shared-dead-writer"},
	"a waiter is forgotten":                {"many-waiters", "many-waiters-one-client"},
	"keeps the lock among its goroutines":  {"bounded-turns", "turns-in-memory", "turns-over-break", "turns-options"},
	"a lease is passed on to the dead":     {"turns-given-up"},
	"a lease is passed on unseen":          {"turns-validity"},
	"a turn has its predecessor's bound":   {"turns-max-hold"},
	"a renewal belongs to its turn":        {"turns-renewal"},
	"a lost lease is passed on":            {"turns-loss"},
	"waiters sleep until the lease ends":   {"waiting-is-told", "shared-told", "slots-told"}, // Redisson 3891
	"waiters rely on being told":           {"cut-while-waiting"},
	"context is not looked at":             {"wait-cancelled", "wait-cancelled-in-line", "context-over"},
	"waits for the network":                {"silent-store"},
	"a grant is told twice":                {"lost-grant"},
	"a repeated request is a stranger's":   {"own-grant"}, // redsync and go-redis
	"a broken value is refused":            {"break-unheard"},
	"silence is taken":                     {"silent-store"},
	"taken is for ever":                    {"silent-for-long"},
	"a cause is the store's word":          {"renew-in-anothers-context", "silent-store"},
	"a renewal may not be sent":            {"renew-in-ended-context"},
	"a context is asked under a mutex":     {"curious-context"},
	"the cause is dropped":                 {"silent-store"},
	"names wait for one another":           {"silent-names"},
	"waits for the one before it":          {"silent-unlock"},
	"a clean-up is for all names":          {"impatient-neighbours"},
	"no clean-up":                          {"lost-reply", "lost-reply-while-waiting", "late-delivery", "wait-cancelled-at-the-turn", "shared-lost-reply", "slots-lost-reply"},
	"taken is all that is known":           {"late-after-taken"},
	"a release leaves no mark":             {"late-after-unlock"},
	"clean-up without a mark":              {"late-after-clean-up"},
	"renewal does not compare":             {"late-renewal"},
	"a hand-over counts from the answer":   {"slow-hand-over"},
	"validity from the reply":              {"slow-reply"},
	"validity from the call":               {"turns-max-hold", "turns-validity", "long-wait"},
	"the deadline is too late":             {"silence"},
	"validity is not checked":              {"min-validity"},
	"long times wrap":                      {"longest-hold"},
	"no clock of its own":                  {"silence", "told-nothing"},
	"renewal is not sent":                  {"renewal", "renew-by-hand"},
	"a failed renewal puts off the next":   {"hasty-renewal"},
	"the holder is not told":               {"break"},
	"checks nothing":                       {"bad-names", "bad-options", "max-hold", "min-validity"},
	"names are cut":                        {"odd-names"},
	"names are folded":                     {"odd-names"},
	"names are hashed":                     {"many-names"},
	"tokens are all one":                   {"tokens-increase", "tokens-over-expiry", "tokens-over-break", "tokens-under-contention", "turns-ranges"},
	"counter goes with the lock":           {"tokens-increase"},
	"counter goes with the lease":          {"tokens-over-recreation", "tokens-over-expiry"},
	"break resets the counter":             {"tokens-over-break"},
	"token is drawn before the wait":       {"tokens-under-contention"},
	"a goroutine for every wait":           {"goroutines"},
	"a connection is left by every wait":   {"goroutines"},
	"a goroutine for every lock":           {"goroutines-held"},
	"a connection for every waiter":        {"connections"},
	"looking counts":                       {"inspect"},
	"lists what is free":                   {"list"},
	"waits without a bound":                {"wait-bound"},
	"a minimum hold is forgotten":          {"min-hold", "min-hold-over-break", "ticks"},
	"a minimum hold goes with its process": {"min-hold-alone"},
	"shows a holder of what is kept":       {"min-hold-over-break"},
	"a clean-up frees what is kept":        {"min-hold-lost-reply"},
	"close is ignored":                     {"closed"},
	"declares nothing":                     {"guarantees"},

	"a handle is good for all":              {"detach", "detach-expiry"},
	"a handle is used up by nobody":         {"detach"},
	"a handle leaves no mark":               {"detach-late"},
	"whoever resumes has the old token":     {"detach"},
	"a lock that is detached is given back": {"detach"},
	"a lock that is detached has no end":    {"detach-expiry"},
	"what is gone is taken":                 {"detach", "detach-expiry"},
	"a lost answer loses the handle":        {"detach-lost-reply"},
	"a lost answer leaves the old handle":   {"detach-lost-reply"},
	"a handle renews nothing":               {"detach-renew"},
	"a handle renews whatever is there":     {"detach-renew"},
	"a handle that is used up renews":       {"detach-renew"},
	"a handle unlocks nothing":              {"detach-unlock"},
	"a handle unlocks whatever is there":    {"detach-unlock"},
	"a handle unlocks what it had first":    {"detach-unlock"},
	"a handle that unlocks leaves no mark":  {"detach-late"},

	"a writer does not see readers":              {"shared", "shared-crowd"},
	"a writer may read as well":                  {"shared"}, // Curator 1138
	"a reader draws no number":                   {"shared-tokens"},
	"a writer that waits does not stop readers":  {"shared-writer"},
	"readers are let in one by one":              {"shared-together"},
	"the lease of all readers is the last one's": {"shared-ttls"}, // Redisson 2144
	"the lease of all readers is the longest":    {"shared-ttls"},
	"readers are not renewed":                    {"shared-renewal"}, // Redisson 1604
	"a release frees all readers":                {"shared-release"},
	"a reader that dies frees all":               {"shared-dead"},
	"a break takes all":                          {"shared-break", "slots-break"},
	"a slot is the number of holders":            {"slots", "slots-crowd"},
	"the token of a slot is its number":          {"slots-tokens"},
	"one decides, and others are told taken":     {"shared-at-once", "slots-at-once"},
	"slots are a bare counter":                   {"slots-dead"}, // Redisson 2045
	"slots are not renewed":                      {"slots-renewal"},
	"another n is accepted":                      {"slots-mismatch"},     // Curator's InterProcessSemaphoreV2 and DistributedLock
	"the end of a slot is not noticed":           {"slots-release-late"}, // Redisson 4086
}

func specimens(addr, flaw string) Harness {
	return Harness{New: func(t testing.TB) Process {
		p := NewProxy(t, addr)
		l, end := specimen.New(p.Addr(), flaw)
		t.Cleanup(end)
		return Process{Locker: l, Network: p}
	}}
}

func TestSpecimenWithoutAFlawKeepsEveryClause(t *testing.T) {
	srv := testserver.Redis(t)
	Run(t, specimens(srv.Addr(), ""))
}

// hasty is what flaws are looked for with, since many of them hang.
func hasty(addr, flaw string) Harness {
	h := specimens(addr, flaw)
	h.TTL, h.patience, h.meter = 500*time.Millisecond, 2*time.Second, new(meter)
	return h
}

// Goal: a clause finds a flaw, and not its own haste.
func TestSpecimenWithoutAFlawKeepsEveryClauseInHaste(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make proof: the clauses once more, on a specimen without a flaw")
	}
	srv := testserver.Redis(t)
	for _, c := range Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var err error
			for range 10 { // a machine that stalls looks like a flaw
				if err = c.verify(t, hasty(srv.Addr(), "")); err == nil || isSkip(err) {
					return
				}
			}
			t.Error(err)
		})
	}
}

// lateOnly are the flaws, each with its clause, that make something late, or lose a lock for
// want of a renewal, and do nothing else. In a stall such a clause is played again, and finds
// its flaw then.
var lateOnly = map[string]string{
	"waits for the one before it":        "silent-unlock",
	"names wait for one another":         "silent-names",
	"a failed renewal puts off the next": "hasty-renewal",
}

// Goal: a clause finds its flaw in an endless stall, too, which excuses all that can be
// excused, and it finds it when it is played for the first time: no stall delays the verdict
// on exclusion, tokens, what is left behind and error classes. Whatever fails then fails
// without a stall all the more.
func TestEveryFlawIsFoundByTheClausesThatAreThereForIt(t *testing.T) {
	stderr = io.Discard // nobody is to count these stalls
	defer func() { stderr = os.Stderr }()
	srv := testserver.Redis(t)
	clauses := make(map[string]Clause)
	for _, c := range Clauses() {
		clauses[c.Name] = c
	}
	t.Run("flaw", func(t *testing.T) {
		for flaw, names := range flaws {
			for _, name := range names {
				t.Run(flaw+"/"+name, func(t *testing.T) {
					t.Parallel()
					c, ok := clauses[name]
					if !ok {
						t.Fatalf("there is no clause %q", name)
					}
					if crowded[name] && testing.Short() {
						t.Skip("left to make proof: it keeps the machine busy")
					}
					late := lateOnly[flaw] == name
					isFound(t, c, hasty(srv.Addr(), flaw), always, late)
					if late {
						isFound(t, c, hasty(srv.Addr(), flaw), func() *meter { return new(meter) }, false)
					}
				})
			}
		}
	})
}

// isFound requires that a clause fails, in its first play or in its second.
func isFound(t *testing.T, c Clause, h Harness, m func() *meter, again bool) {
	t.Helper()
	var err error
	var replayed bool
	for range 10 { // a machine that stalls where a flaw shows itself hides it
		h.meter = m()
		left := h.meter.left
		err = c.verify(t, h)
		if replayed = h.meter.left < left; err != nil && replayed == again {
			break
		}
	}
	if err == nil || isSkip(err) || replayed != again {
		t.Errorf("the clause did not find it, or was played again (%v) and should have been (%v): %v", replayed, again, err)
	}
	t.Log(err)
}

func TestEveryClauseFindsSomeFlaw(t *testing.T) {
	var hit []string
	for _, names := range flaws {
		hit = append(hit, names...)
	}
	for _, c := range Clauses() {
		if !slices.Contains(hit, c.Name) {
			t.Errorf("no specimen fails at clause %q: %s", c.Name, fmt.Sprint(c.Why))
		}
	}
}
