package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

// rates is the other service. It answers the first question, with 2, when the test says so,
// and all others, with 3, at once.
type rates struct {
	*httptest.Server
	asked, answer chan struct{}
}

func newRates(t *testing.T) rates {
	r := rates{asked: make(chan struct{}), answer: make(chan struct{})}
	var questions atomic.Int64
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rate := 3
		if questions.Add(1) == 1 {
			rate = 2
			close(r.asked)
			<-r.answer
		}
		fmt.Fprint(w, rate)
	}))
	t.Cleanup(r.Close)
	return r
}

// The first worker is paused before it has its answer, until its lease has ended and the
// second has done the work. Then it writes.
func TestWorkerThatWasPausedCannotWrite(t *testing.T) {
	t.Parallel()
	srv, rates := testserver.Redis(t), newRates(t)
	url, db := database(t)
	mustExec(t, db, only(t, "sql"))
	mustExec(t, db, `INSERT INTO invoice VALUES (1, 42)`)
	env := []string{"REDIS_ADDR=" + srv.Addr(), "DATABASE_URL=" + url, "RATE_URL=" + rates.URL}

	first := start(t, env, "invoices")
	select {
	case <-rates.asked:
	case <-soon(t).Done():
		t.Fatalf("the first worker does not ask for the rate: %s", first.Said())
	}
	first.Pause()
	close(rates.answer)
	second := start(t, env, "invoices")
	second.Says("invoice 1 completed under token")
	second.Ends(0)

	first.Signal(syscall.SIGCONT)
	first.Says(`stale fencing token: "invoices" has seen token`)
	first.Ends(0)
	if n := first.Count("completed"); n != 0 {
		t.Errorf("the first worker says that it has completed an invoice: %s", first.Said())
	}
	if total := number(t, db, `SELECT total FROM invoice`); total != 126 {
		t.Errorf("the invoice says %d, and the second worker wrote 126", total)
	}
}
