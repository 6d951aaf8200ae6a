package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

const (
	// mostGrace bounds how long before the end of validity the child is asked
	// to end.
	mostGrace = 5 * time.Second

	// lateGrace is what a child has when the lock is gone already.
	lateGrace = time.Second

	// glance is how often the clock is looked at in any case: timers stand
	// still while the machine is suspended, the lock's clock does not.
	glance = time.Second

	// sweepPause is the pause between looks at what is left of the group.
	sweepPause = 10 * time.Millisecond
)

// supervisor ends a child that is about to lose its lock, or has lost it.
type supervisor struct {
	set   *locker.Set
	child *child
	whole time.Duration // the longest validity seen: a store may grant less than the TTL
	ahead string        // the error if validity is about to end

	signal *signalError   // the last that asked the child to end
	lost   error          // why the child is being ended; nil while it is not
	killAt driver.Instant // when what is left of its group is killed
}

func (c *runCommand) supervise(set *locker.Set, child *child) *supervisor {
	s := &supervisor{set: set, child: child, ahead: c.what() + " was about to end: it was not renewed in time"}
	if len(c.names) > 1 {
		s.ahead = "one of " + s.ahead
	}
	if c.maxHold > 0 {
		s.ahead += fmt.Sprintf(", or --max-hold %v is over", c.maxHold)
	}
	return s
}

// watch returns the child's exit status when the child has ended, and with it,
// if the lock is lost, its group.
func (s *supervisor) watch(signals <-chan os.Signal) (status int) {
	lost := s.set.Lost()
	for {
		next := time.After(s.look())
		select {
		case status = <-s.child.exited:
			s.child.leaveTerminal()
			s.sweep()
			return status
		case sig := <-signals:
			if slices.Contains(endings, sig) {
				s.signal = &signalError{sig}
			}
			s.child.pass(sig)
		case sig := <-s.child.suspended:
			s.child.signal(sig) // when it has stopped, so do we
		case sig := <-s.child.stopped:
			if s.child.stoppedBy(sig) {
				s.goOn()
			}
		case <-s.child.continued:
			s.goOn()
		case <-lost:
			lost = nil
		case <-next:
		}
	}
}

// goOn continues the child. If it has lost its lock, SIGTERM comes first.
func (s *supervisor) goOn() {
	s.look()
	s.child.goOn()
}

// look ends the child if it is time to, and returns when to look again.
func (s *supervisor) look() time.Duration {
	now, deadline := driver.Now(), s.set.Deadline()
	left, ends := time.Until(deadline), !deadline.IsZero() // of the lock's validity, unless it is renewed
	s.whole = max(s.whole, left)
	grace := min(mostGrace, s.whole/4)
	if err := s.set.Err(); err != nil {
		s.end(err)
	} else if ends && left <= grace && s.lost == nil {
		s.terminate(errors.New(s.ahead), now.Add(left-grace/5))
	}
	switch {
	case s.lost == nil && !ends:
		return glance
	case s.lost == nil:
		return max(min(left-grace, glance), 0)
	case now >= s.killAt:
		s.child.kill()
		return glance
	default:
		return min(s.killAt.Sub(now), glance)
	}
}

// end ends the child because the lock is gone.
func (s *supervisor) end(lost error) {
	s.terminate(lost, driver.Now().Add(lateGrace))
}

// terminate asks the child's group to end, once, and lets it be killed at
// killAt, or earlier where that was settled before. There is no way back: a
// renewal that succeeds now comes too late for a child that is ending.
func (s *supervisor) terminate(lost error, killAt driver.Instant) {
	if s.lost != nil {
		s.killAt = min(s.killAt, killAt)
		return
	}
	s.lost, s.killAt = lost, killAt
	s.child.terminate()
}

// sweep waits until nothing is left of a group that is being ended, and kills it
// when its time is over.
func (s *supervisor) sweep() {
	if s.lost == nil {
		return
	}
	for s.child.groupLives() {
		if driver.Now() >= s.killAt {
			s.child.kill()
			return
		}
		time.Sleep(sweepPause)
		if err := s.set.Err(); err != nil {
			s.end(err)
		}
	}
}
