package matrix

import (
	"os/exec"
	"testing"
	"time"
)

// Whoever starts a server by Lab.Start need not stop it: the lab outlives no play.
func TestWhatALabHasStartedEndsWithIt(t *testing.T) {
	lab := newLab((*exec.Cmd).Start, time.Second)
	cmd := exec.Command("sleep", "60")
	if err := lab.Start(cmd); err != nil {
		t.Fatal(err)
	}
	lab.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("it has ended by itself")
	}
}
