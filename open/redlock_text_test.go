package open

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
)

// A host's name may have a %, as an IPv6 address with a zone has. It is no verb
// of the error's format: each node's own error stands after its own name.
func TestErrorsOfNodesWhoseNamesHavePercentSignsStandByTheirNames(t *testing.T) {
	srv := testserver.Redis(t, "--requirepass", "secret")
	_, err := URL(t.Context(), "redlock://"+srv.Addr()+",[::1%d]:1,[::1%w]:2")
	if err == nil {
		t.Fatal("opened without a password")
	}
	var reply redis.Error
	if !errors.Is(err, locker.ErrUnavailable) || !errors.As(err, &reply) || !strings.Contains(err.Error(), srv.Addr()+": NOAUTH") {
		t.Error(err)
	}
	for _, want := range []string{"[::1%d]:1: ", "[::1%w]:2: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	for _, wrong := range []string{"%!", "0x", "secret"} {
		if strings.Contains(err.Error(), wrong) {
			t.Errorf("%q is in: %v", wrong, err)
		}
	}
}
