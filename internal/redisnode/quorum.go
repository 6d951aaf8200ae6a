package redisnode

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewOfQuorum returns a Node that is one of several. Tokens and tickets are
// lifted to [Ask].Offer, and the node does not grant before it has been up for
// longer than quarantine, unless that is 0. Contexts may end before their deadlines.
func NewOfQuorum(rdb redis.UniversalClient, quarantine time.Duration) *Node {
	n := New(rdb, 0)
	n.acquire, n.quarantine, n.ends, n.heeds = acquireOfQuorum, quarantine.Milliseconds(), false, false
	return n
}

// Raise lifts the counter to the end of the range that begins with first, where the
// lock is still ours, and returns first: every later grant of this node will have greater
// tokens. If another reader has this number here, it returns a greater one, for all nodes.
// After an error the counter may have been lifted.
func (n *Node) Raise(ctx context.Context, a *Attempt, first uint64) (uint64, error) {
	reply, _, err := n.send(ctx, a.request(raise, &a.Value, first+uint64(a.Tokens(Tokens))-1, first, &a.Holder, n.keepMillis()))
	if err != nil {
		return 0, err
	}
	return raised(first, reply)
}

// raised reads the reply to a Raise: a number below first would be a token that goes back.
func raised(first uint64, reply any) (uint64, error) {
	switch number, ok := reply.(int64); {
	case ok && number < 0:
		return 0, errors.New("the lock was lost there before its token was written")
	case ok && uint64(number) >= first && number < endOfTokens:
		return uint64(number), nil
	}
	return 0, unknownForm(reply)
}

var runID = regexp.MustCompile(`run_id:(\w+)`)

// Run returns what identifies the running server process.
func (n *Node) Run(ctx context.Context) (string, error) {
	text, err := call(ctx, false, func() (string, error) { return n.rdb.Info(ctx, "server").Result() })
	if err != nil {
		return "", classify(err)
	}
	n.known.Store(true)
	if id := runID.FindStringSubmatch(text); id != nil {
		return id[1], nil
	}
	return "", fmt.Errorf("the server's INFO has no run_id")
}
