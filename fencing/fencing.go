// Package fencing holds the half of a lock that lives in the storage.
//
// A lock with a lease can be lost while its holder is paused, and the holder
// does not know. What makes its late write harmless is a number: every grant of
// a lock carries a [Token] greater than those of all earlier grants, the writer
// passes it along, and the storage refuses a token smaller than the greatest it
// has seen. That refusal is a [Guard].
//
// The idea is old: it is the sequencer of Burrows, "The Chubby lock service"
// (OSDI 2006), section 2.4, and the epoch number of primary-backup replication.
// The name is from Kleppmann, "How to do distributed locking" (2016).
//
// The packages below this one are guards for particular stores. This one has no
// dependencies and knows nothing of locks.
package fencing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// Token is a fencing token. Of two grants of one lock the later one has the
// greater token. Tokens of different locks say nothing about each other. The
// zero Token was never granted.
type Token uint64

// String returns the token in decimal, as [ParseToken] reads it.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// SharedToken is the number of a shared lock, a reader's. It is drawn from the same counter
// as the tokens of the lock's exclusive holders, but it is no [Token], so that it opens no
// write. Only the type protects from that: do not convert one to the other.
type SharedToken uint64

// String returns the number in decimal.
func (t SharedToken) String() string { return strconv.FormatUint(uint64(t), 10) }

// ParseToken reads a token that [Token.String] wrote. It reads the zero Token, too.
func ParseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fencing: token %q is not a number from 0 to 18446744073709551615", s)
	}
	return Token(n), nil
}

// ErrStale means that the storage has seen a greater token, which shuts this one out:
// somebody else has been granted the lock since. Nothing was written. It is never worth trying
// again with the same token.
var ErrStale = errors.New("stale fencing token")

// ErrZeroToken means that a guard was called with the zero [Token] or [SharedToken].
// Nothing was written. No lock has that token, so no lock protects what it was used for.
var ErrZeroToken = errors.New("the zero token was never granted: was the lock's token passed on? (a shared lock has a SharedToken instead)")

// StaleError is an [ErrStale] that says which tokens were compared.
type StaleError struct {
	Resource string
	Token    Token // what the writer brought, or the reader
	Seen     Token // the greatest that the storage had seen of those that shut it out
	Reader   bool  // Token is the number of a [SharedToken]
}

func (e *StaleError) Error() string {
	who := "writer"
	if e.Reader {
		who = "reader"
	}
	return fmt.Sprintf("%v: %.100q has seen token %d, this %s has %d: the lock has had another holder since",
		ErrStale, e.Resource, e.Seen, who, e.Token)
}

// Unwrap makes errors.Is(err, ErrStale) true.
func (e *StaleError) Unwrap() error { return ErrStale }

// Guard remembers the greatest token that a resource has seen and refuses
// smaller ones.
type Guard interface {
	// Check accepts a token if it has accepted no greater one for resource
	// before, and remembers it. Otherwise the error is an [ErrStale], and
	// nothing has changed. The zero Token is an [ErrZeroToken], also for a
	// resource that was never seen. After any other error the token may or
	// may not have been remembered; both are safe.
	//
	// Between a Check and a separate write there is a gap, in which the
	// writer can be paused. Wherever the storage allows it, use the guard's
	// own method that checks and writes in one step. Check alone is for
	// claiming a resource right after the lock was granted: after it, writes of
	// earlier holders are refused.
	Check(ctx context.Context, resource string, token Token) error
}

// SharedGuard is a Guard that knows readers, too. It keeps two marks for a resource: the
// greatest token that wrote, and the greatest number that read. It accepts a write if its
// token is not smaller than either mark, and a read if its number is not smaller than the
// mark of those who wrote.
//
// With one mark, a reader that still holds the lock would be refused because a later one
// came by. If readers left no mark, an earlier holder's late write would come between two
// reads of a reader that holds the lock.
type SharedGuard interface {
	Guard

	// CheckShared accepts a reader's number if the guard has accepted no greater token
	// with Check, and remembers it: from then on, earlier holders' writes are refused.
	// Otherwise the error is an [ErrStale], and nothing has changed. Zero is an
	// [ErrZeroToken]. After any other error the number may or may not have been
	// remembered; both are safe.
	//
	// Between a CheckShared and a separate read there is a gap, too. Where the guard has
	// no method that reads in one step with the check, check once more after the last
	// read: if that is accepted, no later holder had written before it.
	CheckShared(ctx context.Context, resource string, token SharedToken) error
}

// Counter hands out tokens without a lock. An example is a sequence in the
// database that a lock in another store protects.
type Counter interface {
	// Next returns a token greater than all that it returned before for name.
	// After an error a token may have been used up; a gap is harmless.
	Next(ctx context.Context, name string) (Token, error)
}

// Memory is a [Guard] and a [Counter] in the memory of one process, for tests
// and for resources that live and die with the process. Its zero value is ready
// to use. It keeps one number for every resource and every name it has seen.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*resource
	last      map[string]Token
}

// resource is what a Memory knows of one.
type resource struct {
	turn    chan struct{} // has room for the one who checks, and writes or reads
	written Token         // the greatest that has written
	read    SharedToken   // the greatest that has read
}

var (
	_ SharedGuard = (*Memory)(nil)
	_ Counter     = (*Memory)(nil)
)

// Check implements [Guard].
func (m *Memory) Check(ctx context.Context, resource string, token Token) error {
	return m.Write(ctx, resource, token, func() error { return nil })
}

// Write runs write if token is not stale, in one step with the check: no other
// Check or Write of the resource comes between. It returns what write returns.
// The token stays remembered even when write fails. If ctx ends while others write, nothing
// has happened.
//
// Others wait for write, which makes it one step with the check, so it must not call
// the same Memory for the same resource.
func (m *Memory) Write(ctx context.Context, resource string, token Token, write func() error) error {
	if token == 0 {
		return fmt.Errorf("fencing: write %.100q: %w", resource, ErrZeroToken)
	}
	r, err := m.enter(ctx, resource)
	if err != nil {
		return fmt.Errorf("fencing: write %.100q: %w", resource, err)
	}
	defer r.leave()
	if most := max(r.written, Token(r.read)); token < most {
		return &StaleError{Resource: resource, Token: token, Seen: most}
	}
	r.written = token
	return write()
}

// CheckShared implements [SharedGuard].
func (m *Memory) CheckShared(ctx context.Context, resource string, token SharedToken) error {
	return m.Read(ctx, resource, token, func() error { return nil })
}

// Read runs read if the reader's number is not stale, in one step with the check, as Write
// does. It returns what read returns.
func (m *Memory) Read(ctx context.Context, resource string, token SharedToken, read func() error) error {
	if token == 0 {
		return fmt.Errorf("fencing: read %.100q: %w", resource, ErrZeroToken)
	}
	r, err := m.enter(ctx, resource)
	if err != nil {
		return fmt.Errorf("fencing: read %.100q: %w", resource, err)
	}
	defer r.leave()
	if Token(token) < r.written {
		return &StaleError{Resource: resource, Token: Token(token), Seen: r.written, Reader: true}
	}
	r.read = max(r.read, token)
	return read()
}

// enter waits until nobody else checks a resource. Then it looks at ctx: a caller that has given
// up must not write.
func (m *Memory) enter(ctx context.Context, name string) (*resource, error) {
	m.mu.Lock()
	r := m.resources[name]
	if r == nil {
		if m.resources == nil {
			m.resources = make(map[string]*resource)
		}
		r = &resource{turn: make(chan struct{}, 1)}
		m.resources[name] = r
	}
	m.mu.Unlock()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		r.leave()
		return nil, err
	}
	return r, nil
}

func (r *resource) leave() { <-r.turn }

// Next implements [Counter]: 1, 2, 3, … for each name.
func (m *Memory) Next(ctx context.Context, name string) (Token, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("fencing: next token of %.100q: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = make(map[string]Token)
	}
	m.last[name]++
	return m.last[name], nil
}
