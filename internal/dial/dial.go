// Package dial makes a backend and its clients from a URL: what package open gives
// to users, and what package doctor looks at.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// Backend is what a URL stands for: a [*Local], [*File], [*Redis], [*Redlock], [*Etcd],
// [*ZooKeeper] or [*Postgres]. Close closes the clients as well.
type Backend interface {
	locker.Locker
	locker.Inspector
	locker.Breaker
	locker.Lister
	locker.Resumer
	io.Closer
}

// URL makes the backend that url stands for, and waits for an answer of its server.
// It may return a backend along with an error: the clients are made, and the store
// is not as it must be. The caller closes that too. A [locker.ErrUnavailable] that asking
// again does not change is marked ([driver.Refused]).
func URL(ctx context.Context, url string) (Backend, error) {
	b, err := open(ctx, url)
	if refuses(err) {
		err = driver.Refused(err)
	}
	return b, err
}

func open(ctx context.Context, url string) (Backend, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, errors.New("the URL has no scheme: " + known())
	}
	if scheme == "file" && rest == "" || (scheme == "local" || scheme == "file") && filepath.Clean(rest) == "/" {
		return nil, fmt.Errorf("%s: the URL names no directory but the root, as where a variable is not set: write the directory behind \"%s:\"", scheme, scheme)
	}
	switch scheme {
	case "local":
		return openLocal(rest)
	case "file":
		return openFile(rest)
	case "redis", "rediss":
		return openRedis(ctx, scheme, rest)
	case "redis-sentinel":
		return openSentinel(ctx, scheme, rest)
	case "redis-cluster":
		return openCluster(ctx, scheme, rest)
	case "redlock", "redlocks":
		return openRedlock(ctx, scheme, rest)
	case "etcd", "etcds":
		return openEtcd(ctx, scheme, rest)
	case "zk":
		return openZooKeeper(ctx, scheme, rest)
	case "postgres", "postgresql":
		return openPostgres(ctx, scheme, rest)
	}
	if !strings.HasPrefix(rest, "//") || strings.ContainsAny(scheme, "@/?#") {
		return nil, errors.New("the URL has no scheme that is known: " + known()) // it may have begun with a password
	}
	return nil, fmt.Errorf("unknown scheme %q: %s", scheme, known())
}

// known lists the schemes for an error.
func known() string {
	var names []string
	for _, s := range Schemes() {
		name, _, _ := strings.Cut(s.Form, ":")
		names = append(names, name)
	}
	return "use one of " + strings.Join(slices.Compact(names), ", ")
}

// Scheme describes one form of URL.
type Scheme struct {
	Form       string // with what to fill in set in capitals
	About      string // one line
	Guarantees locker.Guarantees
}

// Schemes returns the forms of URLs that [URL] knows. It asks no server.
func Schemes() []Scheme {
	return slices.Concat([]Scheme{localScheme(), fileScheme()}, redisSchemes(), redlockSchemes(), etcdSchemes(), zkSchemes(), postgresSchemes())
}
