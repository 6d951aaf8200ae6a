package testbed

import (
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

// Goal: a stranger who is refused by one server keeps nothing on the others, which would block
// the name for ten minutes.
func TestAStrangerWhoIsRefusedKeepsNothing(t *testing.T) {
	first, second := testserver.Redis(t), testserver.Redis(t)
	if err := wants(second, "OK", "SET", "n", "a holder's"); err != nil {
		t.Fatal(err)
	}
	take := redisStranger(first, second)
	if release, err := take("n"); err == nil {
		t.Fatalf("a lock that is held was taken: %v", release())
	}
	if err := wants(first, "0", "EXISTS", "n"); err != nil {
		t.Errorf("on the first server: %v", err)
	}
	if err := wants(second, "a holder's", "GET", "n"); err != nil {
		t.Errorf("on the second: %v", err)
	}
}
