package open

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/redlock"
)

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

// redlockBackend is a Locker and the clients that were made for it.
type redlockBackend struct {
	*redlock.Locker
	clients []redis.UniversalClient
	opts    redlock.Options
}

func newRedlock(nodes []*redis.Options, opts redlock.Options) (*redlockBackend, error) {
	b := &redlockBackend{opts: opts}
	for _, o := range nodes {
		b.clients = append(b.clients, redis.NewClient(o))
	}
	var err error
	if b.Locker, err = redlock.New(b.clients, opts); err != nil {
		return nil, errors.Join(err, b.closeClients())
	}
	return b, nil
}

// Close closes the Locker first: its clean-ups need the clients.
func (b *redlockBackend) Close() error { return errors.Join(b.Locker.Close(), b.closeClients()) }

func (b *redlockBackend) closeClients() (err error) {
	for _, c := range b.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// openRedlock takes one user, password and database for all nodes.
func openRedlock(ctx context.Context, scheme, rest string) (Backend, error) {
	a, err := parseAddress(rest, "6379")
	if err != nil {
		return nil, err
	}
	opts, err := redlockOptions(&a)
	if err != nil {
		return nil, err
	}
	single := map[string]string{"redlock": "redis", "redlocks": "rediss"}[scheme]
	var nodes []*redis.Options
	for _, host := range a.hosts {
		one := a
		one.hosts = []string{host}
		o, err := redis.ParseURL(one.public(single))
		if err != nil {
			return nil, err
		}
		if err := checkPool(o.PoolSize); err != nil {
			return nil, err
		}
		o.Username, o.Password = a.user, a.pass
		o.ContextTimeoutEnabled = true
		setTimes(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.DialerRetries)
		speakTLS(o)
		nodes = append(nodes, o)
	}
	b, err := newRedlock(nodes, opts)
	if err != nil {
		return nil, err
	}
	if err := b.ping(ctx, a.hosts); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// redlockOptions takes our own parameters off before the client looks at the
// rest.
func redlockOptions(a *address) (opts redlock.Options, err error) {
	opts.Prefix = a.take("prefix")
	for name, to := range map[string]*time.Duration{"max_ttl": &opts.MaxTTL, "node_timeout": &opts.NodeTimeout} {
		if text := a.take(name); text != "" {
			if *to, err = time.ParseDuration(text); err != nil {
				return opts, fmt.Errorf("%s=%q is not a duration such as 30s or 1m30s", name, text)
			}
		}
	}
	if text := a.take("durable_nodes"); text != "" {
		if opts.DurableNodes, err = strconv.ParseBool(text); err != nil {
			return opts, fmt.Errorf("durable_nodes=%q is neither true nor false", text)
		}
	}
	return opts, nil
}

// ping returns an error if no majority answers, or if a node refuses us: a
// minority may be down, but one with another password never comes back.
func (b *redlockBackend) ping(ctx context.Context, hosts []string) error {
	errs := make([]error, len(b.clients))
	done := make(chan int, len(b.clients))
	for i, c := range b.clients {
		go func() {
			errs[i] = ping(ctx, c)
			done <- i
		}()
	}
	var problems []string
	var causes []any
	refused := false
	for range b.clients {
		i := <-done
		if errs[i] == nil {
			continue
		}
		var reply redis.Error
		refused = refused || errors.As(errs[i], &reply)
		problems = append(problems, literal(hosts[i])+": %w")
		causes = append(causes, errs[i])
	}
	if !refused && 2*len(problems) < len(hosts) {
		return nil
	}
	format := "%w: redis nodes " + literal(strings.Join(hosts, ",")) + ": " + strings.Join(problems, "; ")
	return fmt.Errorf(format, append([]any{locker.ErrUnavailable}, causes...)...)
}

// literal is text as part of a format. The zone of an IPv6 address follows a %.
func literal(text string) string { return strings.ReplaceAll(text, "%", "%%") }
