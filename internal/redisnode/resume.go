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
		if err := checkValue(value); err != nil {
			return Standing{}, err
		}
		keys, args = append(keys, a.Keys.text(ownKey)[:a.Keys.mark]+value), append(args, value)
	}
	a.kept.Store(int64(since))
	reply, repeated, err := n.send(ctx, requestOf(resume, keys, args...))
	a.unsure.Store(repeated || unsure(err))
	if err != nil {
		return Standing{}, err
	}
	if code, ok := reply.(int64); ok && code < 0 {
		return Standing{}, gone(code)
	}
	s, err := standing(a.Request, reply)
	if err != nil {
		a.unsure.Store(true) // it may be a grant
	}
	return s, err
}

// Adopt gives an attempt that has asked for nothing yet the value of one that another process had. It can be renewed and released then. An
// [errors.ErrUnsupported] says that it is no value of ours.
func (a *Attempt) Adopt(value string) error {
	if err := checkValue(value); err != nil {
		return err
	}
	a.Terms, a.adopted = a.withValue([]byte(value)), true
	a.unsure.Store(true) // its first request may still be under way
	return nil
}

// checkValue returns an error if a value that comes from outside cannot be that of an exclusive lock of ours.
func checkValue(value string) error {
	if _, err := base64.RawURLEncoding.DecodeString(value); err != nil || len(value) != valueSize {
		return fmt.Errorf("%w: the handle has a value that is none of this backend's", errors.ErrUnsupported)
	}
	return nil
}
