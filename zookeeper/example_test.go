package zookeeper_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/zookeeper"
)

func Example() {
	session := zookeeper.NewSession(nil)
	conn, _, err := zk.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, 10*time.Second, zk.WithDialer(session.Dial))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	l, err := zookeeper.New(conn, zookeeper.Options{Session: session})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	err = locker.Do(context.Background(), l, "invoices/42", func(ctx context.Context, lock *locker.Lock) error {
		fmt.Println("write with token", lock.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
