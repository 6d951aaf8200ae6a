package open_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/open"
)

func TestWrongURLsAreNotTheStoresFault(t *testing.T) {
	for _, url := range []string{
		"", "secret", "secret@h:6379", "u:secret@h:6379", "/secret://h", "secret?://h",
		"redis:h", "redis://h1,h2", "redis://h/x", "redis://h/1/2",
		"redis://u:secret%@h", "redis://u:secret/x@h", "redis://u:secret#x@h", "redis://u:secret",
		"redis://u:secret@h?nonsense=1", "redis://u:secret@h?db=x", "redis://u:secret@h/1/2",
		"redis://u:secret@h?replicas=x", "redis://u:secret@h?replicas=-1", "redis://u:secret@h?pool_size=x",
		"redis://u:secret@h h", "redis-cluster://u:secret@h h",
		"redis-cluster://u:secret@h/1", "redis-cluster://u:secret@h?nonsense=1",
		"redis-sentinel://u:secret@h", "redis-sentinel://u:secret@h/m/x", "redis-sentinel://u:secret@h/m?password=secret",
		"redis-sentinel://h/m?nonsense=1&sentinel_password=secret",
		"redlock://u:secret@h1,h2", "redlock://u:secret@h1,h2,h3?nonsense=secret", "redlock://u:secret@h1,h2,h3?max_ttl=x",
		"etcd://u:secret@h/x", "etcd://u@h", "etcd://:secret@h", "etcd://u:secret@h?nonsense=secret", "etcd://u:secret@h?skip_verify=true",
		"etcd://h?cacert=missing", "etcd://h?cert=missing&key=missing", "etcd://h?skip_verify=false", "etcds://u:secret@h?cacert=open_test.go",
		"etcds://u:secret@h?skip_verify=x", "etcds://u:secret@h?cacert=missing", "etcds://u:secret@h?cert=missing", "etcd://u:secret@h:x",
		"zk://u@h", "zk://:secret@h", "zk://u%3Ax:secret@h", "zk://u:secret@h?nonsense=secret", "zk://u:secret@h?session_timeout=x",
		"zk://u:secret@h?session_timeout=-1s", "zk://u:secret@h/zookeeper", "zk://u:secret@h/a//b", "zk://u:secret@h:x",
		"postgres://u:secret@h:x/db", "postgres://u:secret/x@h/db", "postgres://u:secret@h/db?mode=x", "postgres://u:secret@h/db?schema=x",
		"postgres://u:secret@h/db?poll=x", "postgres://u:secret@h/db?poll=1h", "postgres://u:secret@h/db?sync_standby=x",
		"postgres://u:secret@h/db?mode=session&poll=1ms", "postgres://u:secret@h/db?sslmode=x&password=secret",
		"postgres://u:secret@h/db?sslpassword=secret&connect_timeout=secret", "postgresql://u:secret@h/db?sslrootcert=missing",
		"postgres://u:secret@h/db?pool_max_conns=x", "postgres://u:secret%zz@h/db", "postgres://%00secret@h/db", "postgres://u:secret@h/db?sslpassword=%00secret",
	} {
		_, err := open.URL(patience(t), url)
		switch {
		case err == nil:
			t.Errorf("%q: no error", url)
		case errors.Is(err, locker.ErrUnavailable):
			t.Errorf("%q: a store was asked: %v", url, err)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: %v", url, err)
		case !strings.HasPrefix(err.Error(), "open: "):
			t.Errorf("%q: does not say where it comes from: %v", url, err)
		}
	}
}

func TestUnknownParameterIsNamed(t *testing.T) {
	for _, scheme := range []string{"redis", "rediss", "redis-cluster", "redlock", "redlocks", "etcd", "zk"} {
		_, err := open.URL(patience(t), scheme+"://h1?nonsense=secret")
		if scheme == "redlock" || scheme == "redlocks" {
			_, err = open.URL(patience(t), scheme+"://h1,h2,h3?nonsense=secret")
		}
		if err == nil || !strings.Contains(err.Error(), scheme+`:// has no parameter "nonsense"`) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// Each of these was taken and not heeded, or ended the process: at once, out of
// memory, or in a goroutine of the pool's.
func TestParametersThatClientsIgnoreOrPanicAtAreErrors(t *testing.T) {
	ofRedis := []string{
		"pool_size=10000000000", "pool_size=2147483647", "pool_size=-1", "pool_size=0", "min_idle_conns=-1", "min_idle_conns=10000000000",
		"max_idle_conns=10000000000", "max_active_conns=-1", "max_active_conns=10000000000", "pool_fifo=yes",
		"dial_timeout=0", "dial_timeout=-1s", "dial_timeout=10000000000", "dial_timeout=9223372037", "read_timeout=-1", "write_timeout=0s", "pool_timeout=0",
		"max_retries=0", "max_retries=-2", "max_retries=1000000000", "protocol=1", "protocol=7", "min_retry_backoff=-1s",
		"conn_max_lifetime=10000000000", "conn_max_idle_time=-2", "conn_max_lifetime_jitter=1h",
		"pipeline_read_buffer_size=99999999999999", "addr=h:1", "db=2", "db=-1", "username=u", "master_name=m", "route_randomly=true",
		"replicas=-1", "replicas=9223372036854775807", "replicas=2147483648",
	}
	for form, queries := range map[string][]string{
		"redis://h/1":          append(ofRedis, "skip_verify=true", "max_ttl=1s"),
		"rediss://h/1":         append(ofRedis, "skip_verify=x"),
		"redis-cluster://h":    append(ofRedis, "read_only=true", "route_by_latency=true", "route_by_latency_tolerance=1s", "skip_verify=true"),
		"redis-sentinel://h/m": append(ofRedis, "replica_only=true", "route_by_latency=1", "use_disconnected_replicas=true", "context_timeout_enabled=false", "sentinel_username=u"),
		"redlock://h,i,j/1":    append(ofRedis, "max_ttl=-1s", "max_ttl=1ns", "max_ttl=2562047h", "node_timeout=-1s", "skip_verify=true"),
		"etcd://h":             {"dial_timeout=1s", "addr=h"},
		"zk://h":               {"session_timeout=0", "session_timeout=2562047h", "session_timeout=1ns"},
		"postgres://h/db": {
			"pool_health_check_period=0s", "pool_health_check_period=-1s", "pool_max_conns=0", "pool_max_conns=2147483647", "pool_max_conns=10000000000",
			"pool_min_conns=2147483647", "pool_min_conns=-1", "pool_min_idle_conns=2147483647", "statement_cache_capacity=2147483647",
			"statement_cache_capacity=-1", "description_cache_capacity=2147483647", "connect_timeout=9223372037", "connect_timeout=9223372036854775807",
			"poll=2562047h", "host=g", "port=70000",
		},
		"redis://h/-1": {"pool_size=1"}, "redlock://h,i,j/-1": {"pool_size=1"}, "redis-sentinel://h/m/-1": {"pool_size=1"},
		"redis://u@h": {"pool_size=1"}, "redis-cluster://u@h": {"pool_size=1"}, "redis-sentinel://u@h/m": {"pool_size=1"}, "redlock://u@h,i,j": {"pool_size=1"},
	} {
		for _, query := range queries {
			b, err := open.URL(patience(t), form+"?"+query)
			if err == nil {
				_ = b.Close()
			}
			if err == nil || errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("%s?%s: %v", form, query, err)
			}
		}
	}
}

func TestUnknownSchemeListsThoseThatAreKnown(t *testing.T) {
	_, err := open.URL(patience(t), "mysql://h")
	if err == nil {
		t.Fatal("no error")
	}
	for _, s := range dial.Schemes() {
		if scheme, _, _ := strings.Cut(s.Form, ":"); !strings.Contains(err.Error(), scheme) {
			t.Errorf("%s is not in: %v", scheme, err)
		}
	}
	if !strings.Contains(err.Error(), `"mysql"`) || len(err.Error()) > 160 {
		t.Errorf("the scheme is not in this line, or the line is too long to read: %v", err)
	}
}

// Every scheme that is listed is known to URL, and has something to say.
func TestSchemesAreTrue(t *testing.T) {
	var seen []string
	for _, s := range dial.Schemes() {
		if s.About == "" || strings.Contains(s.About, "\n") {
			t.Errorf("%s: About is %q", s.Form, s.About)
		}
		if s.Guarantees.FreedBy == 0 {
			t.Errorf("%s: no guarantees", s.Form)
		}
		scheme, _, _ := strings.Cut(s.Form, ":")
		if slices.Contains(seen, s.Form) {
			t.Errorf("%s is listed twice", s.Form)
		}
		seen = append(seen, s.Form)
		if _, err := open.URL(patience(t), scheme+"://h/\x00%zz"); err != nil && strings.Contains(err.Error(), "unknown scheme") {
			t.Errorf("%s is listed but not known", scheme)
		}
	}
}
