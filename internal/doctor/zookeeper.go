package doctor

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/dial"
	"github.com/lockstile/locker/internal/zkclient"
	"github.com/lockstile/locker/zookeeper"
)

// wordTime is how long a server may take to answer one of the four-letter words.
const wordTime = 3 * time.Second

// zooKeeper looks at the ensemble on which package zookeeper keeps locks.
func (r *Report) zooKeeper(ctx context.Context, b *dial.ZooKeeper) error {
	a, client := r.at("zookeeper"), zkclient.New(b.Conn, b.Options.ACL)
	granted := b.Options.Session.Timeout()
	if granted != b.Asked {
		a.found("zookeeper-session", b.Asked, granted)
	}
	a.checked("session timeout (%v)", granted)
	if err := a.ensemble(ctx, client, len(b.Hosts)); err != nil {
		return err
	}
	for _, host := range b.Hosts {
		r.at(host).zkServer(ctx)
	}
	return a.openToAll(ctx, client, b.Options)
}

// ensemble reads the servers' own list of themselves. A server that stands alone has an
// empty one.
func (a at) ensemble(ctx context.Context, client *zkclient.Client, named int) error {
	text, err := zkclient.Call(ctx, client, func() ([]byte, error) {
		data, _, err := client.Get("/zookeeper/config")
		return data, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		a.found("unseen", "the ensemble's configuration", err)
		return nil
	case err != nil:
		return err
	}
	a.quorum(max(zkVoters(string(text)), 1), named)
	return nil
}

// zkVoters counts the servers that vote in a list of an ensemble.
func zkVoters(list string) (n int) {
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
			n++
		}
	}
	return n
}

// zkServer asks one server by its four-letter words. Few servers answer conf.
func (a at) zkServer(ctx context.Context) {
	text, err := word(ctx, a.where, "srvr")
	if err != nil {
		a.found("quorum-silent", "it", err)
		return
	}
	if !a.zkState(text) {
		return
	}
	if text, err = word(ctx, a.where, "conf"); err == nil {
		a.zkTicks(text)
	}
}

// zkState looks at what a server says of its state, and reports whether it serves.
func (a at) zkState(text string) bool {
	srvr := pairs(text, ":")
	switch {
	case strings.Contains(text, "not in the whitelist"):
		a.found("unseen", "its state (4lw.commands.whitelist=srvr,conf)", strings.TrimSpace(text))
		return false
	case srvr["Mode"] == "":
		a.found("quorum-silent", "it", "it is up, and finds no majority of the others or is still joining them")
		return false
	}
	version, _, _ := strings.Cut(srvr["Zookeeper version"], "-")
	if before(version, 3, 5, 3) {
		a.found("zookeeper-version", version)
	}
	a.checked("version %s, %s", version, srvr["Mode"])
	return true
}

// zkTicks looks at which session timeouts a server grants. Where it does not say, nothing is found.
func (a at) zkTicks(text string) {
	conf := pairs(text, "=")
	tick, noTick := strconv.Atoi(conf["tickTime"])
	least, noLeast := strconv.Atoi(conf["minSessionTimeout"])
	if noTick != nil || noLeast != nil {
		return
	}
	if least < 2*tick {
		a.found("zookeeper-ticks", least, tick)
	}
	a.checked("session timeouts from %d ms", least)
}

// word sends one of the four-letter words to a server, which answers and hangs up.
func word(ctx context.Context, addr, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wordTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, 1<<20))
	return string(reply), err
}

// openToAll looks at who may touch the node below which the locks are. If it is
// not there yet, it will be made with our ACL.
func (a at) openToAll(ctx context.Context, client *zkclient.Client, opts zookeeper.Options) error {
	base := opts.Base
	if base == "" {
		base = zookeeper.DefaultBase
	}
	acl, err := zkclient.Call(ctx, client, func() ([]zk.ACL, error) {
		acl, _, err := client.GetACL(base)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode) && len(opts.ACL) == 0:
		acl = zk.WorldACL(zk.PermAll)
	case errors.Is(err, zk.ErrNoNode):
		acl = opts.ACL
	case errors.Is(err, zk.ErrNoAuth):
		a.found("unseen", "who may touch "+base, err)
		return nil
	case err != nil:
		return err
	}
	for _, entry := range acl {
		if entry.Scheme == "world" && entry.Perms&(zk.PermDelete|zk.PermCreate|zk.PermWrite|zk.PermAdmin) != 0 {
			a.found("zookeeper-open", base)
		}
	}
	a.checked("who may touch %s", base)
	return nil
}
