package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
)

// cluster starts three servers, and makes a bucket with a replica on each. The URL is that of all.
func cluster(t testing.TB) (srvs []*testserver.NATSServer, url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("three servers: long")
	}
	ports := make([]net.Listener, 3)
	routes := make([]string, len(ports))
	for i := range ports {
		var err error
		if ports[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		routes[i] = "nats://" + ports[i].Addr().String()
	}
	urls := make([]string, len(ports))
	for i, port := range ports {
		_ = port.Close()
		srv := testserver.NATS(t, fmt.Sprintf("cluster: {name: c, listen: %q, routes: [%s]}", port.Addr(), strings.Join(routes, ", ")))
		srvs, urls[i] = append(srvs, srv), srv.URL()
	}
	js := connect(t, srvs[0].URL())
	until(t, "the servers make a bucket", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "locks", Replicas: 3})
		return err == nil
	})
	return srvs, strings.Join(urls, ",")
}

func TestConformanceOfABucketWithReplicas(t *testing.T) {
	_, url := cluster(t)
	_, like := store(t, connect(t, url))
	registertest.Run(t, registertest.Harness{
		New: func(t testing.TB) register.Store {
			s, _ := store(t, connect(t, url)) // which is connected to any of them
			return s
		},
		Options: like,
	})
}

// While the leader waits for its replicas, it refuses another write of the key. Then the record may still be the same, so that is no ErrChanged.
func TestRefusalOfABucketWithReplicasIsAboutTheRevision(t *testing.T) {
	_, url := cluster(t)
	s, _ := store(t, connect(t, url))
	version := ""
	for range 50 {
		var all sync.WaitGroup
		won := make(chan string, 8)
		for range cap(won) {
			all.Go(func() {
				next, err := s.Swap(soon(t), "a", version, []byte("record"))
				if err == nil {
					won <- next
					return
				}
				if e, failed := s.Get(soon(t), "a"); !errors.Is(err, register.ErrChanged) || failed != nil || e.Version == version {
					t.Errorf("%v: at version %s, where the record has %s, %v", err, version, e.Version, failed)
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("of 8 writes at once %d succeeded", len(won))
		}
		version = <-won
	}
}

// The leader is killed while a lock is held and somebody waits for it.
func TestLockOutlivesTheLeader(t *testing.T) {
	srvs, url := cluster(t)
	js := connect(t, url)
	a, b := process(t, js), process(t, connect(t, url))
	if g := a.Guarantees(); g.ServerFailures != 1 || !g.Exclusion.Has(locker.AgreedClocks|locker.DurableServer) || g.Tokens != locker.DurableServer {
		t.Error(g)
	}
	held := lock(t, a, "a", locker.WithTTL(time.Minute))
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, "a", locker.WithTTL(time.Minute)) }()
	waits(t, a, "a")
	stream, err := js.Stream(soon(t), "KV_locks")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, s := range srvs {
		if s.Name() == stream.CachedInfo().Cluster.Leader {
			s.Kill()
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d servers led", killed)
	}
	until(t, "another one leads", func() bool { _, err := a.Inspect(soon(t), "a"); return err == nil })
	if err := held.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, held)
	got := <-next
	if got.Token() <= held.Token() {
		t.Errorf("token %d follows %d", got.Token(), held.Token())
	}
	unlock(t, got)
}
