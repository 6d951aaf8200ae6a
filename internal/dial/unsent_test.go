package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/testserver"
)

// A certificate cannot be read, or the server speaks no TLS: nothing was sent that could have
// taken a lock. Package redisnode looks for NotSent.
func TestAHandshakeThatFailsHasAKnownOutcome(t *testing.T) {
	addr := testserver.Redis(t).Addr()
	for what, f := range map[string]files{"no file": {ca: "no such file"}, "no TLS": {}} {
		o := &redis.Options{TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DialTimeout: 100 * time.Millisecond}
		speakTLS(o, f)
		_, err := o.Dialer(context.Background(), "tcp", addr)
		var none interface{ NotSent() }
		if !errors.As(err, &none) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
