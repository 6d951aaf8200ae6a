//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/dial"
)

func TestInspectShowsHolderTokenAndWaiters(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "a\nb", "--", "sh", "-c", report)
	token := holder.number("token")
	waiter := launch(t, "run", "-b", url, "a\nb", "--", "true")
	awaitWaiters(t, url, "a\nb", "1")
	p := launch(t, "inspect", "-b", url, "a\nb")
	p.ends(0)
	for key, want := range map[string]string{
		"name:":    `"a\nb"`,
		"held:":    "yes",
		"token:":   fmt.Sprint(token),
		"waiters:": "1",
	} {
		if got := p.word(key); got != want {
			t.Errorf("%s %s, want %s", key, got, want)
		}
	}
	if who := p.word("holder:"); !strings.Contains(who, fmt.Sprintf("process %d on ", holder.cmd.Process.Pid)) {
		t.Errorf("the holder is %s", who)
	}
	if left := p.word("time left:"); !strings.HasSuffix(left, "s") {
		t.Errorf("time left: %s", left)
	}
	inspectJSON(t, url, "a\nb", jsonInfo{Name: "a\nb", Held: true, Token: token, Waiters: 1})
	holder.goOn()
	holder.ends(0)
	waiter.ends(0)
}

type jsonInfo struct {
	Name    string `json:"name"`
	Held    bool   `json:"held"`
	Token   uint64 `json:"token,string"`
	Waiters int    `json:"waiters"`
}

func inspectJSON(t *testing.T, url, name string, want jsonInfo) {
	t.Helper()
	p := launch(t, "inspect", "--json", "-b", url, name)
	p.ends(0)
	var got jsonInfo
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil || got != want {
		t.Errorf("%s is %+v (%v), want %+v", p.out, got, err, want)
	}
}

func TestInspectOfAFreeNameSaysSo(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	p := launch(t, "inspect", "-b", url, "x")
	p.ends(0)
	if got := p.out.String(); p.word("held:") != "no" || strings.Contains(got, "token") || strings.Contains(got, "holder") {
		t.Errorf("of a name never used: %s", got)
	}
	run := launch(t, "run", "-b", url, "x", "--", "sh", "-c", `echo "token $LOCKER_TOKEN"`)
	run.ends(0)
	p = launch(t, "inspect", "x", "-b", url)
	p.ends(0)
	if p.word("held:") != "no" || p.word("last token:") != run.word("token") {
		t.Errorf("of a name that was used: %s", p.out)
	}
	inspectJSON(t, url, "x", jsonInfo{Name: "x", Token: run.number("token")})
}

func TestUnlockWantsForce(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	holder := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	holder.word("token")
	launch(t, "unlock", "-b", url, "x").complains(64, "no handle", "--force")
	holder.goOn()
	holder.ends(0)
	p := launch(t, "unlock", "-b", url, "--force", "x")
	p.ends(0)
	p.says(`"x" was not held`)
	p = launch(t, "unlock", "--json", "-b", url, "--force", "x")
	p.ends(0)
	p.says(`{"name":"x","was_held":false}` + "\n")
}

func TestBackendsAndVersionAreToldInJSON(t *testing.T) {
	t.Parallel()
	p := launch(t, "backends", "--json")
	p.ends(0)
	lines := 0
	for line := range strings.Lines(p.out.String()) {
		var s struct {
			URL       string   `json:"url"`
			Exclusion []string `json:"exclusion_assumes"`
			Tokens    []string `json:"tokens_assume"`
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.URL == "" || s.Exclusion == nil || s.Tokens == nil {
			t.Errorf("%v in %s", err, line)
		}
		lines++
	}
	if want := len(dial.Schemes()); lines != want {
		t.Errorf("%d lines for %d forms of URLs", lines, want)
	}
	p.says(`"exclusion_assumes":["prompt holder","steady clocks"]`)
	p = launch(t, "version", "--json")
	p.ends(0)
	var v map[string]string
	if err := json.Unmarshal([]byte(p.out.String()), &v); err != nil || v["version"] == "" || v["go"] == "" {
		t.Errorf("%v in %s", err, p.out)
	}
}

func TestBackendsListsEveryURLAndAsksNobody(t *testing.T) {
	t.Parallel()
	p := launchWith(t, []string{"LOCKER_BACKEND=redis://u:" + secret + "@127.0.0.1:1"}, "backends")
	p.ends(0)
	for _, want := range []string{"local:[DIR]", "file:DIR", "redis://", "rediss://", "redis-sentinel://", "redis-cluster://", "redlock://", "redlocks://",
		"etcd://", "etcds://", "zk://", "postgres://", "?mode=session", "prompt holder", "EXCLUSION", "TOKENS"} {
		p.says(want)
	}
}
