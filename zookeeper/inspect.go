package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Inspect implements [locker.Inspector]. The holder is whatever text its node
// has, which for other libraries' locks is theirs. A session has no end that
// could be told, so TimeLeft is 0; the token of a free lock is not known.
func (l *Locker) Inspect(ctx context.Context, name string) (locker.Info, error) {
	if err := locker.CheckName(name); err != nil {
		return locker.Info{}, err
	}
	info, err := l.inspect(ctx, name)
	for range 10 { // times that the holder may go between two looks
		if !errors.Is(err, errGone) {
			break
		}
		info, err = l.inspect(ctx, name)
	}
	if err != nil {
		return locker.Info{}, fmt.Errorf("zookeeper: inspect %q: %w", name, unavailable(err))
	}
	return info, nil
}

func (l *Locker) inspect(ctx context.Context, name string) (locker.Info, error) {
	parent := l.base + "/" + escape(name)
	info := locker.Info{Name: name}
	places, first, err := l.first(ctx, parent)
	if err != nil || places == 0 {
		return info, err
	}
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := call(ctx, l, func() (node, error) {
		data, stat, err := l.conn.Get(parent + "/" + first)
		return node{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return info, errGone
	case err != nil:
		return info, err
	}
	info.Held = true
	info.Token = fencing.Token(n.stat.Czxid)
	info.Holder = printable(n.data)
	info.Waiters = places - 1
	return info, nil
}

// first lists a queue as it is now: a server that lags behind catches up first.
func (l *Locker) first(ctx context.Context, parent string) (places int, first string, err error) {
	if err := act(ctx, l, func() error { _, err := l.conn.Sync(parent); return err }); err != nil {
		return 0, "", err
	}
	children, err := l.children(ctx, parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, "", err
	}
	places, first, _ = inLine(children, "")
	return places, first, nil
}

// printable returns text that a terminal can bear, or "".
func printable(data []byte) string {
	if len(data) > locker.MaxHolder || !utf8.Valid(data) {
		return ""
	}
	for _, r := range string(data) {
		if !unicode.IsPrint(r) {
			return ""
		}
	}
	return string(data)
}

// Break implements [locker.Breaker]: it deletes the first node of the queue,
// whoever made it. The next waiter holds the lock at once.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	if err := locker.CheckName(name); err != nil {
		return false, err
	}
	parent := l.base + "/" + escape(name)
	places, first, err := l.first(ctx, parent)
	if err == nil && places > 0 {
		err = act(ctx, l, func() error { return l.conn.Delete(parent+"/"+first, -1) })
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil // it was given back meanwhile
	case err != nil:
		return false, fmt.Errorf("zookeeper: break %q: %w", name, unavailable(err))
	}
	return places > 0, nil
}
