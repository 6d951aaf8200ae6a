package dial

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/redisnode"
	"github.com/lockstile/locker/singlenode"
)

const (
	// answerTime bounds how long URL waits for a server.
	answerTime = 5 * time.Second

	// replyTime is the default for dialling and for each read and write. A
	// renewal must fail early enough for the next one to be tried. It must
	// be more than the second that a server may wait for its replicas.
	replyTime = 2 * time.Second
)

func redisSchemes() []Scheme {
	rdb := redis.NewClient(&redis.Options{}) // connects when it is used, which it is not
	b, err := newRedis(rdb, singlenode.Options{})
	if err != nil {
		panic(err) // a client and no options: nothing that could be wrong
	}
	g := b.Guarantees()
	_ = b.Close() // nothing was opened
	return []Scheme{
		{"redis://[USER:PASS@]HOST[:PORT][/DB]", "one Redis server", g},
		{"rediss://[USER:PASS@]HOST[:PORT][/DB]", "one Redis server, over TLS", g},
		{"redis-sentinel://[USER:PASS@]HOST,…/MASTER[/DB]", "the Redis master that Sentinels name", g},
		{"redis-cluster://[USER:PASS@]HOST,…", "a Redis Cluster: each name on one master", g},
	}
}

// Redis is a Locker and the client that was made for it.
type Redis struct {
	*singlenode.Locker
	Client  redis.UniversalClient
	Options singlenode.Options
}

func newRedis(rdb redis.UniversalClient, opts singlenode.Options) (*Redis, error) {
	l, err := singlenode.New(rdb, opts)
	if err != nil {
		return nil, err
	}
	return &Redis{l, rdb, opts}, nil
}

// Close closes the Locker first: its clean-ups need the client.
func (b *Redis) Close() error {
	return errors.Join(b.Locker.Close(), b.Client.Close())
}

func openRedis(ctx context.Context, scheme, rest string) (Backend, error) {
	a, own, err := parseRedis(rest, "6379")
	if err != nil {
		return nil, err
	}
	if len(a.hosts) > 1 {
		return nil, fmt.Errorf("%s:// takes one host: several are for redis-sentinel:// or redis-cluster://", scheme)
	}
	files, err := a.takeFiles(scheme == "rediss", "rediss")
	if err != nil {
		return nil, err
	}
	if err := a.forRedis(scheme); err != nil {
		return nil, err
	}
	o, err := a.oneRedis(scheme, files)
	if err != nil {
		return nil, err
	}
	return serve(ctx, redis.NewClient(o), own, "redis at "+o.Addr)
}

// oneRedis returns the options of a client of one server.
func (a *address) oneRedis(scheme string, files files) (*redis.Options, error) {
	o, err := redis.ParseURL(a.public(scheme))
	if err != nil {
		return nil, err
	}
	o.Username, o.Password = a.user, a.pass
	o.ContextTimeoutEnabled = true
	setTimes(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.DialerRetries)
	speakTLS(o, files)
	return o, nil
}

// openSentinel takes the user and the password for the server that keeps the
// locks, as everywhere; Sentinels have parameters of their own.
func openSentinel(ctx context.Context, scheme, rest string) (Backend, error) {
	a, own, err := parseRedis(rest, "26379")
	if err != nil {
		return nil, err
	}
	sentinelUser, sentinelPass := a.take("sentinel_username"), a.take("sentinel_password")
	if sentinelUser != "" && sentinelPass == "" {
		return nil, fmt.Errorf("%s:// takes no sentinel_username without a sentinel_password", scheme)
	}
	if a.take("username")+a.take("password") != "" {
		return nil, fmt.Errorf("%s:// takes the user name and password before the hosts", scheme)
	}
	master, db, _ := strings.Cut(a.path, "/")
	if master == "" {
		return nil, fmt.Errorf("%s:// needs the name of the master as its path", scheme)
	}
	a.path = db
	if err := a.forRedis(scheme); err != nil {
		return nil, err
	}
	o, err := redis.ParseFailoverURL(a.public("redis"))
	if err != nil {
		return nil, err
	}
	o.MasterName, o.SentinelAddrs = master, a.hosts
	o.Username, o.Password = a.user, a.pass
	o.SentinelUsername, o.SentinelPassword = sentinelUser, sentinelPass
	o.ContextTimeoutEnabled = true
	setTimes(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.DialerRetries)
	where := fmt.Sprintf("redis master %q of the sentinels at %s", master, strings.Join(a.hosts, ","))
	return serve(ctx, redis.NewFailoverClient(o), own, where)
}

func openCluster(ctx context.Context, scheme, rest string) (Backend, error) {
	a, own, err := parseRedis(rest, "6379")
	if err != nil {
		return nil, err
	}
	if a.path != "" {
		return nil, fmt.Errorf("%s:// takes no path: a Redis Cluster has one database", scheme)
	}
	if err := a.forRedis(scheme); err != nil {
		return nil, err
	}
	o, err := redis.ParseClusterURL(a.public("redis"))
	if err != nil {
		return nil, err
	}
	o.Addrs = a.hosts
	o.Username, o.Password = a.user, a.pass
	o.ContextTimeoutEnabled = true
	setTimes(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.DialerRetries)
	return serve(ctx, redis.NewClusterClient(o), own, "redis cluster at "+strings.Join(a.hosts, ","))
}

// parseRedis takes our own parameters off before the client looks at the rest.
func parseRedis(rest, port string) (a address, own singlenode.Options, err error) {
	a, err = parseServers(rest, port)
	if err != nil {
		return a, own, err
	}
	own.Prefix = a.take("prefix")
	if text := a.take("replicas"); text != "" {
		if want := numberFrom(0, mostConns); !want.ok(text) {
			return a, own, fmt.Errorf("replicas=%q is not %s", text, want.is)
		}
		own.Replicas, err = strconv.Atoi(text)
	}
	return a, own, err
}

// setTimes sets what the URL has left open. One attempt to dial is enough:
// the caller tries again or gives up by its own rules.
func setTimes(dial, read, write *time.Duration, dials *int) {
	for _, d := range []*time.Duration{dial, read, write} {
		if *d == 0 {
			*d = replyTime
		}
	}
	if *dials == 0 {
		*dials = 1
	}
}

// serve returns the backend on rdb, with an error if the server does not answer.
func serve(ctx context.Context, rdb redis.UniversalClient, own singlenode.Options, where string) (Backend, error) {
	b, err := newRedis(rdb, own)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	if err := ping(ctx, rdb); err != nil {
		return b, fmt.Errorf("%s: %w: %w", where, locker.ErrUnavailable, err)
	}
	return b, nil
}

// ping returns at the end of ctx even where the client does not: it looks at
// deadlines only.
func ping(ctx context.Context, rdb redis.UniversalClient) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- rdb.Ping(ctx).Err() }()
	select {
	case err := <-done:
		if advice := redisnode.Advice(err); advice != "" {
			return fmt.Errorf("%w (%s)", discreet(err), advice)
		}
		return discreet(err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// discreet removes the arguments that a server quotes when it does not know a
// command. Where AUTH was renamed, the password is one of them.
func discreet(err error) error {
	if err == nil {
		return nil
	}
	if text, _, quotes := strings.Cut(err.Error(), ", with args beginning with"); quotes {
		return driver.Refused(errors.New(text))
	}
	return err
}
