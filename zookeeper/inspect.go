package zookeeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/zkclient"
)

// Inspect implements [locker.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (info locker.Info, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for range 10 { // times that the holder may go between two looks
		if info, err = s.inspect(ctx, s.queue(name)); !errors.Is(err, errGone) {
			break
		}
	}
	return info, err
}

func (s *store) inspect(ctx context.Context, queue string) (info locker.Info, err error) {
	children, err := s.latest(ctx, queue)
	places, first, _ := inQueue(children, "")
	if errors.Is(err, zk.ErrNoNode) || err == nil && places == 0 {
		return info, nil
	}
	if err != nil {
		return info, err
	}
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := zkclient.Call(ctx, s.zk, func() (node, error) {
		data, stat, err := s.zk.Get(queue + "/" + first)
		return node{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return info, errGone
	case err != nil:
		return info, err
	}
	token, err := firstToken(n.stat.Czxid)
	info = locker.Info{Held: true, Token: fencing.Token(token), Waiters: places - 1}
	info.Holder, info.TimeLeft = readData(n.data)
	return info, err
}

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	nodes, err := s.latest(ctx, s.opts.Base)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	var infos []locker.Info
	for _, node := range nodes {
		name, ok := zkclient.Unescape(node)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		info, err := s.Inspect(ctx, name)
		switch {
		case err != nil && !errors.Is(err, errGone):
			return nil, err
		case info.Held:
			info.Name = name
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// nodeData is what our nodes have: the holder's text, and on a second line the
// timeout of its session, which nobody else can see.
func nodeData(holder string, timeout time.Duration) []byte {
	return []byte(holder + "\n" + timeout.String())
}

// readData is nodeData backwards. Of nodes of other libraries it reads nothing.
func readData(data []byte) (holder string, timeout time.Duration) {
	holder, rest, ok := strings.Cut(string(data), "\n")
	timeout, err := time.ParseDuration(rest)
	if !ok || err != nil {
		return "", 0
	}
	return holder, timeout
}

// Break implements [locker.Breaker].
func (s *store) Break(ctx context.Context, name string, tokens ...uint64) (bool, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	children, err := s.latest(ctx, s.queue(name))
	_, first, _ := inQueue(children, "")
	if err == nil && first != "" {
		err = s.zk.Remove(ctx, s.queue(name)+"/"+first)
	}
	if errors.Is(err, zk.ErrNoNode) { // it was given back meanwhile
		return false, nil
	}
	return err == nil && first != "", err
}
