package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/redlock"
)

// graceTime is how long nodes are waited for that are slower than a majority.
const graceTime = 250 * time.Millisecond

func redlockSchemes() []Scheme {
	b, err := newRedlock([]*redis.Options{{Addr: "1"}, {Addr: "2"}, {Addr: "3"}}, redlock.Options{})
	if err != nil {
		panic(err) // three clients, which connect when they are used
	}
	g := b.Guarantees()
	_ = b.Close() // nothing was opened
	return []Scheme{
		{"redlock://[USER:PASS@]HOST,HOST,HOST[,…][/DB]", "a majority of independent Redis masters (here: of 3)", g},
		{"redlocks://[USER:PASS@]HOST,HOST,HOST[,…][/DB]", "the same, over TLS", g},
	}
}

// Redlock is a Locker and the clients that were made for it.
type Redlock struct {
	*redlock.Locker
	Nodes   []redis.UniversalClient
	Options redlock.Options
}

func newRedlock(nodes []*redis.Options, opts redlock.Options) (*Redlock, error) {
	b := &Redlock{Options: opts}
	for _, o := range nodes {
		b.Nodes = append(b.Nodes, redis.NewClient(o))
	}
	var err error
	if b.Locker, err = redlock.New(b.Nodes, opts); err != nil {
		return nil, errors.Join(err, b.closeClients())
	}
	return b, nil
}

// Close closes the Locker first: its clean-ups need the clients.
func (b *Redlock) Close() error { return errors.Join(b.Locker.Close(), b.closeClients()) }

func (b *Redlock) closeClients() (err error) {
	for _, c := range b.Nodes {
		err = errors.Join(err, c.Close())
	}
	return err
}

// openRedlock takes one user, password and database for all nodes.
func openRedlock(ctx context.Context, scheme, rest string) (Backend, error) {
	a, err := parseServers(rest, "6379")
	if err != nil {
		return nil, err
	}
	opts, err := redlockOptions(&a)
	if err != nil {
		return nil, err
	}
	files, err := a.takeFiles(scheme == "redlocks", "redlocks")
	if err != nil {
		return nil, err
	}
	if err := a.forRedis(scheme); err != nil {
		return nil, err
	}
	single := map[string]string{"redlock": "redis", "redlocks": "rediss"}[scheme]
	var nodes []*redis.Options
	for _, host := range a.hosts {
		one := a
		one.hosts = []string{host}
		o, err := one.oneRedis(single, files)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, o)
	}
	b, err := newRedlock(nodes, opts)
	if err != nil {
		return nil, err
	}
	if err := b.ping(ctx, a.hosts); err != nil {
		return b, err
	}
	return b, nil
}

// redlockOptions takes our own parameters off before the client looks at the
// rest.
func redlockOptions(a *address) (opts redlock.Options, err error) {
	opts.Prefix = a.take("prefix")
	err = cmp.Or(a.duration("max_ttl", &opts.MaxTTL), a.duration("node_timeout", &opts.NodeTimeout), a.boolean("durable_nodes", &opts.DurableNodes))
	return opts, err
}

// ping returns an error if no majority answers, if a node refuses us (a minority
// may be down, but one with another password never comes back), or if two nodes
// are one server. Nodes that are slower than a majority have a short time left:
// one that hangs must not hold up what the others can serve.
func (b *Redlock) ping(ctx context.Context, hosts []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel() // a node that has not answered by then is not waited for
	answers := make(chan answer, len(b.Nodes))
	for i, c := range b.Nodes {
		go func() { answers <- pingNode(ctx, c, hosts[i]) }()
	}
	var seen []answer
	var grace <-chan time.Time
	good := 0
	for len(seen) < len(hosts) {
		select {
		case g := <-answers:
			seen = append(seen, g)
			if g.err == nil {
				good++
			}
		case <-grace:
			return verdict(hosts, seen)
		}
		if 2*good > len(hosts) && grace == nil {
			grace = time.After(graceTime)
		}
	}
	return verdict(hosts, seen)
}

// answer is how one node has answered.
type answer struct {
	host, run string // run says which server process it is, where the user may ask
	err       error
}

func pingNode(ctx context.Context, rdb redis.UniversalClient, host string) answer {
	if err := ping(ctx, rdb); err != nil {
		return answer{host: host, err: err}
	}
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return answer{host: host} // which locks find out, and say what is missing
	}
	_, run, _ := strings.Cut(info, "run_id:")
	run, _, _ = strings.Cut(run, "\r")
	return answer{host: host, run: run}
}

func verdict(hosts []string, seen []answer) error {
	var problems []string
	var causes []any
	refused, known := false, map[string]string{}
	for _, g := range seen {
		if g.err != nil {
			var reply redis.Error
			refused = refused || errors.As(g.err, &reply)
			problems = append(problems, literal(g.host)+": %w")
			causes = append(causes, g.err)
			continue
		}
		if other := known[g.run]; other != "" && g.run != "" {
			return fmt.Errorf("nodes %s and %s are one server, which has one vote: give each node once", other, g.host)
		}
		known[g.run] = g.host
	}
	if !refused && 2*(len(seen)-len(problems)) > len(hosts) {
		return nil
	}
	format := "%w: redis nodes " + literal(strings.Join(hosts, ",")) + ": " + strings.Join(problems, "; ")
	return fmt.Errorf(format, append([]any{locker.ErrUnavailable}, causes...)...)
}

// literal is text as part of a format. The zone of an IPv6 address follows a %.
func literal(text string) string { return strings.ReplaceAll(text, "%", "%%") }
