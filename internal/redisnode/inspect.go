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

// Inspect reads what the server knows of a lock.
func (n *Node) Inspect(ctx context.Context, keys Keys) (locker.Info, error) {
	info, _, err := n.Look(ctx, keys)
	return info, err
}

// Look is Inspect, and returns the value that the lock's key has besides.
func (n *Node) Look(ctx context.Context, keys Keys) (info locker.Info, value string, err error) {
	reply, _, err := n.send(ctx, keys.request(inspect, keys.own[:keys.mark]))
	if err != nil {
		return info, "", err
	}
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return info, "", fmt.Errorf("the server gave an answer of an unknown form: %v", reply)
	}
	value, _ = fields[0].(string)
	left, _ := fields[1].(int64)
	last, _ := fields[2].(string)
	waiters, _ := fields[3].(int64)
	info = locker.Info{Name: keys.Lock, Waiters: int(waiters)}
	token, of, holder := lastGrant(last)
	info.Held = left != missing && !isReservation(value)
	if info.Held && of == value {
		info.Holder = holder
	}
	if info.Held {
		left = min(left, int64(math.MaxInt64/time.Millisecond)) // a key of somebody else's may have more
		info.TimeLeft = max(0, time.Duration(left)*time.Millisecond)
	}
	if !info.Held || of == value {
		info.Token = token
	}
	return info, value, nil
}

// missing is the time left of a key that is not there.
const missing = -2

// isReservation tells a reservation from what a client of another library may
// have put there: random bytes begin with a question mark now and then.
func isReservation(value string) bool {
	of, ok := strings.CutPrefix(value, "?")
	return ok && len(of) == valueSize
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
		info, value, err := n.Look(ctx, keys)
		if err != nil || !info.Held {
			return false, err
		}
		broken, err := n.force(ctx, keys, value, max(info.TimeLeft, lateTime))
		if err != nil || broken {
			return broken, err
		}
	}
	return false, errors.New("the lock changes hands so fast that none of its holders could be broken")
}

// force frees the lock if value has it, and reports whether it had. A value that is
// not ours is not marked: nobody asks for its mark, and it may be long or a secret.
func (n *Node) force(ctx context.Context, keys Keys, value string, remember time.Duration) (bool, error) {
	ours := value
	if len(value) != valueSize {
		ours, remember = "", 0
	}
	reply, repeated, err := n.send(ctx, keys.request(force, keys.own[:keys.mark]+ours, value, claim, n.counts, remember.Milliseconds()))
	if err == nil && reply == int64(0) && repeated && ours == "" {
		err = classify(errMaybeForced)
	}
	return reply == int64(1), err
}

// errMaybeForced is the end of a force whose first answer was lost. A second look
// would be at the next holder.
var errMaybeForced = errors.New("the answer was lost: the lock may have been broken, look who has it")
