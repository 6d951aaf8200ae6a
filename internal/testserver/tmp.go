package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type TB interface {
	Helper()
	Fatalf(string, ...any)
	Skipf(string, ...any)
	Logf(string, ...any)
	Cleanup(func())
	TempDir() string
}

type RedisServer struct {
	t    TB
	dir  string
	port string
	args []string
	cmd  *exec.Cmd
}

func Redis(t TB, args ...string) *RedisServer {
	t.Helper()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	s := &RedisServer{t: t, dir: t.TempDir(), port: port, args: args}
	s.Start()
	t.Cleanup(func() { s.Kill() })
	return s
}
func (s *RedisServer) Addr() string { return "127.0.0.1:" + s.port }
func (s *RedisServer) Dir() string  { return s.dir }
func (s *RedisServer) Kill()        { s.cmd.Process.Kill(); s.cmd.Wait() }
func (s *RedisServer) Pause()       { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *RedisServer) Resume()      { s.cmd.Process.Signal(syscall.SIGCONT) }
func (s *RedisServer) Wipe()        { os.RemoveAll(s.dir); os.Mkdir(s.dir, 0o755) }
func (s *RedisServer) Start() {
	s.cmd = exec.Command("redis-server", append([]string{"--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no"}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v", err)
	}
	for i := 0; i < 500; i++ {
		if _, err := s.TryDo("PING"); err == nil || strings.Contains(err.Error(), "NOAUTH") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("no start")
}
func (s *RedisServer) Do(args ...string) string {
	s.t.Helper()
	r, err := s.TryDo(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return r
}
func (s *RedisServer) TryDo(args ...string) (string, error) {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	fmt.Fprintf(c, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a)
	}
	return read(bufio.NewReader(c))
}
func read(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch line[0] {
	case '+', ':':
		return line[1:], nil
	case '-':
		return "", fmt.Errorf("%s", line[1:])
	case '$':
		n, _ := strconv.Atoi(line[1:])
		if n < 0 {
			return "", nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		n, _ := strconv.Atoi(line[1:])
		var out []string
		for range n {
			s, err := read(r)
			if err != nil {
				return "", err
			}
			out = append(out, s)
		}
		return strings.Join(out, "\n"), nil
	}
	return "", fmt.Errorf("? %s", line)
}
