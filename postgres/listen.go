package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockstile/locker/internal/mailbox"
)

// listen is a [mailbox.Listen]. It does not share its connection with renewals: it would
// have to be woken for each, and behind a pooler there is nothing to listen to but still
// something to renew.
func (p *poolRunner) listen(ctx context.Context, m *mailbox.Mailbox) error {
	conn, channel, err := p.subscribe(ctx)
	code := codeOf(err)
	switch {
	case errors.Is(err, errPooled):
		return mailbox.ErrNoWords
	case code != "" && !strings.HasPrefix(code, "57"): // such as too many connections; 57: it is starting or stopping
		return mailbox.ErrNoWordsNow
	case err != nil:
		return p.explain(ctx, err)
	}
	defer hangUp(conn)
	m.Ready(channel)
	for {
		wait, cancel := context.WithTimeout(ctx, mailbox.Pulse)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case n != nil:
			m.Receive(n.Payload) // see lockstile_pass
		case ctx.Err() != nil || conn.IsClosed() || m.Idle():
			return err
		default:
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

// subscribe opens a connection that listens on a channel of its own. While it lives it
// holds the advisory lock by which lockstile_pass knows that somebody listens.
func (p *poolRunner) subscribe(ctx context.Context) (conn *pgx.Conn, channel string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSilent)
	defer cancel()
	if conn, err = dial(ctx, p.pool, nil); err != nil {
		return nil, "", withCause(ctx, err)
	}
	channel = "lockstile_" + random()
	if err = checkDirect(ctx, conn, p.mode); err == nil {
		_, err = conn.Exec(ctx, fmt.Sprintf(`LISTEN "%[1]s"; SELECT pg_catalog.pg_advisory_lock(1819239276, pg_catalog.hashtext('%[1]s'))`, channel))
	}
	if err != nil {
		hangUp(conn)
		return nil, "", withCause(ctx, err)
	}
	return conn, channel, nil
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, mailbox.Pulse)
	defer cancel()
	return conn.Ping(ctx)
}
