package docs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test takes the place of cron on three machines, whose clocks are 20 s apart.
func TestCrontabRunsOncePerTickOnThreeMachines(t *testing.T) {
	t.Parallel()
	url, step := skewedRedis(t)
	folder := installed(t)
	runs := filepath.Join(folder, "runs")
	script(t, folder, "report", `echo "$LOCKER_TOKEN" >>`+runs)
	command := crontabCommand(t, folder)
	for tick := 1; tick <= ticks; tick++ {
		for machine := range machines {
			cron := launch(t, []string{"LOCKER_BACKEND=" + url}, exec.Command("/bin/sh", "-c", command))
			cron.Ends(0)
			if said := cron.Said(); said != "" {
				t.Errorf("machine %d in tick %d gets mail: %s", machine, tick, said)
			}
			step(20 * time.Second)
		}
		if n := len(strings.Fields(page(t, runs))); n != tick {
			t.Fatalf("%d runs in %d ticks", n, tick)
		}
	}
}

// crontabCommand returns the command of the page's crontab, with the programs in a folder.
func crontabCommand(t *testing.T, folder string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(only(t, "crontab")), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "LOCKER_BACKEND=redis://") {
		t.Fatalf("this test knows a crontab with LOCKER_BACKEND and one job: %q", lines)
	}
	fields := strings.Fields(lines[1])
	if len(fields) < 8 || fields[5] != "reports" || strings.Contains(lines[1], "%") {
		t.Fatalf("not five times, a user and a command, or a %%, which cron makes a line end of: %q", lines[1])
	}
	return strings.ReplaceAll(strings.Join(fields[6:], " "), "/usr/local/bin/", folder+"/")
}
