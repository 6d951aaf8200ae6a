package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/zkclient"
)

// Inspect implements [locker.Inspector]. Nobody can see when a session would
// end, so TimeLeft is its timeout: how long the lock stays if the holder falls
// silent now, or 0 if the holder is not one of ours. The token of a free lock is
// not known.
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
	parent := l.base + "/" + zkclient.Escape(name)
	info := locker.Info{Name: name}
	places, first, err := l.first(ctx, parent)
	if err != nil || places == 0 {
		return info, err
	}
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := zkclient.Call(ctx, l.zk, func() (node, error) {
		data, stat, err := l.zk.Get(parent + "/" + first)
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
	info.Holder, info.TimeLeft = readData(n.data)
	info.Waiters = places - 1
	return info, nil
}

// first lists a queue as it is now.
func (l *Locker) first(ctx context.Context, parent string) (places int, first string, err error) {
	children, err := l.latest(ctx, parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, "", err
	}
	places, first, _ = inLine(children, "")
	return places, first, nil
}

// nodeData is what our nodes have: the holder's text, and on a second line the
// timeout of its session, which nobody else can see.
func nodeData(holder string, timeout time.Duration) []byte {
	return []byte(holder + "\n" + timeout.String())
}

// readData is nodeData backwards. Nodes of other libraries have what they have.
func readData(data []byte) (holder string, timeout time.Duration) {
	holder, rest, ok := strings.Cut(string(data), "\n")
	timeout, err := time.ParseDuration(rest)
	if !ok || err != nil {
		return "", 0
	}
	return holder, timeout
}

// Break implements [locker.Breaker]: it deletes the first node of the queue,
// whoever made it. The next waiter holds the lock at once.
func (l *Locker) Break(ctx context.Context, name string) (bool, error) {
	if err := locker.CheckName(name); err != nil {
		return false, err
	}
	parent := l.base + "/" + zkclient.Escape(name)
	places, first, err := l.first(ctx, parent)
	if err == nil && places > 0 {
		err = l.zk.Remove(ctx, parent+"/"+first)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil // it was given back meanwhile
	case err != nil:
		return false, fmt.Errorf("zookeeper: break %q: %w", name, unavailable(err))
	}
	return places > 0, nil
}
