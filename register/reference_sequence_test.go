package register_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
)

// side is the record, or a store.
type side interface {
	Begin(req *driver.Request) (attempt any)
	Acquire(attempt any, waits bool) (driver.Grant, error)
	Renew(attempt any) error
	Release(attempt any, keep time.Duration) error
	Withdraw(attempt any) error
	Break(n locker.Number) (bool, error)
	Inspect() (locker.Info, error)
	Pass(d time.Duration) // moves the clock
}

// op is an operation of a sequence.
type op struct {
	verb verb
	who  int
	kind int           // of a lock that is tried, or asked for: so many slots, or one of these
	d    time.Duration // the TTL, or for how long a lock is kept, or by how much the clock moves
}

type verb uint8

const (
	try verb = iota
	ask      // and wait, or go on waiting
	renew
	release
	withdraw
	breakOne
	breakAll
	stop // neither renew nor ask while time passes
	pass
)

const (
	exclusive = 0
	shared    = -1

	clients = 5

	// All happens at multiples of tick, and nothing ends within rest of one: no clock is exact.
	tick = 300 * time.Millisecond
	rest = 100 * time.Millisecond
	ttl  = 2200 * time.Millisecond
	long = 19800 * time.Millisecond
)

func (o op) String() string {
	who := who(o.who)
	switch o.verb {
	case try, ask:
		kind := map[int]string{exclusive: "an exclusive lock", shared: "a shared lock"}[o.kind]
		if o.kind > 0 {
			kind = fmt.Sprintf("one of %d slots", o.kind)
		}
		return fmt.Sprintf("%s %s %s for %v", who, [...]string{"tries", "asks for"}[o.verb], kind, o.d)
	case release:
		return fmt.Sprintf("%s releases, kept for %v", who, o.d)
	case breakAll:
		return "all are broken"
	case pass:
		return fmt.Sprintf("%v pass", o.d)
	}
	return who + [...]string{renew: " renews", withdraw: " withdraws", breakOne: " is broken", stop: " stops"}[o.verb]
}

func who(i int) string { return string(rune('a' + i)) }

// client makes attempts, one after another.
type client struct {
	attempt any // the latest
	req     *driver.Request
	waits   bool
	stage   stage
	granted bool // it was, as far as it knows
	gave    bool // it was released or withdrawn

	number uint64        // the latest that was granted
	kept   time.Duration // until when
	silent time.Duration // since when it has been stopped, or 0
}

type stage uint8

const (
	over stage = iota
	waiting
	holding
)

// player plays a sequence on one side, and puts the answers into words that can be compared.
type player struct {
	side
	*game
	name    string
	now     time.Duration
	clients [clients]client
	numbers []uint64 // of grants, in order
	last    uint64   // token
}

func (g *game) player(name string, s side) *player {
	return &player{side: s, game: g, name: name, now: tick}
}

// draw returns a sequence. What comes next depends on how those before end in the record.
func (g *game) draw(seed uint64) (seq []op) {
	rng := rand.New(rand.NewPCG(seed, 0))
	one := func(ms ...time.Duration) time.Duration { return ms[rng.IntN(len(ms))] * time.Millisecond }
	kinds := [][]int{{exclusive}, {exclusive, exclusive, shared}, {exclusive, shared, shared}, {2}, {3}, {exclusive, shared, 2, 3}}[rng.IntN(6)]
	r := g.player("name", register.NewReference("name", g.rules))
	often := [...][]verb{
		over:    {try, ask, ask, ask, renew, release, withdraw, breakOne},
		waiting: {try, ask, ask, withdraw, stop, stop, renew, breakOne},
		holding: {ask, renew, release, release, release, withdraw, breakOne, stop},
	}
	crowd, passes, returns, rare := 3+rng.IntN(clients-2), 2+rng.IntN(6), 1+rng.IntN(4), verb(rng.IntN(int(pass)))
	first := rng.IntN(2) * crowd // who ask, one after another
	for i := range 15 + rng.IntN(30) {
		o := op{verb: pass, who: rng.IntN(crowd)}
		verbs := often[r.clients[o.who].stage]
		for _, who := range rng.Perm(crowd) {
			if r.clients[who].silent > 0 && rng.IntN(returns) == 0 {
				o.who, verbs = who, []verb{ask, ask, renew, release, withdraw, pass, pass}
			}
		}
		switch n := rng.IntN(20); {
		case i < first:
			o.verb, o.who = ask, i
		case n == 0:
			o.verb = breakAll
		case n > passes:
			o.verb = verbs[rng.IntN(len(verbs))]
		}
		if o.verb == rare && rng.IntN(4) > 0 {
			o.verb = ask
		}
		switch o.verb {
		case try, ask:
			o.kind, o.d = kinds[rng.IntN(len(kinds))], one(2200, 3100, 4000)
		case release:
			o.d = one(0, 0, 400, 1000, 2800)
		case pass:
			for o.d = one(300, 300, 600, 900, 2400, 3300, 3300, 19800); !r.comparable(o.d, []op{{kind: slices.Min(kinds)}}); {
				o.d = one(300, 19800)
			}
		}
		r.do(o)
		seq = append(seq, o)
	}
	return seq
}

// comparable reports whether all stores agree on who is dead when so much time has passed.
func (p *player) comparable(d time.Duration, seq []op) bool {
	quiet := p.quiet
	if slices.ContainsFunc(seq, func(o op) bool { return o.kind == shared }) {
		quiet = p.quietShared
	}
	return !slices.ContainsFunc(p.clients[:], func(c client) bool {
		silent := p.now + d - c.silent
		return c.stage == waiting && c.silent > 0 && silent > quiet && silent < gone
	})
}

// do carries out an operation, if the driver could ask for it, and looks.
func (p *player) do(o op) string {
	var words string
	switch c := &p.clients[o.who]; {
	case o.verb == pass:
		words = p.pass(o.d)
	case o.verb == breakAll:
		words = p.breaks()
	case o.verb == try || o.verb == ask:
		words = p.asks(o)
	case c.attempt == nil:
	case o.verb == withdraw:
		words = c.said(p.Withdraw(c.attempt))
		c.stage, c.granted, c.gave = over, false, true
	case o.verb == stop && c.stage != over && c.silent == 0:
		c.silent = p.now
	case o.verb == breakOne && c.number > 0:
		words = outcome(p.Break(locker.Number(c.number)))
	case o.verb == renew && (c.granted || c.gave): // it may have been under way
		words = p.renews(c)
	case o.verb == release && c.granted && (c.kept == 0 || c.kept > p.now):
		words = p.releases(c, o.d)
	}
	return strings.TrimPrefix(words+"; "+p.look(), "; ")
}

// said is what a client is told. Why it has lost a lock that it has given back is nothing to it.
func (c *client) said(err error) string {
	var lost *locker.LostError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &lost) && c.gave:
		return "lost"
	case errors.As(err, &lost):
		return "lost: " + lost.Reason.String()
	}
	return err.Error()
}

func outcome(broken bool, err error) string { return fmt.Sprintf("broken: %v %v", broken, err) }

// asks asks once. An attempt that is under way asks again, also if it has the lock: the answer may have been lost.
func (p *player) asks(o op) string {
	c := &p.clients[o.who]
	if c.stage == over {
		*c = client{number: c.number, waits: o.verb == ask, req: &driver.Request{Name: p.name, TTL: o.d, Holder: who(o.who), Renew: true}}
		switch {
		case o.kind == shared:
			c.req.Kind = locker.KindShared
		case o.kind > 0:
			c.req.Kind, c.req.Slots = locker.KindSlots, o.kind
		}
		c.attempt = p.Begin(c.req)
	}
	was := c.stage
	c.silent, c.granted, c.stage = 0, false, over
	g, err := p.Acquire(c.attempt, c.waits)
	switch {
	case err != nil:
		if was == waiting {
			_ = p.Withdraw(c.attempt)
		}
		return err.Error()
	case g.Count == 0:
		if c.waits {
			c.stage = waiting
		}
		return "taken"
	}
	c.stage, c.granted, c.number = holding, true, g.First
	words := "granted " + p.number(g)
	if c.req.Slots > 0 {
		words += fmt.Sprint(" slot ", g.Slot)
	}
	return words
}

// number says which grant it is: tokens have to rise, and differ from side to side.
func (p *player) number(g driver.Grant) string {
	i := slices.Index(p.numbers, g.First)
	switch {
	case i >= 0:
	case g.First <= p.last:
		return fmt.Sprintf("%d, not above %d", g.First, p.last)
	default:
		i, p.last = len(p.numbers), g.First+uint64(g.Count)-1
		p.numbers = append(p.numbers, g.First)
	}
	return fmt.Sprint("#", i)
}

func (p *player) renews(c *client) string {
	c.silent = 0
	err := p.Renew(c.attempt)
	if err != nil {
		c.stage = over
	}
	return c.said(err)
}

// releases gives the lock back, or keeps it: again only for what is left, as the driver does.
func (p *player) releases(c *client, keep time.Duration) string {
	switch {
	case c.req.Kind != locker.KindExclusive:
		keep = 0
	case c.kept > p.now:
		keep = c.kept - p.now
	case keep > 0:
		c.kept = p.now + keep
	}
	words := c.said(p.Release(c.attempt, keep))
	c.stage, c.gave = over, true
	return words
}

// breaks takes the lock from all. Where slots are reserved, which one a waiter gets depends on who comes first.
func (p *player) breaks() string {
	info, err := p.Inspect()
	if err != nil || !p.rules["slots are reserved"] || info.Slots == 0 || info.Waiters == 0 {
		return outcome(p.Break(0))
	}
	broken := false
	for _, h := range info.Holders {
		if broken, err = p.Break(h.Number); err != nil || !broken {
			break
		}
	}
	return outcome(broken, err)
}

// pass moves the clock. Those who are not stopped renew, and ask.
func (p *player) pass(d time.Duration) string {
	var heard []string
	for ; d > 0; d -= p.step {
		p.Pass(min(d, p.step))
		p.now += min(d, p.step)
		for i := range p.clients {
			c, words := &p.clients[i], ""
			switch {
			case c.silent > 0 || c.stage == over:
				continue
			case c.stage == holding:
				words = p.renews(c)
			default:
				words = p.asks(op{who: i})
			}
			if words != "ok" && words != "taken" {
				heard = append(heard, who(i)+" "+words)
			}
		}
	}
	return strings.Join(heard, ", ")
}

// look says who has the lock. How much time is left is rounded, so that what a store takes for its answer makes no difference.
func (p *player) look() string {
	info, err := p.Inspect()
	if err != nil {
		return err.Error()
	}
	if info.Held && info.Kind == locker.KindExclusive {
		info.Holders = []locker.Holder{{Text: info.Holder, Number: locker.Number(info.Token), TimeLeft: info.TimeLeft}}
	}
	words := "free"
	if info.Held {
		words = info.Kind.String()
	}
	for _, h := range info.Holders {
		if info.Kind == locker.KindSlots {
			words += fmt.Sprintf(", slot %d of %d", h.Slot, info.Slots)
		}
		words += fmt.Sprintf(", %s has #%d for %v", h.Text, slices.Index(p.numbers, uint64(h.Number)), (h.TimeLeft+rest)/tick*tick+rest)
	}
	dead := func(c client) bool { return c.stage == waiting && c.silent > 0 }
	if info.Waiters > 0 && (!p.rules["the dead count"] || !slices.ContainsFunc(p.clients[:], dead)) {
		words += fmt.Sprintf(", %d waiting", info.Waiters)
	}
	return words
}
