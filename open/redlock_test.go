package open_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

// answerTime is how long a server is waited for that does not answer.
const answerTime = 5 * time.Second

func redlockNodes(t *testing.T) (nodes []*testserver.RedisServer, url string) {
	t.Helper()
	var hosts []string
	for range 3 {
		s := testserver.Redis(t)
		nodes, hosts = append(nodes, s), append(hosts, s.Addr())
	}
	return nodes, "redlock://" + strings.Join(hosts, ",")
}

func TestRedlockOpensWithoutTheNodeThatHangs(t *testing.T) {
	nodes, url := redlockNodes(t)
	nodes[1].Pause()
	defer nodes[1].Resume()
	start := time.Now()
	b, err := open.URL(patience(t), url+"?durable_nodes=true&node_timeout=10s&read_timeout=30s&dial_timeout=30s")
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= answerTime {
		t.Errorf("open: %v, as long as a node may hang", took)
	}
	if err := mustHold(t, b, "a").Unlock(patience(t)); err != nil {
		t.Error(err)
	}
	start = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took >= answerTime {
		t.Errorf("Close: %v", took)
	}
}

// One node that answers is not a majority: the others have their whole time.
func TestRedlockWaitsForAMajorityThatIsSlow(t *testing.T) {
	nodes, url := redlockNodes(t)
	for _, s := range nodes[:2] {
		s.Pause()
		time.AfterFunc(time.Second, s.Resume)
	}
	mustOpen(t, url+"?read_timeout=30s")
}

func TestRedlockRefusesOneServerByTwoNames(t *testing.T) {
	nodes, url := redlockNodes(t)
	for range 10 {
		b, err := open.URL(patience(t), url+",localhost"+strings.TrimPrefix(nodes[0].Addr(), "127.0.0.1")+",127.0.0.1:1")
		if err == nil {
			t.Fatal("it was opened", b.Close())
		}
		if errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "are one server") {
			t.Error(err)
		}
	}
}

func TestRedlockSaysWhichNodeRefuses(t *testing.T) {
	nodes, url := redlockNodes(t)
	nodes[2].Do("CONFIG", "SET", "requirepass", "other")
	refused(t, url, nodes[2].Addr()+": NOAUTH")
	nodes[0].Kill()
	nodes[1].Kill()
	refused(t, url, nodes[0].Addr()+": ", nodes[1].Addr()+": ", "connection refused")
}
