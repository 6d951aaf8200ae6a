package etcd_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
)

// The lock and the data are in one cluster, so the lock itself is a condition of
// the write.
func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"localhost:2379"},
		DialKeepAliveTime:    5 * time.Second, // notices servers that hang
		DialKeepAliveTimeout: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks, err := etcd.New(client, etcd.Options{Prefix: "/locks/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locker.Do(context.Background(), locks, "invoices", func(ctx context.Context, lock *locker.Lock) error {
		held, err := locks.Held(lock)
		if err != nil {
			return err
		}
		resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("/balance/42", "1250")).Commit()
		if err == nil && !resp.Succeeded {
			err = locker.ErrLost
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
}
