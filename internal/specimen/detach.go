package specimen

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/contract"
)

// resume answers a token, or 0 if none of the values that come before the flaw has the lock.
var resume = redis.NewScript(prelude + `
local value, ttl, holder = unpack(ARGV)
local has = redis.call('GET', lock)
local found = has == value or flaw == 'a handle is good for all'
for i = 4, #ARGV - 1 do found = found or has == ARGV[i] end
if not found then return 0 end
for i = 4, #ARGV - 1 do
  if flaw ~= 'a handle leaves no mark' then redis.call('SET', 'mark:' .. ARGV[i], '1', 'PX', 60000) end
end
if flaw ~= 'a handle is used up by nobody' then redis.call('SET', lock, value, 'PX', ttl) end
redis.call('SET', who, holder)
if flaw == 'whoever resumes has the old token' then return tonumber(redis.call('GET', last)) end
return redis.call('INCR', last)
`)

// detach has a's process forget the lock.
func (s *Locker) detach(a *attempt) contract.Detached {
	if _, first := s.leave(a); first {
		a.place.leave()
	}
	switch ctx, key := context.Background(), s.keys(a.req.Name)[0]; {
	case s.is("a lock that is detached is given back"):
		_ = s.rdb.Del(ctx, key).Err()
	case s.is("a lock that is detached has no end"):
		_ = s.rdb.Persist(ctx, key).Err()
	}
	return contract.Detached{Backend: "specimen", Name: a.req.Name, TTL: a.req.TTL, IDs: []string{a.value}}
}

// Resume implements [locker.Resumer].
func (s *Locker) Resume(ctx context.Context, h locker.Handle, opts ...locker.Option) (*locker.Lock, error) {
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		return nil, err
	}
	a, err := s.begin(ctx, d.Name, append([]locker.Option{locker.WithTTL(d.TTL)}, opts...))
	if err != nil {
		return nil, err
	}
	a.place, _ = new(lines).tryEnter(ctx, d.Name, a) // it stands in no line but its own
	args := []any{a.value, a.req.TTL.Milliseconds(), a.req.Holder}
	for _, id := range d.IDs {
		args = append(args, id)
	}
	a.since = driver.Now()
	a.token, err = bounded(ctx, s, func() (int64, error) { return s.run(ctx, resume, d.Name, append(args, s.flaw)...) })
	switch {
	case err != nil && s.is("a lost answer loses the handle"):
		return nil, fmt.Errorf("specimen: %w: %w", locker.ErrUnavailable, err)
	case err != nil:
		if !s.is("a lost answer leaves the old handle") {
			d.IDs = append(d.IDs, a.value)
		}
		return nil, &locker.ResumeError{Handle: locker.Handle(d.Handle()), Cause: fmt.Errorf("%w: %w", locker.ErrUnavailable, err)}
	case a.token == 0 && s.is("what is gone is taken"):
		return nil, locker.ErrTaken
	case a.token == 0:
		return nil, &locker.LostError{Name: d.Name, Reason: locker.ReasonTakenOver}
	}
	return s.finish(a, nil)
}

// RenewHandle implements [locker.Resumer].
func (s *Locker) RenewHandle(ctx context.Context, h locker.Handle, opts ...locker.Option) error {
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		return err
	}
	a, err := s.begin(ctx, d.Name, append([]locker.Option{locker.WithTTL(d.TTL)}, opts...))
	if err != nil || s.is("a handle renews nothing") {
		return err
	}
	there := s.rdb.Get(ctx, s.keys(d.Name)[0]).Val() // for the flaws
	for _, id := range d.IDs {
		if a.value = id; s.is("a handle renews whatever is there") {
			a.value = there
		}
		if err = s.renew(ctx, a); err == nil {
			return nil
		}
	}
	if a.value = there; s.is("a handle that is used up renews") { // and says that it has not
		_ = s.renew(ctx, a)
	}
	return err
}

// UnlockHandle implements [locker.Resumer].
func (s *Locker) UnlockHandle(ctx context.Context, h locker.Handle) error {
	d, err := contract.ParseHandle(string(h))
	if err != nil {
		return err
	}
	_, err = s.begin(ctx, d.Name, []locker.Option{locker.WithTTL(d.TTL)})
	if err != nil || s.is("a handle unlocks nothing") {
		return err
	}
	if s.is("a handle unlocks whatever is there") {
		d.IDs = append(d.IDs, s.rdb.Get(ctx, s.keys(d.Name)[0]).Val())
	}
	if s.is("a handle unlocks what it had first") {
		d.IDs = d.IDs[:1]
	}
	for _, id := range d.IDs {
		freed, err := s.run(ctx, release, d.Name, id, 0, s.flaw)
		if s.is("a handle that unlocks leaves no mark") {
			_ = s.rdb.Del(ctx, "mark:"+id).Err()
		}
		if err != nil || freed != 0 {
			return err
		}
	}
	return &locker.LostError{Name: d.Name, Reason: locker.ReasonTakenOver}
}
