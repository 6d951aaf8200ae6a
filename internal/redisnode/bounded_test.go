package redisnode

import (
	"context"
	"errors"
	"testing"
)

// A call that was left behind may write its result at any time. That must not be
// the result of another.
func TestACallThatWasLeftBehindAnswersNobodyElse(t *testing.T) {
	n := new(Node)
	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		release, returned := make(chan struct{}), make(chan struct{})
		_, err := n.bounded(ctx, func(context.Context) (any, error) {
			cancel()
			<-release
			defer close(returned)
			return "late", nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("left behind: %v", err)
		}
		reply, err := n.bounded(background(t), func(context.Context) (any, error) {
			close(release)
			<-returned
			return "mine", nil
		})
		if reply != "mine" || err != nil {
			t.Fatalf("answered %v, %v", reply, err)
		}
	}
}
