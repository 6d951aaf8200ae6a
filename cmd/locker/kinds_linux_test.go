package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// tells is a child that tells its whole environment and goes on until its stdin ends.
const tells = `env | grep ^LOCKER_ | grep -v ^LOCKER_TEST | sort; echo told; read x; echo over`

// holderOf returns what inspect shows of the holders of x.
func holdersOf(t *testing.T, url string) (line lockJSON) {
	t.Helper()
	p := launch(t, "inspect", "--json", "-b", url, "x")
	p.ends(0)
	if err := json.Unmarshal([]byte(p.out.String()), &line); err != nil {
		t.Fatal(err)
	}
	return line
}

func TestCommandsShareALockAndOneOfThemCanBeEnded(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	outer := []string{"LOCKER_TOKEN=1", "LOCKER_TOKENS=2", "LOCKER_NAMES=y", "LOCKER_SLOT=0", "LOCKER_SLOTS=0", "LOCKER_SHARED_TOKENS=3"}
	var readers []*process
	for range 2 {
		p := launchWith(t, outer, "run", "-b", url, "--ttl", "1s", "--shared", "x", "--", "sh", "-c", tells)
		p.says("told")
		if said := p.out.String(); !strings.Contains(said, "LOCKER_NAME=x\nLOCKER_SHARED_TOKEN=") || strings.Count(said, "LOCKER_") != 2 {
			t.Errorf("a reader's environment: %s", said)
		}
		readers = append(readers, p)
	}
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "true").complains(75, `"x" is taken`)
	line := holdersOf(t, url)
	if line.Kind != "shared" || len(line.Holders) != 2 || line.Holders[0].Token >= line.Holders[1].Token || line.Holders[0].Slot != nil {
		t.Fatalf("inspect shows %+v", line)
	}
	p := launch(t, "inspect", "-b", url, "x")
	p.ends(0)
	for _, h := range line.Holders {
		p.says(fmt.Sprintf("token %d", h.Token))
	}
	p.says("yes, shared by 2")
	p = launch(t, "list", "-b", url)
	p.ends(0)
	p.says("shared by 2")

	first, nobodys := strconv.FormatUint(line.Holders[0].Token, 10), strconv.FormatUint(line.Holders[1].Token+1, 10)
	p = launch(t, "unlock", "-b", url, "--force", "--token", first, "--token", nobodys, "x")
	p.ends(0)
	p.says(`"x" was taken from its holder: token ` + first)
	readers[0].complains(70, `lock "x" lost`)
	if line := holdersOf(t, url); len(line.Holders) != 1 {
		t.Errorf("inspect shows %+v", line)
	}
	p = launch(t, "unlock", "-b", url, "--force", "--token", first, "x")
	p.ends(0)
	p.says("was not held with such a token")
	readers[1].goOn()
	readers[1].ends(0)
	launch(t, "run", "-b", url, "--no-wait", "x", "--", "true").ends(0)
}

func TestCommandsHaveSlots(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	var holders []*process
	for slot := range 2 {
		p := launch(t, "run", "-b", url, "--slots", "2", "x", "--", "sh", "-c", tells)
		p.says("told")
		p.says(fmt.Sprintf("LOCKER_NAME=x\nLOCKER_SLOT=%d\nLOCKER_TOKEN=", slot))
		holders = append(holders, p)
	}
	launch(t, "run", "-b", url, "--slots", "2", "--no-wait", "x", "--", "true").complains(75, `"x" is taken`)
	launch(t, "run", "-b", url, "--slots", "3", "x", "--", "true").complains(64, "2 slots", "3 slots")
	if line := holdersOf(t, url); line.Kind != "slots" || line.Slots != 2 || len(line.Holders) != 2 || *line.Holders[1].Slot != 1 {
		t.Errorf("inspect shows %+v", line)
	}
	p := launch(t, "inspect", "-b", url, "x")
	p.ends(0)
	p.says("yes, 2 of 2 slots")
	p.says("slot 1, token ")
	holders[0].goOn()
	holders[0].ends(0)
	p = launch(t, "run", "-b", url, "--slots", "2", "x", "--", "sh", "-c", tells)
	p.says("LOCKER_SLOT=0\n")
	for _, p := range []*process{p, holders[1]} {
		p.goOn()
		p.ends(0)
	}
}

func TestCommandHasSeveralNamesOrNone(t *testing.T) {
	t.Parallel()
	url := "local:" + t.TempDir()
	outer := []string{"LOCKER_TOKEN=1", "LOCKER_NAME=y"}
	p := launchWith(t, outer, "run", "-b", url, "--ttl", "1s", "c", "a", "b", "a", "--", "sh", "-c", tells)
	p.says("told")
	p.says("LOCKER_NAMES=a\n")
	if said := p.out.String(); strings.Contains(said, "LOCKER_NAME=") || strings.Contains(said, "LOCKER_TOKEN=") {
		t.Errorf("the environment: %s", said)
	}
	launch(t, "run", "-b", url, "--no-wait", "0", "b", "--", "true").complains(75, `"b"`)
	free(t, url, "0")
	waits := launch(t, "run", "-b", url, "b", "0", "a", "--", "sh", "-c", `echo "$LOCKER_NAMES" | tr "\n" ,; echo; echo "$LOCKER_TOKENS" | wc -l`)
	launch(t, "unlock", "-b", url, "--force", "b").ends(0)
	p.complains(70, `lock "b" lost`)
	free(t, url, "c")
	waits.ends(0)
	waits.says("0,a,b,\n3\n")
	for _, name := range []string{"0", "a", "b", "c"} {
		free(t, url, name)
	}
}
