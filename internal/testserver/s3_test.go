package testserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/testserver"
)

func TestS3ServerIsKilledPausedAndStarted(t *testing.T) {
	t.Parallel()
	s := testserver.S3(t)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	asks := func() (int, error) { // for the buckets, without credentials
		answer, err := client.Get(s.URL())
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	if status, err := asks(); err != nil || status != http.StatusForbidden {
		t.Errorf("without credentials the server answers %d, %v", status, err)
	}
	s.Kill()
	if status, err := asks(); err == nil {
		t.Errorf("killed, the server answers %d", status)
	}
	s.Start()
	s.Pause()
	client.Timeout = 300 * time.Millisecond
	if status, err := asks(); err == nil {
		t.Errorf("paused, the server answers %d", status)
	}
	s.Resume()
	client.Timeout = 10 * time.Second
	if status, err := asks(); err != nil || status != http.StatusForbidden {
		t.Errorf("resumed, the server answers %d, %v", status, err)
	}
}
