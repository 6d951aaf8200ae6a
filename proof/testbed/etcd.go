package testbed

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

func etcdSubject() matrix.Subject {
	return matrix.Subject{
		Name: "etcd", About: "three servers", Guarantees: etcdGuarantees(),
		TTL:   2 * time.Second, // the least that the servers grant
		Start: threeEtcd,
	}
}

// etcdGuarantees asks the backend for its declaration. The client is not used, so it does
// not connect.
func etcdGuarantees() locker.Guarantees {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"m0:1", "m1:1", "m2:1"}})
	if err != nil {
		panic(err) // three endpoints: nothing that could be wrong
	}
	defer client.Close()
	l, err := etcd.New(client, etcd.Options{})
	if err != nil {
		panic(err)
	}
	return l.Guarantees()
}

// threeEtcd has no clock to step: a Go program does not ask the C library for the time, and
// etcd's leases follow the clock of elapsed time anyhow.
func threeEtcd(lab *matrix.Lab) (*matrix.System, error) {
	cluster := testserver.Etcd(lab, 3)
	var killed []*testserver.EtcdServer
	kill := func() {
		s := cluster.Leader()
		s.Kill()
		killed = append(killed, s)
	}
	return &matrix.System{
		Client: clients(lab, "etcd://", cluster.Endpoints()...),
		CrashKeeping: try(lab, func() {
			leader := cluster.Leader()
			leader.Kill()
			leader.Start()
		}),
		Pause:  try(lab, each(cluster.Members, (*testserver.EtcdServer).Pause)),
		Resume: try(lab, each(cluster.Members, (*testserver.EtcdServer).Resume)),
		Part: func(spare bool) (matrix.Part, error) {
			s := cluster.Leader()
			if spare {
				s = another(cluster.Members, s)
			}
			return onePart(lab, "etcd://", s)
		},
		Stored:       func() (matrix.Stored, error) { return storedOnEtcd(cluster.Endpoints()) },
		KillMinority: try(lab, kill),
		KillMajority: try(lab, kill, kill),
		Restore: try(lab, func() {
			each(killed, (*testserver.EtcdServer).StartAlone)()
			cluster.Leader()
		}),
		Stranger: func(name string) (func() error, error) { return etcdStranger(lab, cluster.Endpoints(), name) },
	}, nil
}

// etcdStranger is the Mutex of etcd's own client.
func etcdStranger(lab *matrix.Lab, endpoints []string, name string) (release func() error, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	lab.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(600))
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, name)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		return m.Unlock(ctx)
	}, m.Lock(ctx)
}
