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
	if errors.Is(err, zk.ErrNoNode) {
		return info, nil
	}
	holders, places := holding(children)
	if err != nil || places == 0 {
		return info, err
	}
	info = locker.Info{Held: true, Waiters: places - len(holders)}
	if !shares(holders[0]) {
		h, err := s.holder(ctx, queue, holders[0])
		info.Holder, info.Token, info.TimeLeft = h.Text, fencing.Token(h.Number), h.TimeLeft
		return info, err
	}
	info.Kind = locker.KindShared
	for _, node := range holders {
		h, err := s.holder(ctx, queue, node)
		switch {
		case errors.Is(err, errGone):
			continue
		case err != nil:
			return info, err
		}
		info.Holders = append(info.Holders, h)
		info.Token, info.TimeLeft = fencing.Token(h.Number), max(info.TimeLeft, h.TimeLeft)
	}
	if len(info.Holders) == 0 {
		return info, errGone
	}
	return info, nil
}

// holder looks at the node of a holder.
func (s *store) holder(ctx context.Context, queue, node string) (locker.Holder, error) {
	h, err := zkclient.Call(ctx, s.zk, func() (locker.Holder, error) {
		h := locker.Holder{Slot: -1}
		data, stat, err := s.zk.Get(queue + "/" + node)
		if err == nil {
			var first uint64
			first, err = firstToken(stat.Czxid)
			h.Number = locker.Number(first)
			h.Text, h.TimeLeft = readData(data)
		}
		return h, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = errGone
	}
	return h, err
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
	if !ok || err != nil || timeout < 0 {
		return "", 0
	}
	return holder, timeout
}

// Break implements [driver.Breaker].
func (s *store) Break(ctx context.Context, name string, number locker.Number) (broken bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	children, err := s.latest(ctx, s.queue(name))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	holders, _ := holding(children)
	for _, node := range holders {
		if err != nil {
			break
		}
		var ok bool
		ok, err = s.breakOne(ctx, s.queue(name), node, number)
		broken = broken || ok
	}
	return broken, err
}

// breakOne removes the node of a holder, if it has that number or the number is 0. A node
// whose number was looked at is the one that is removed: its name is never used again.
func (s *store) breakOne(ctx context.Context, queue, node string, number locker.Number) (bool, error) {
	err := error(nil)
	if number != 0 {
		var h locker.Holder
		if h, err = s.holder(ctx, queue, node); err == nil && h.Number != number {
			return false, nil
		}
	}
	if err == nil {
		err = s.zk.Remove(ctx, queue+"/"+node)
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, errGone) { // it was given back meanwhile
		return false, nil
	}
	return err == nil, err
}
