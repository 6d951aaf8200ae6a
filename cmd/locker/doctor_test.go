//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/doctor"
	"github.com/lockstile/locker/internal/testserver"
)

func TestDoctorSaysWhatIsWrongAndExitsWith1ForADanger(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--requirepass", secret, "--appendonly", "yes", "--appendfsync", "everysec",
		"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	url := "redis://:" + secret + "@" + srv.Addr()
	p := launch(t, "doctor", "-b", url)
	p.ends(1)
	for _, want := range []string{"danger: " + srv.Addr() + ": ", "maxmemory-policy allkeys-lru", "which means: ", "mend it: ", "note: ", "also checked: "} {
		p.says(want)
	}
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	p = launch(t, "doctor", "-b", url)
	p.ends(0)
	p.says("note: ")
	srv.Do("CONFIG", "SET", "appendfsync", "always")
	p = launch(t, "doctor", "-b", url)
	p.ends(0)
	p.says("fine: " + srv.Addr() + ": ")
}

func TestDoctorAnswersInJSON(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "everysec")
	p := launch(t, "doctor", "--json", "-b", "redis://"+srv.Addr())
	p.ends(0)
	var r doctor.Report
	if err := json.Unmarshal([]byte(p.out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, p.out)
	}
	if len(r.Findings) != 1 || r.Findings[0].Code != "redis-syncs-late" || r.Findings[0].Severity != doctor.Note || r.Findings[0].Where != srv.Addr() || len(r.Checked) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestDoctorOfNobody(t *testing.T) {
	t.Parallel()
	gone := testserver.Redis(t)
	gone.Kill()
	launch(t, "doctor", "-b", "redis://:"+secret+"@"+gone.Addr()).complains(69, gone.Addr(), "connection refused")
	launch(t, "doctor", "-b", "mysql://:"+secret+"@h").complains(64, "mysql")
	launch(t, "doctor", "-b", "redlock://a,b").complains(64, "3")
	launch(t, "doctor", "x").complains(64, `"x"`)
}

func TestDoctorOfAStoreThatCannotBeUsedSaysWhatItFound(t *testing.T) {
	t.Parallel()
	p := launch(t, "doctor", "-b", testserver.Postgres(t).URL("postgres"))
	p.complains(77, "no tables for locks")
	p.says("fsync is off")
}

func TestDoctorQuotesNothingToTheTerminal(t *testing.T) {
	t.Parallel()
	const odd = "a\nb\x1b[2Jc\x7f"
	if got := oneLine(odd); got != "a b [2Jc " {
		t.Errorf("%q", got)
	}
	var text strings.Builder
	if writeFinding(&text, doctor.Finding{Where: odd, What: odd, Means: odd, Mend: odd}); strings.Contains(text.String(), "b\x1b") || strings.Count(text.String(), "\n") != 4 {
		t.Errorf("%q", text.String())
	}
	dir := filepath.Join(t.TempDir(), odd)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "doctor", "-b", "local:"+dir)
	p.ends(0)
	if said := p.out.String(); strings.ContainsAny(said, "\x1b\x7f") || !strings.Contains(said, oneLine(dir)+": permissions") {
		t.Errorf("%q", said)
	}
}
