// Package peers puts other people's locks into the safety matrix, beside the
// Lockstile backend for the same store: the same servers, faults and scenarios.
//
// Each is used as its documentation says, by a careful user: contexts count,
// leases are extended at a third of their length, and a holder stops believing
// when the library gives it any reason to. What a library does not offer (a
// token, above all) is not added.
package peers

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/testbed"
)

// peer is somebody else's lock. Its URL is that of one of our subjects, whose
// servers it uses, with its scheme before it.
type peer struct {
	scheme     string
	beside     string // the name of the subject whose servers it uses
	name       string
	about      string
	guarantees locker.Guarantees
	open       func(ctx context.Context, url string) (matrix.Peer, error)
}

// oneRedis is what a lock with a lease on one Redis assumes, whatever its page says.
var oneRedis = locker.Guarantees{
	Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.AgreedClocks | locker.DurableServer | locker.DurableReplica,
	Tokens:    locker.Unpromised, FreedBy: locker.FreedByExpiry,
}

// peers declares for each library what its documentation claims. Where the documentation
// claims nothing, it declares the weakest guarantee that the mechanism allows.
func peers() []peer {
	return []peer{
		{
			scheme: "redislock", beside: "singlenode", name: "redislock", about: "one Redis that keeps nothing on disk",
			guarantees: oneRedis, open: openRedislock,
		},
		{
			scheme: "redislock", beside: "singlenode+replica", name: "redislock+replica", about: "one Redis with a replica that may take over",
			guarantees: oneRedis, open: openRedislock,
		},
		{
			scheme: "redsync", beside: "singlenode", name: "redsync/1", about: "the same",
			guarantees: oneRedis, open: openRedsync,
		},
		{
			// Its page sends the reader to the Redlock page, which asks for
			// steady clocks, work that ends within the validity, and either
			// durable nodes or a delayed restart.
			scheme: "redsync", beside: "redlock", name: "redsync/5", about: "five Redis that keep nothing on disk",
			guarantees: locker.Guarantees{
				Exclusion: locker.PromptHolder | locker.SteadyClocks | locker.DurableServer | locker.DelayedRestart,
				Tokens:    locker.Unpromised, FreedBy: locker.FreedByExpiry, ServerFailures: 2,
			},
			open: openRedsync,
		},
		{
			scheme: "redislock", beside: "singlenode+cluster", name: "redislock+cluster", about: "a Redis Cluster of two masters with a replica each",
			guarantees: oneRedis, open: openRedislock,
		},
		{
			scheme: "redsync", beside: "singlenode+cluster", name: "redsync+cluster", about: "the same",
			guarantees: oneRedis, open: openRedsync,
		},
		{
			scheme: "mutex", beside: "etcd", name: "Mutex",
			about:      "etcd's concurrency.Mutex, a session each, closed after an error; three servers",
			guarantees: ofMutex(), open: openMutex(false),
		},
		{
			scheme: "mutex-kept", beside: "etcd", name: "Mutex, trusting",
			about:      "the same; a session is used again after a Lock that has failed",
			guarantees: ofMutex(), open: openMutex(true),
		},
		{
			// ZooKeeper's own recipe claims more: that no two clients think
			// at any moment that they hold the same lock.
			scheme: "zklock", beside: "zookeeper", name: "zk.Lock", about: "go-zookeeper's lock; three servers",
			guarantees: locker.Guarantees{
				Exclusion: locker.PromptHolder | locker.SteadyClocks, Tokens: locker.Unpromised,
				Fair: true, FreedBy: locker.FreedBySession, ServerFailures: 1,
			},
			open: openZooKeeper,
		},
	}
}

// ofMutex is what etcd's notes on the usage of lock and lease say: a lease assumes
// clocks and on holders that are not paused, and storage should validate versions.
// The revision of the grant is the token here.
func ofMutex() locker.Guarantees {
	return locker.Guarantees{Exclusion: locker.PromptHolder | locker.SteadyClocks, Fair: true, FreedBy: locker.FreedBySession, ServerFailures: 1}
}

// Subjects returns every peer after the Lockstile backend whose servers it uses.
func Subjects() (all []matrix.Subject) {
	for _, ours := range testbed.Subjects() {
		n := len(all)
		for _, p := range peers() {
			if p.beside == ours.Name {
				all = append(all, p.subject(ours))
			}
		}
		if len(all) > n {
			all = append(all[:n:n], append([]matrix.Subject{ours}, all[n:]...)...)
		}
	}
	return all
}

func (p peer) subject(ours matrix.Subject) matrix.Subject {
	return matrix.Subject{
		Name: p.name, About: p.about, Guarantees: p.guarantees, TTL: ours.TTL,
		Start: func(lab *matrix.Lab) (*matrix.System, error) {
			sys, err := ours.Start(lab)
			if err != nil {
				return nil, err
			}
			sys.RenewsItself = p.guarantees.FreedBy == locker.FreedBySession
			client := sys.Client
			sys.Client = func() (string, conformance.Network, error) {
				url, net, err := client()
				return p.scheme + "+" + url, net, err
			}
			if part := sys.Part; part != nil {
				sys.Part = func(spare bool) (matrix.Part, error) {
					some, err := part(spare)
					some.URL = p.scheme + "+" + some.URL
					return some, err
				}
			}
			return sys, nil
		},
	}
}

// IsPeer reports whether a name is a peer's, and not one of our backends'.
func IsPeer(name string) bool {
	return slices.ContainsFunc(peers(), func(p peer) bool { return p.name == name })
}

// Modules are the modules of the peers, and of the clients that they use.
func Modules() []string {
	return []string{
		"github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9",
		"go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
	}
}

// Intro says how the peers are used. Notes explain the cells that surprise. Both are
// Markdown.
var (
	//go:embed intro.md
	Intro string
	//go:embed notes.md
	Notes string
)

// Open returns what a worker process locks with, for a URL of one of the Subjects.
func Open(ctx context.Context, url string) (matrix.Peer, error) {
	scheme, rest, _ := strings.Cut(url, "+")
	for _, p := range peers() {
		if p.scheme == scheme {
			return p.open(ctx, rest)
		}
	}
	l, err := testbed.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("peers: open %q: %w", url, err)
	}
	return matrix.AsPeer(l), nil
}

// servers returns the servers that a testbed's URL lists.
func servers(url string) []string {
	_, list, _ := strings.Cut(url, "://")
	list, _, _ = strings.Cut(list, "?")
	return strings.Split(list, ",")
}

// enough bounds calls to a library after its caller has given up.
const enough = 2 * time.Second
