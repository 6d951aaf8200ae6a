package migratelock_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/migratelock"
	"github.com/lockstile/locker/singlenode"
)

// up brings the schema up to date. All replicas call it when they start.
func up(db *sql.DB, migrations fs.FS, locks locker.Locker) error {
	migrate.DefaultLockTimeout = 15 * time.Minute // a replica waits for two thirds of this
	driver, err := pgx.WithInstance(db, &pgx.Config{})
	if err != nil {
		return err
	}
	driver, err = migratelock.Wrap(driver, locks, "schema", locker.WithTTL(10*time.Second))
	if err != nil {
		return err
	}
	source, err := iofs.New(migrations, ".")
	if err != nil {
		return err
	}
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
	if err != nil {
		return err
	}
	return m.Up()
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
	switch err := up(db, migrations, locks); {
	case errors.Is(err, migrate.ErrNoChange):
		log.Print("nothing to migrate")
	case err != nil:
		log.Fatal(err)
	default:
		log.Print("migrated")
	}
}
