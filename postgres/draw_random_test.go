package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/postgres"
)

// history is what was drawn for one name. Whoever draws has an advisory lock.
type history struct {
	mu      sync.Mutex
	newest  fencing.Token // drawn since the last crash
	durable fencing.Token // committed, and told
	commits int
}

// drawn notes a token and returns what is wrong with it. That counts if the server
// still answers afterwards: one that is being killed may free the lock of the last
// but one who drew before that one's client has read its token.
func (h *history) drawn(how string, token fencing.Token) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.newest
	h.newest = max(last, token)
	if token <= last {
		return fmt.Errorf("%s: token %d follows %d", how, token, last)
	}
	return nil
}

func (h *history) committed(token fencing.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = max(h.durable, token)
	h.commits++
}

// Goal: the tokens of a name increase, whoever draws them how, over crashes of the
// server at any moment. Method: connections draw in all ways at once, for a few
// names, until the server is killed; those that were told of their commit count.
func TestTokensOfEveryKindIncreaseOverCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, lazy...)
	url := server.URL("postgres") + careless
	newSession(t, url)
	var names [3]history
	for round := range 12 {
		var wait sync.WaitGroup
		ctx, stop := context.WithCancel(soon(t))
		for worker := range 9 {
			wait.Go(func() { drawAll(ctx, t, url, round+worker, &names) })
		}
		enough := names[0].commits + 1 + 4*round // soon after the start, or later
		eventually(t, func() string {
			if n := names[0].count(); n < enough {
				return fmt.Sprintf("%d of %d draws were committed", n, enough)
			}
			return ""
		})
		server.Kill()
		stop()
		wait.Wait()
		for i := range names {
			names[i].newest = names[i].durable
		}
		server.Start()
	}
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits
}

// drawAll draws in one way after the other until the server dies.
func drawAll(ctx context.Context, t *testing.T, url string, seed int, names *[3]history) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return // the server has died already
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for i := seed; err == nil; i++ {
		key := i / 5 % len(names)
		switch h := &names[key]; i % 5 {
		case 0, 1:
			err = drawAlone(ctx, t, conn, key, h)
		case 2:
			err = drawInTx(ctx, t, conn, pgx.TxOptions{}, key, h, true)
		case 3:
			err = drawInTx(ctx, t, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, key, h, i%2 == 0)
		case 4:
			err = drawInTx(ctx, t, conn, pgx.TxOptions{}, key, h, false)
		}
	}
	var reply *pgconn.PgError
	if errors.As(err, &reply) && reply.Code != "57P01" && reply.Code != "57P02" && reply.Code != "57P03" {
		t.Errorf("a draw: %v", err)
	}
}

// drawAlone draws as a session lock does, in a statement of its own.
func drawAlone(ctx context.Context, t *testing.T, conn *pgx.Conn, key int, h *history) error {
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, fmt.Sprint(key)); err != nil {
		return err
	}
	var token fencing.Token
	err := conn.QueryRow(ctx, `SELECT lockstile_draw(lockstile_durable(true))`).Scan(&token)
	if err != nil {
		return err
	}
	wrong := h.drawn("alone", token)
	h.committed(token)
	if _, err = conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, fmt.Sprint(key)); err == nil && wrong != nil {
		t.Error(wrong)
	}
	return err
}

// drawInTx draws with LockTx, in a transaction that has looked at the database
// before.
func drawInTx(ctx context.Context, t *testing.T, conn *pgx.Conn, opts pgx.TxOptions, key int, h *history, commits bool) error {
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT FROM lockstile_block`); err != nil {
		return err
	}
	token, err := postgres.LockTx(ctx, tx, fmt.Sprint(key))
	if err != nil {
		return err
	}
	wrong := h.drawn(fmt.Sprint("in a transaction ", opts.IsoLevel), token)
	end := tx.Rollback
	if commits {
		end = tx.Commit
	}
	if err := end(ctx); err != nil {
		return err
	}
	if wrong != nil {
		t.Error(wrong)
	}
	if commits {
		h.committed(token)
	}
	return nil
}
