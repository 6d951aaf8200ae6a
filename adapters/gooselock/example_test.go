package gooselock_test

import (
	"context"
	"database/sql"
	"io/fs"
	"log"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/gooselock"
	"github.com/lockstile/locker/singlenode"
)

// migrate brings the schema up to date. All replicas call it when they start.
func migrate(ctx context.Context, db *sql.DB, migrations fs.FS, locks locker.Locker) error {
	lock, err := gooselock.New(locks, "schema",
		locker.WithTTL(10*time.Second),  // the lock of a replica that has died is free after this
		locker.WithWait(10*time.Minute)) // longer than all migrations take
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(lock))
	if err != nil {
		return err
	}
	applied, err := provider.Up(ctx)
	log.Printf("%d migrations applied", len(applied))
	return err
}

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := migrate(context.Background(), db, migrations, locks); err != nil {
		log.Fatal(err)
	}
}
