package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockstile/locker/fencing"
)

// client is one that believes that it holds the lock, or not.
type client struct {
	number  uint64 // 0: it does not
	reads   bool
	holds   bool // so does the store
	touched bool
	first   int // its first act and its last one
	last    int
}

// walk is a lock service, its clients, and what they did to a resource.
type walk struct {
	guard    fencing.SharedGuard
	resource string
	clients  []*client
	gone     []*client // those who have acted, and do not any more
	drawn    uint64
	acts     int
	story    []string
}

// Walk lets clients take a lock, exclusively or shared, and act on the resource, at random.
// A lease may end at any time, and its client does not notice. It returns an error
// if
//   - a client that the store still has is refused, or
//   - two clients, one of which writes, have acted in turns: each began before the other was
//     done.
func Walk(ctx context.Context, g fencing.SharedGuard, resource string, rng *rand.Rand) error {
	w := &walk{guard: g, resource: resource, clients: []*client{{}, {}, {}}}
	for range 40 {
		if err := w.step(ctx, rng); err != nil {
			return fmt.Errorf("%w: %s", err, strings.Join(w.story, ", "))
		}
	}
	return nil
}

func (w *walk) step(ctx context.Context, rng *rand.Rand) error {
	i := rng.IntN(len(w.clients))
	c := w.clients[i]
	switch what := rng.IntN(8); {
	case c.number == 0:
		w.grant(c, rng.IntN(3) > 0)
	case what == 0 && c.holds:
		c.holds = false
		w.tell(c, "ends")
	case what == 1:
		w.tell(c, "unlocks")
		w.leaves(i)
	default:
		return w.act(ctx, i)
	}
	return nil
}

// grant gives the lock to a client if no holder stands against it.
func (w *walk) grant(c *client, reads bool) {
	for _, other := range w.clients {
		if other.holds && (!reads || !other.reads) {
			return
		}
	}
	w.drawn++
	*c = client{number: w.drawn, reads: reads, holds: true}
	w.tell(c, "granted")
}

func (w *walk) act(ctx context.Context, i int) error {
	c := w.clients[i]
	err := Ask(ctx, w.guard, w.resource, c.reads, c.number)
	switch {
	case errors.Is(err, fencing.ErrStale) && c.holds:
		w.tell(c, "refused")
		return fmt.Errorf("a holder is refused: %w", err)
	case errors.Is(err, fencing.ErrStale):
		w.tell(c, "refused")
		w.leaves(i)
		return nil
	case err != nil:
		return err
	}
	w.tell(c, "acts")
	w.acts++
	if !c.touched {
		c.touched, c.first = true, w.acts
	}
	c.last = w.acts
	return w.apart()
}

func (w *walk) leaves(i int) {
	if w.clients[i].touched {
		w.gone = append(w.gone, w.clients[i])
	}
	w.clients[i] = &client{}
}

// apart returns an error if two clients that stand against each other have acted in turns.
func (w *walk) apart() error {
	all := slices.Concat(w.gone, w.clients)
	for i, a := range all {
		for _, b := range all[:i] {
			against := a.touched && b.touched && (!a.reads || !b.reads)
			if against && a.first < b.last && b.first < a.last {
				return fmt.Errorf("%s and %s act in turns", a, b)
			}
		}
	}
	return nil
}

func (w *walk) tell(c *client, what string) { w.story = append(w.story, fmt.Sprint(c, " ", what)) }

func (c *client) String() string {
	if c.reads {
		return fmt.Sprint("reader ", c.number)
	}
	return fmt.Sprint("writer ", c.number)
}
