package redisnode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// View is what a server knows of a lock.
type View struct {
	locker.Info
	Value string // the holder's, also where the lock is kept taken for that one

	stored string // what the lock's key has
}

// Look reads what the server knows of a lock.
func (n *Node) Look(ctx context.Context, keys Keys) (View, error) {
	reply, _, err := n.send(ctx, keys.look())
	if err != nil {
		return View{}, err
	}
	return view(keys, reply)
}

func (k *Keys) look() request { return k.request(inspect, k.own[:k.mark]) }

func view(keys Keys, reply any) (View, error) {
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return View{}, fmt.Errorf("the server gave an answer of an unknown form: %v", reply)
	}
	stored, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	last, _ := fields[2].(string)
	waiters, _ := fields[3].(int64)
	v := View{locker.Info{Name: keys.Lock, Waiters: int(waiters)}, holderOf(stored), stored}
	token, of, holder := lastGrant(last)
	v.Held = left != missing && !isReservation(stored)
	if v.Held && of == v.Value {
		v.Holder = holder
	}
	if v.Held {
		left = min(left, int64(math.MaxInt64/time.Millisecond)) // a key of somebody else's may have more
		v.TimeLeft = max(0, time.Duration(left)*time.Millisecond)
	}
	if !v.Held || of == v.Value {
		v.Token = token
	}
	return v, nil
}

// missing is the time left of a key that is not there.
const missing = -2

// isReservation tells a reservation from what a client of another library may
// have put there: random bytes begin with a question mark now and then.
func isReservation(stored string) bool {
	of, ok := strings.CutPrefix(stored, "?")
	return ok && len(of) == valueSize
}

// holderOf is the value of the holder that a lock is kept taken for, or else what its key
// has.
func holderOf(stored string) string {
	if of, ok := strings.CutPrefix(stored, "-"); ok && len(of) == valueSize {
		return of
	}
	return stored
}

// lastGrant reads what a script's grant wrote. The token is the first of the range at
// whose end the counter stands: on a node of a quorum, the majority's.
func lastGrant(s string) (token fencing.Token, value, holder string) {
	number, rest, _ := strings.Cut(s, " ")
	value, rest, _ = strings.Cut(rest, " ")
	_, holder, _ = strings.Cut(rest, " ")
	final, _ := fencing.Parse(number)
	if final < Tokens {
		return 0, value, holder // it was never written: unknown
	}
	return final - Tokens + 1, value, holder
}

// Break frees the lock, and reports whether anybody held it. After an error it may have
// been freed.
func (n *Node) Break(ctx context.Context, keys Keys) (bool, error) {
	for range 10 { // it may change hands while we look
		v, err := n.Look(ctx, keys)
		if err != nil || !v.Held {
			return false, err
		}
		broken, err := n.force(ctx, keys, v, max(v.TimeLeft, lateTime))
		if err != nil || broken {
			return broken, err
		}
	}
	return false, errors.New("the lock changes hands so fast that none of its holders could be broken")
}

// force frees the lock if it still is as it was seen, and reports whether it was. A value
// that is not ours is not marked: nobody asks for its mark, and it may be long or a secret.
func (n *Node) force(ctx context.Context, keys Keys, seen View, remember time.Duration) (bool, error) {
	ours := seen.Value
	if len(ours) != valueSize {
		ours, remember = "", 0
	}
	reply, repeated, err := n.send(ctx, keys.request(force, keys.own[:keys.mark]+ours, seen.stored, claim, n.counts, remember.Milliseconds()))
	if err == nil && reply == int64(0) && repeated && ours == "" {
		err = classify(errMaybeForced)
	}
	return reply == int64(1), err
}

// errMaybeForced is the end of a force whose first answer was lost. A second look
// would be at the next holder.
var errMaybeForced = errors.New("the answer was lost: the lock may have been broken, look who has it")
