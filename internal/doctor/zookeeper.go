package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker/internal/zkclient"
	"github.com/lockstile/locker/zookeeper"
)

// ZooKeeperSettings is what a client knows of its connection.
type ZooKeeperSettings struct {
	Hosts   []string
	Base    string // "" is the default one
	ACL     []zk.ACL
	Asked   time.Duration // for the session
	Granted time.Duration
}

// wordTime is how long a server may take to answer one of the four-letter words.
const wordTime = 3 * time.Second

// ZooKeeper looks at the ensemble on which package zookeeper keeps locks.
func ZooKeeper(ctx context.Context, r *Report, conn *zk.Conn, s ZooKeeperSettings) error {
	a := r.at("zookeeper")
	if s.Base == "" {
		s.Base = zookeeper.DefaultBase
	}
	a.sessionTimeout(s)
	client := zkclient.New(conn, s.ACL)
	if err := a.ensemble(ctx, client, s); err != nil {
		return err
	}
	for _, host := range s.Hosts {
		r.at(host).zkServer(ctx)
	}
	return a.openToAll(ctx, client, s)
}

func (a at) sessionTimeout(s ZooKeeperSettings) {
	if s.Granted != s.Asked {
		a.note(fmt.Sprintf("a session timeout of %v was asked for, and %v was granted", s.Asked, s.Granted),
			fmt.Sprintf("a dead holder's locks stay for %v, and locks with a smaller TTL are refused", s.Granted),
			"session_timeout in the URL, or minSessionTimeout and maxSessionTimeout of the servers (2 and 20 ticks by default)")
	}
	a.checked("session timeout (%v)", s.Granted)
}

// ensemble reads the servers' own list of themselves, which a server that stands
// alone does not have.
func (a at) ensemble(ctx context.Context, client *zkclient.Client, s ZooKeeperSettings) error {
	text, err := zkclient.Call(ctx, client, func() ([]byte, error) {
		data, _, err := client.Get("/zookeeper/config")
		return data, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		a.blind("the ensemble's configuration", err, "look at the servers' zoo.cfg")
		return nil
	case err != nil:
		return err
	}
	voters := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, ":observer") {
			voters++
		}
	}
	switch {
	case voters <= 1:
		a.note("one server stands alone", "while it is down, no lock is granted or renewed; the loss of its disk loses the order of tokens", "three servers, or five")
	case voters%2 == 0:
		a.note(fmt.Sprintf("the number of servers that vote, %d, is even", voters), fmt.Sprintf("no more of them may fail than of %d", voters-1), "an odd number of servers")
	}
	if len(s.Hosts) < voters {
		a.note(fmt.Sprintf("the URL names %d of %d servers", len(s.Hosts), voters), "locks cannot be reached when those are down, though the others could serve", "name all servers in the URL")
	}
	a.checked("%d servers that vote", max(voters, 1))
	return nil
}

// zkServer asks one server by its four-letter words, as far as it answers them.
func (a at) zkServer(ctx context.Context) {
	text, err := word(ctx, a.where, "srvr")
	if err != nil {
		a.note("it does not answer: "+err.Error(), "a majority of all servers must be up for every lock", "bring it back")
		return
	}
	srvr := infoOf(text)
	switch {
	case strings.Contains(text, "not in the whitelist"):
		a.blind("its state", errors.New("srvr is not in its whitelist"), "4lw.commands.whitelist=srvr,conf")
		return
	case srvr["Mode"] == "":
		a.note("it is up and does not serve", "it finds no majority of the others, or is still joining them", "look at its log")
		return
	}
	version, _, _ := strings.Cut(strings.TrimSpace(srvr["Zookeeper version"]), "-")
	if before(version, 3, 5) || strings.HasPrefix(version, "3.5.") && version < "3.5.3" {
		a.danger("its version is "+version, "locks need containers: they are refused", "ZooKeeper 3.5.3 or later")
	}
	a.checked("version %s, %s", version, strings.TrimSpace(srvr["Mode"]))
	a.zkConf(ctx)
}

// zkConf tells the limits of sessions, which few servers let be asked.
func (a at) zkConf(ctx context.Context) {
	text, err := word(ctx, a.where, "conf")
	if err != nil || strings.Contains(text, "not in the whitelist") {
		return
	}
	conf := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			conf[name] = value
		}
	}
	tick, noTick := strconv.Atoi(conf["tickTime"])
	least, noLeast := strconv.Atoi(conf["minSessionTimeout"])
	if noTick == nil && noLeast == nil && least < 2*tick {
		a.danger(fmt.Sprintf("minSessionTimeout is %d ms, less than two ticks of %d ms", least, tick),
			"with such a session timeout, a lock can have two holders when the server that the first is connected to fails",
			fmt.Sprintf("minSessionTimeout=%d, the default", 2*tick))
	}
	a.checked("session timeouts from %s to %s ms", conf["minSessionTimeout"], conf["maxSessionTimeout"])
}

// word sends one of the four-letter words to a server.
func word(ctx context.Context, addr, text string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wordTime, fmt.Errorf("no answer within %v", wordTime))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what waits
	defer stop()
	var reply []byte
	if _, err = io.WriteString(conn, text); err == nil {
		reply, err = io.ReadAll(bufio.NewReader(io.LimitReader(conn, 1<<20)))
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return "", cause
	}
	return string(reply), err
}

// openToAll looks at who may touch the node below which the locks are. If it is
// not there yet, it will be made with our ACL.
func (a at) openToAll(ctx context.Context, client *zkclient.Client, s ZooKeeperSettings) error {
	acl, err := zkclient.Call(ctx, client, func() ([]zk.ACL, error) {
		acl, _, err := client.GetACL(s.Base)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		acl = s.ACL
		if len(acl) == 0 {
			acl = zk.WorldACL(zk.PermAll)
		}
	case errors.Is(err, zk.ErrNoAuth):
		a.blind("who may touch "+s.Base, err, "look as a user that may")
		return nil
	case err != nil:
		return err
	}
	for _, entry := range acl {
		if entry.Scheme == "world" && entry.Perms&(zk.PermDelete|zk.PermCreate|zk.PermWrite|zk.PermAdmin) != 0 {
			a.note("anybody who reaches the servers may change what is below "+s.Base, "they can delete the node of a held lock, which lets a second holder in",
				"a user and a password in the URL, on a base that is made with them")
		}
	}
	a.checked("who may touch %s", s.Base)
	return nil
}
