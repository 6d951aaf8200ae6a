//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstile/locker/internal/testserver"
)

// listed returns what "list --json" says of the locks below prefix, by name.
func listed(t *testing.T, url, prefix string) map[string]jsonInfo {
	t.Helper()
	p := launch(t, "list", "--json", "-b", url, prefix)
	p.ends(0)
	infos := map[string]jsonInfo{}
	for line := range strings.Lines(p.out.String()) {
		var info jsonInfo
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			t.Errorf("%q is no object: %v", line, err)
		}
		infos[info.Name] = info
	}
	return infos
}

func TestListShowsHoldersTokensAndWaitersOfLocksBelowAPrefix(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	odd := launch(t, "run", "-b", url, "a/\x1b[2J", "--", "sh", "-c", report)
	plain := launch(t, "run", "-b", url, "a/b", "--", "sh", "-c", report)
	other := launch(t, "run", "-b", url, "b", "--", "sh", "-c", report)
	tokens := []uint64{odd.number("token"), plain.number("token"), other.number("token")}
	waiter := launch(t, "run", "-b", url, "a/b", "--", "true")
	awaitWaiters(t, url, "a/b", "1")
	p := launch(t, "list", "-b", url, "a/")
	p.ends(0)
	var fields [][]string
	for line := range strings.Lines(p.out.String()) {
		fields = append(fields, strings.Fields(line))
	}
	if len(fields) != 3 || strings.Join(fields[0], " ") != "NAME HOLDER TOKEN TIME LEFT WAITERS" {
		t.Fatalf("the table is\n%s", p.out)
	}
	for i, want := range []struct{ name, pid, token, waiters string }{
		{`"a/\x1b[2J"`, fmt.Sprint(odd.cmd.Process.Pid), fmt.Sprint(tokens[0]), "0"},
		{`"a/b"`, fmt.Sprint(plain.cmd.Process.Pid), fmt.Sprint(tokens[1]), "1"},
	} {
		line := strings.Join(fields[i+1], " ")
		if !strings.HasPrefix(line, want.name+` "process `+want.pid+" on ") || !strings.HasSuffix(line, `" `+want.token+" - "+want.waiters) {
			t.Errorf("the line is %s, want %+v", line, want)
		}
	}
	for name, want := range map[string]jsonInfo{
		"a/b": {Name: "a/b", Held: true, Token: tokens[1], Waiters: 1},
		"b":   {Name: "b", Held: true, Token: tokens[2]},
	} {
		if got := listed(t, url, "")[name]; got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	for _, p := range []*process{odd, plain, other} {
		p.goOn()
		p.ends(0)
	}
	waiter.ends(0)
	if left := listed(t, url, ""); len(left) > 0 {
		t.Errorf("locks that nobody holds are listed: %v", left)
	}
}

func TestListGoesOnAndPrintsALineForEveryChange(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	first := launch(t, "run", "-b", url, "x", "--", "sh", "-c", report)
	token := fmt.Sprint(first.number("token"))
	watch := launch(t, "list", "--watch", "-b", url)
	inJSON := launch(t, "list", "--watch", "--json", "-b", url)
	watch.says(token + "  -          0\n")
	inJSON.says(`"token":"` + token + `"`)
	second := launch(t, "run", "-b", url, "a longer name", "--", "sh", "-c", report)
	watch.says(`"a longer name"`)
	first.goOn()
	first.ends(0)
	watch.says("free")
	inJSON.says(`{"name":"x","held":false,"token":"` + token + "\"}\n")
	second.goOn()
	second.ends(0)
	waitFor(t, "the second lock to be free too", func() bool { return strings.Count(watch.out.String(), "free") == 2 })
	if n := strings.Count(watch.out.String(), "\n"); n != 5 { // the header, two that were taken, two that are free
		t.Errorf("%d lines:\n%s", n, watch.out)
	}
	for _, p := range []*process{watch, inJSON} {
		p.signal(syscall.SIGINT)
		p.ends(-int(syscall.SIGINT)) // a shell makes 130 of it, and ends its script
	}
}

func TestListGoesOnThroughAnOutageOfItsStore(t *testing.T) {
	t.Parallel()
	srv := testserver.Postgres(t)
	url := srv.URL("postgres") + "&schema=ensure"
	launch(t, "run", "-b", url, "x", "--", "true").ends(0)
	watch := launch(t, "list", "--watch", "-b", url)
	watch.says("NAME")
	srv.Kill()
	if !watch.errs.await(func(s string) bool { return strings.Contains(s, "looking again every 2s: ") }) {
		t.Fatalf("it does not say that the store is away: %s", watch.errs)
	}
	srv.Start()
	holder := launch(t, "run", "-b", url, "--wait", "10m", "x", "--", "sh", "-c", report)
	watch.says(holder.word("token"))
	launch(t, "run", "-b", url, "y", "--", "sh", "-c", report).word("token")
	watch.says(`"y"`)
	if n := strings.Count(watch.out.String(), `"x"`); n != 1 { // time that passes is no change
		t.Errorf("%d lines about one lock:\n%s", n, watch.out)
	}
	holder.goOn()
	holder.ends(0)
	watch.signal(syscall.SIGINT)
	watch.ends(-int(syscall.SIGINT))
	if n := strings.Count(watch.errs.String(), "looking again"); n != 1 {
		t.Errorf("it said %d times that the store is away: %s", n, watch.errs)
	}
}

func TestListOfAStoreThatIsAwayIsStatus69(t *testing.T) {
	t.Parallel()
	gone := testserver.Redis(t)
	gone.Kill()
	for _, flags := range [][]string{nil, {"--watch"}} {
		args := append([]string{"list", "-b", "redis://:" + secret + "@" + gone.Addr()}, flags...)
		launch(t, args...).complains(69, gone.Addr(), "connection refused")
	}
}
