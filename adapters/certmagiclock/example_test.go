package certmagiclock_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/certmagiclock"
	"github.com/lockstile/locker/singlenode"
)

// manage obtains certificates and keeps them valid, once for all replicas.
func manage(ctx context.Context, storage certmagic.Storage, locks locker.Locker, domains ...string) (*certmagic.Config, error) {
	locked, err := certmagiclock.Wrap(storage, locks, locker.WithTTL(10*time.Second))
	if err != nil {
		return nil, err
	}
	certmagic.Default.Storage = locked
	config := certmagic.NewDefault()
	return config, config.ManageSync(ctx, domains)
}

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, storage := context.Background(), &certmagic.FileStorage{Path: os.Getenv("CERTIFICATES")}
	config, err := manage(ctx, storage, locks, "example.com")
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := config.CacheManagedCertificate(ctx, "example.com")
	if err != nil {
		log.Fatal(err)
	}
	log.Print("serial number ", certificate.Leaf.SerialNumber)
}
