package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/lockstile/locker/internal/zkclient"
)

const (
	// sweepTime bounds one try to remove one place.
	sweepTime = 2 * time.Second
	// sweepPause is the longest pause between two tries.
	sweepPause = time.Second
)

// sweep removes what may be left of a place in the background. It goes on until
// the server confirms or the session has ended, which removes the node as well:
// a session that lives on would otherwise keep it, and everybody behind it, for
// ever. The channel tells when nothing is left, and is closed.
func (l *Locker) sweep(p *place) <-chan bool {
	job := sweeping{p, make(chan bool, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweeps = append(l.sweeps, job)
	if !l.sweeping {
		l.sweeping = true
		go l.sweepAll()
	}
	return job.done
}

type sweeping struct {
	place *place
	done  chan bool
}

// sweepAll works until nothing is left to remove.
func (l *Locker) sweepAll() {
	pause := 10 * time.Millisecond
	for {
		l.mu.Lock()
		jobs := l.sweeps
		l.sweeps = nil
		if len(jobs) == 0 {
			l.sweeping = false
			l.idle.Broadcast()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		left := l.sweepSome(jobs)
		if len(left) == 0 {
			pause = 10 * time.Millisecond
			continue
		}
		l.mu.Lock()
		l.sweeps = append(left, l.sweeps...)
		l.mu.Unlock()
		select {
		case <-time.After(pause):
			pause = min(2*pause, sweepPause)
		case <-l.closing.Done():
		}
	}
}

// sweepSome tries every job once and returns those to try again: none once the
// Locker is closed.
func (l *Locker) sweepSome(jobs []sweeping) (left []sweeping) {
	last := l.closing.Err() != nil
	for i, job := range jobs {
		ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
		err := l.remove(ctx, job.place)
		cancel()
		gone := err == nil || errors.Is(err, errGone) || l.ended(job.place)
		if !gone && !zkclient.Refused(err) { // no answer: the others would not get one either
			left = append(left, jobs[i:]...)
			break
		}
		if gone {
			job.end(true)
		} else {
			left = append(left, job)
		}
	}
	if !last {
		return left
	}
	for _, job := range left {
		job.end(l.ended(job.place))
	}
	return nil
}

func (j sweeping) end(gone bool) {
	j.done <- gone
	close(j.done)
}

// ended reports whether the session of a place has ended for certain: the client
// was told so by a server, and has another one or none.
func (l *Locker) ended(p *place) bool { return !l.current(p.anchor.session) }

// cleanUp removes what a failed attempt has left, and reports whether that was
// confirmed before the caller lost patience. It does not stop when the caller's
// context is over: that is when it is needed most.
func (l *Locker) cleanUp(ctx context.Context, p *place) bool {
	done := l.sweep(p)
	patience := time.NewTimer(mostPatience)
	defer patience.Stop()
	select {
	case gone := <-done:
		return gone
	case <-ctx.Done():
	case <-l.closing.Done():
	case <-patience.C:
		return false
	}
	select {
	case gone := <-done:
		return gone
	case <-time.After(confirmTime):
		return false
	}
}
