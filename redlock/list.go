package redlock

import (
	"context"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/redisnode"
)

// listing is what one node says of the names that are held there.
type listing map[string]redisnode.View

// List implements [locker.Lister].
func (s *store) List(ctx context.Context, prefix string) ([]locker.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the scans that were not waited for
	// A scan takes longer than a look, so it has the caller's context.
	nodes, err := gather(ctx, s, func(_ context.Context, n *redisnode.Node) (listing, error) {
		views, err := n.List(ctx, s.opts.Prefix+prefix)
		all := make(listing, len(views))
		for _, v := range views {
			all[v.Name] = v
		}
		return all, err
	}, s.allDecided)
	if err != nil {
		return nil, err
	}
	var infos []locker.Info
	for name, views := range byName(nodes) {
		if info := s.merge(views); info.Held {
			info.Name = strings.TrimPrefix(name, s.opts.Prefix)
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// byName returns what each node says of each name that is held at any.
func byName(nodes []listing) map[string][]redisnode.View {
	names := make(map[string][]redisnode.View)
	for _, node := range nodes {
		for name := range node {
			names[name] = nil
		}
	}
	for name := range names {
		for _, node := range nodes {
			names[name] = append(names[name], node[name])
		}
	}
	return names
}

// allDecided is decided for all names. Those that only other nodes have are held by no
// majority.
func (s *store) allDecided(nodes []listing) bool {
	for _, views := range byName(nodes) {
		if !s.decided(views) {
			return false
		}
	}
	return true
}
