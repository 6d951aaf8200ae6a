package postgres

import (
	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// passOn says from when the validity of an heir counts, and whether its grant may
// do without the disk.
//
// A commit takes most of the time of a hand-over, and while the lock stays in this
// process it protects nobody but the heir. So the heir takes over what is left of
// its predecessor's validity: that lease is on disk, and if a crash takes the
// hand-over back, the lock stays nobody else's until the heir believes in it no
// more. The next renewal gives it a lease of its own.
//
// An heir waits for the disk as soon as a third of the TTL is gone, when it would
// have to be renewed at once. So does one that asked for more than renewal gives:
// for a minimum of validity, for no renewal or for an end that counts from the
// start. Session locks have no lease, and their tokens wait for no disk.
func (a *attempt) passOn(next *attempt) (since locker.Instant, quick bool) {
	since = locker.Now()
	if next == nil || a.lease.session != nil || !sameTerms(a.req, next.req) {
		return since, false
	}
	if onDisk := locker.Instant(a.lease.onDisk.Load()); since.Sub(onDisk) < a.req.TTL/3 {
		return onDisk, true
	}
	return since, false
}

// sameTerms reports whether next is as well off with what is left of a lease of
// held's as with one of its own.
func sameTerms(held, next *locker.Request) bool {
	return held.TTL == next.TTL && next.Renew && next.MinValidity == 0 && next.MaxHold == 0
}

// tokenOnDisk is the least token that a crash could bring back: the holder's own, or
// that of the predecessor who waited for the disk last. All tokens from there up to
// the holder's were given out in this line, and those who had them have passed them
// on, so an heir that gives the lock back may give back theirs.
func (a *attempt) tokenOnDisk() fencing.Token {
	if a.behind != 0 {
		return a.behind
	}
	return a.token
}
