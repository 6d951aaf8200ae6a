package redisnode

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/lockstile/locker/driver"
)

// Resume has a take the place of the attempt of another process that has one of these values, if that has the lock. It is for a node that
// stands alone, and since is when the clock was read for the request. A LostError says that none of them has it, and an [errors.ErrUnsupported] that they are no values of ours. After any other error a may have the lock.
func (n *Node) Resume(ctx context.Context, a *Attempt, values []string, since driver.Instant) (Standing, error) {
	keys := append(make([]any, 0, len(a.Keys.all)+len(values)), a.Keys.all[:]...)
	args := []any{&a.Value, a.TTL.Milliseconds(), &a.Holder, n.keepMillis(), (lateTime + a.TTL).Milliseconds()}
	for _, value := range values {
		if _, err := base64.RawURLEncoding.DecodeString(value); err != nil || len(value) != valueSize {
			return Standing{}, fmt.Errorf("%w: the handle has a value that is none of this backend's", errors.ErrUnsupported)
		}
		keys, args = append(keys, a.Keys.text(ownKey)[:a.Keys.mark]+value), append(args, value)
	}
	a.kept.Store(int64(since))
	reply, repeated, err := n.send(ctx, requestOf(resume, keys, args...))
	a.unsure.Store(repeated || err != nil)
	if err != nil {
		return Standing{}, err
	}
	if code, ok := reply.(int64); ok && code < 0 {
		return Standing{}, gone(code)
	}
	return standing(a.Request, reply)
}
