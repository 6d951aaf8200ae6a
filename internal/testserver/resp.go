package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// resp speaks just enough of the Redis protocol for tests to look at a server
// without the client library that they test.
type resp struct {
	conn net.Conn
	in   *bufio.Reader
}

func newRESP(conn net.Conn) *resp { return &resp{conn, bufio.NewReader(conn)} }

func (c *resp) do(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return "", err
	}
	return c.reply()
}

// reply reads one reply. A missing value is the empty string.
func (c *resp) reply() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("the reply %q is not understood", line)
	case n < 0:
		return "", nil
	case kind == '$':
		return c.text(n)
	default:
		return c.list(n)
	}
}

func (c *resp) text(n int) (string, error) {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

func (c *resp) list(n int) (string, error) {
	items := make([]string, n)
	for i := range items {
		var err error
		if items[i], err = c.reply(); err != nil {
			return "", err
		}
	}
	return strings.Join(items, "\n"), nil
}
