package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/postgres"
)

// Goal: what may have been carried out is cleaned up, what another connection can do is sent
// over one, and nothing else. Method: codes as the server, or a pooler, sends them.
func TestCodesOfErrorsDecideWhatIsDoneNext(t *testing.T) {
	for code, want := range map[string]string{
		"08006": "unsure", "08P01": "unsure", // from a pooler
		"57P01": "unsure broken", "57P02": "unsure broken", "57P05": "unsure broken", // it has ended the connection
		"57P03": "unsure", // it starts, or stops
		"58030": "unsure", "XX000": "unsure", "40003": "unsure",
		"26000": "broken", // the connection has forgotten what was prepared there
		"25006": "broken", // it is read-only
		"40001": "", "40P01": "", "53100": "", "53300": "", "57014": "", "23505": "", "28000": "",
	} {
		err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})
		var got []string
		if postgres.Unsure(err) {
			got = append(got, "unsure")
		}
		if postgres.Broken(t.Context(), err) {
			got = append(got, "broken")
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%s: %q, want %q", code, all, want)
		}
	}
	if lost := errors.New("the network"); !postgres.Unsure(lost) || !postgres.Broken(t.Context(), lost) {
		t.Error("a connection that broke has not said that nothing was carried out")
	}
}

// torn is a connection that breaks, once, when so many bytes have arrived.
type torn struct {
	net.Conn
	left *atomic.Int64
}

func (c torn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.left.Load() > 0 && c.left.Add(-int64(n)) <= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// Goal: what is shown of each name is shown once, though the answer broke off and the question
// was sent again.
func TestAnswerThatBreaksOffIsNotShownTwice(t *testing.T) {
	url := database(t)
	newLocker(t, url, postgres.Options{})
	var left atomic.Int64
	l := opened(t, "a/leases", poolWith(t, url+"&pool_max_conns=1", func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return torn{conn, &left}, err
		}
	}))
	const names = 200
	for i := range names {
		lock(t, l, fmt.Sprintf("%0500d", i), locker.WithTTL(long))
	}
	left.Store(names * 500 / 2)
	infos, err := l.(locker.Lister).List(soon(t), "")
	if err != nil || len(infos) != names || left.Load() > 0 {
		t.Errorf("%d of %d names are shown: %v; %d bytes are missing until it breaks", len(infos), names, err, left.Load())
	}
}
