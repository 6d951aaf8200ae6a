package testserver_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

func TestPrometheusScrapesItsTargets(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "answer 42\n") // a lost answer is asked for again
		}
	}))
	defer target.Close()
	s := testserver.Prometheus(t, target.Listener.Addr().String())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(s.URL() + "/api/v1/query?query=" + url.QueryEscape("answer"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		switch {
		case err == nil && strings.Contains(string(text), `"42"`):
			return
		case time.Now().After(deadline):
			t.Fatalf("the target was not scraped: %s %v", text, err)
		}
	}
}
