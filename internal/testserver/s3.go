package testserver

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// S3Server is an S3 server of a test's own: versitygw, with its objects in a folder of the test.
type S3Server struct {
	single
	// Access and Secret are the credentials, in the region us-east-1. The server is to be addressed with the bucket in the path.
	Access, Secret string

	dir  string
	port int
}

// S3 starts a server without buckets, of the version that internal/testserver/s3server requires. LOCKER_S3_SERVER names another binary, with the same flags.
func S3(t TB) *S3Server {
	t.Helper()
	s := &S3Server{Access: "test", Secret: "of this test alone", single: single{t: t, binary: os.Getenv("LOCKER_S3_SERVER")}}
	if s.binary == "" {
		var err error
		if s.binary, err = built("s3server"); err != nil {
			missing(t, "versitygw", fmt.Sprintf("it is built with go build in internal/testserver/s3server: %v", err))
		}
	}
	s.dir = t.TempDir() // before Cleanup, so that it is removed after the server has ended
	t.Cleanup(s.end)
	var err error
	for range 5 {
		if s.port, err = reserve(t); err != nil {
			break
		}
		if err = s.start(); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		t.Fatalf("starting %s: %v", s.binary, err)
	}
	return s
}

func (s *S3Server) start() error {
	var err error
	s.process, err = start(exec.Command(s.binary, "-access", s.Access, "-secret", s.Secret, "-listen", s.Addr(), "-data", s.dir))
	if err != nil {
		return err
	}
	return s.process.await(s.isReady)
}

func (s *S3Server) isReady() error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(s.URL() + "/health")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s", answer.Status)
	}
	return nil
}

// Addr returns host:port.
func (s *S3Server) Addr() string { return local(s.port) }

// URL is the endpoint for clients.
func (s *S3Server) URL() string { return url(s.port) }

// Start starts a killed server again, on the same port with the objects that it left, and waits until it serves.
func (s *S3Server) Start() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}
