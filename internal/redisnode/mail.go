package redisnode

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/mailbox"
)

func channel(id string) string { return reserved + "w:" + id }

// Mail is where the words for this process's waiters arrive. A waiter's value is that
// of its [Attempt].
func (n *Node) Mail() *mailbox.Mailbox { return n.mail }

// listen is a [mailbox.Listen]. The client replaces a connection that breaks, and
// subscribes again, before it returns the error. If the new one were closed as well, a
// waiter whose turn comes in between would be taken for dead, and lose its place.
func (n *Node) listen(ctx context.Context, m *mailbox.Mailbox) error {
	sub := n.rdb.Subscribe(ctx, channel(n.id))
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	silent, began := false, false
	for {
		msg, err := sub.ReceiveTimeout(ctx, mailbox.Pulse)
		switch {
		case err == nil:
			silent = false
			if _, subscribed := msg.(*redis.Subscription); subscribed {
				n.askForPublish(ctx)
			}
			began = n.read(m, msg) || began
		case broken(err) && began && !m.Idle() && ctx.Err() == nil:
			m.Deaf()
			m.Rest()
		case silent || !timeout(err) || m.Idle():
			return n.learn(err)
		default:
			silent = true
			if err := sub.Ping(ctx); err != nil {
				return n.learn(err)
			}
		}
	}
}

// askForPublish asks whether the server refuses scripts of ours to publish: the user has no
// right to, or the server has no channels. Then a release of ours would tell nobody, and its
// script cannot say so: it has freed the lock. So waiters look by themselves. They go on
// listening, for others may publish, and take who does not listen for dead. Without an
// answer, what was known before stands.
func (n *Node) askForPublish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mailbox.Pulse)
	defer cancel()
	_, err := call(ctx, false, func() (any, error) {
		cmd := once{redis.NewCmd(ctx, "eval", "return redis.call('PUBLISH', ARGV[1], '')", 0, channel(n.id))}
		_ = n.rdb.Process(ctx, cmd)
		return cmd.Result()
	})
	if refused := Refused(err); err == nil || refused {
		n.mute.Store(refused)
	}
}

func timeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// read passes on what has arrived, and reports whether that was the beginning of a
// subscription.
func (n *Node) read(m *mailbox.Mailbox, msg any) bool {
	switch msg := msg.(type) {
	case *redis.Subscription:
		m.Ready(msg.Channel)
		return true
	case *redis.Message:
		m.Receive(msg.Payload)
	}
	return false
}
