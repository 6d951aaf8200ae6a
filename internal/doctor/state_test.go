package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// codes are those of what look finds.
func codes(look func(a at)) string {
	r := new(Report)
	look(r.at("x"))
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Code)
	}
	return strings.Join(all, " ")
}

// There is no such server to be had for a test.
func TestServersThatAreTooOldAreADanger(t *testing.T) {
	redis := func(a at, version string) {
		(&redisNode{at: a, info: map[string]string{"redis_version": version}}).state()
	}
	etcd := func(a at, version string) { a.memberState("m", &clientv3.StatusResponse{Version: version, Leader: 1}) }
	zookeeper := func(a at, version string) {
		a.zkState("Zookeeper version: " + version + "-1, built on a day\nMode: standalone\n")
	}
	for _, c := range []struct {
		look           func(at, string)
		old, new, code string
	}{
		{redis, "6.2.14", "7.0.0", "redis-version"},
		{etcd, "3.5.12", "3.5.13", "etcd-version"},
		{zookeeper, "3.5.2", "3.5.3", "zookeeper-version"},
	} {
		if got := codes(func(a at) { c.look(a, c.old) }); got != c.code {
			t.Errorf("of version %s: %q, want %s", c.old, got, c.code)
		}
		if got := codes(func(a at) { c.look(a, c.new) }); got != "" {
			t.Errorf("of version %s: %q", c.new, got)
		}
	}
}

func TestZooKeeperServerThatDoesNotShowItsStateIsNoted(t *testing.T) {
	for text, want := range map[string]string{
		"srvr is not executed because it is not in the whitelist.\n":            "unseen",
		"This ZooKeeper instance is not currently serving requests\n":           "quorum-silent",
		"Zookeeper version: 3.8.0-1, built on a day\nMode: follower\nNode: 1\n": "",
	} {
		var serves bool
		if got := codes(func(a at) { serves = a.zkState(text) }); got != want || serves != (want == "") {
			t.Errorf("%q: %q, want %q; it serves: %v", text, got, want, serves)
		}
	}
}

func TestTicksOfAZooKeeperServerThatDoesNotTellThemAreNoFinding(t *testing.T) {
	for text, want := range map[string]string{
		"tickTime=2000\nminSessionTimeout=3999\n":                  "zookeeper-ticks",
		"tickTime=2000\nminSessionTimeout=4000\n":                  "",
		"tickTime=2000\n":                                          "",
		"minSessionTimeout=-1\n":                                   "",
		"conf is not executed because it is not in the whitelist.": "",
	} {
		if got := codes(func(a at) { a.zkTicks(text) }); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestObserverOfAnEnsembleIsNoVoter(t *testing.T) {
	const list = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:observer;0.0.0.0:2181\nserver.3=c:2888:3888;2181\nversion=100000000\n"
	if n := zkVoters(list); n != 2 {
		t.Errorf("%d voters in\n%s", n, list)
	}
}

func TestQuorumsOfFewEvenOrUnnamedServersAreNoted(t *testing.T) {
	for _, c := range []struct {
		voters, named int
		want          string
	}{
		{1, 1, "quorum-of-one"}, {2, 2, "quorum-even"}, {3, 3, ""}, {3, 2, "quorum-unnamed"}, {4, 3, "quorum-even quorum-unnamed"}, {3, 4, ""},
	} {
		if got := codes(func(a at) { a.quorum(c.voters, c.named) }); got != c.want {
			t.Errorf("%d of %d servers: %q, want %q", c.named, c.voters, got, c.want)
		}
	}
}

func TestReportIsOfADangerIfOneOfItsFindingsIs(t *testing.T) {
	note, danger := Finding{Severity: Note}, Finding{Severity: Danger}
	for _, c := range []struct {
		findings []Finding
		want     bool
	}{{nil, false}, {[]Finding{note}, false}, {[]Finding{note, danger}, true}} {
		if got := (&Report{Findings: c.findings}).Danger(); got != c.want {
			t.Errorf("%+v: a danger is %v", c.findings, got)
		}
	}
}

func TestMemberOfEtcdThatSaysNoIsThere(t *testing.T) {
	for _, no := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthOldRevision} {
		if !denied(fmt.Errorf("asked: %w", no)) {
			t.Errorf("%v is no refusal", no)
		}
	}
	for _, err := range []error{nil, rpctypes.ErrNoLeader, errors.New("permission denied")} {
		if denied(err) {
			t.Errorf("%v is a refusal", err)
		}
	}
}

func TestWhatWasCheckedInOnePlaceIsOneEntry(t *testing.T) {
	r := new(Report)
	for _, c := range []struct{ where, what string }{{"a", "x"}, {"b", "y"}, {"a", "z"}} {
		r.at(c.where).checked("%s", c.what)
	}
	if got := fmt.Sprint(r.Checked); got != "[{a [x z]} {b [y]}]" {
		t.Error(got)
	}
}
