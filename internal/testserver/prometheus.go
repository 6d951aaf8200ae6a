package testserver

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// PrometheusServer is a Prometheus of a test's own.
type PrometheusServer struct {
	port    int
	process *process
}

// Prometheus starts a server that scrapes targets (host:port, the path /metrics) once a
// second, and waits until it answers queries.
func Prometheus(t TB, targets ...string) *PrometheusServer {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		missing(t, "prometheus", "apt-get install prometheus")
	}
	dir := t.TempDir() // before Cleanup, so that it is removed after the server has ended
	s := new(PrometheusServer)
	t.Cleanup(func() {
		if s.process != nil {
			s.process.kill()
		}
	})
	if s.port, err = reserve(t); err == nil {
		err = s.start(binary, dir, targets)
	}
	if err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	return s
}

func (s *PrometheusServer) start(binary, dir string, targets []string) error {
	config := filepath.Join(dir, "prometheus.yml")
	text := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: test\n  static_configs:\n  - targets:\n"
	for _, target := range targets {
		text += fmt.Sprintf("    - %q\n", target)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	s.process, err = start(exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:"+strconv.Itoa(s.port), "--log.level=warn"))
	if err != nil {
		return err
	}
	return s.process.await(s.isReady)
}

func (s *PrometheusServer) isReady() error {
	answer, err := http.Get(s.URL() + "/-/ready")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s", answer.Status)
	}
	return nil
}

// URL is where its API is.
func (s *PrometheusServer) URL() string {
	return "http://" + local(s.port)
}
