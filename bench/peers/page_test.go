package peers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstile/locker/bench/peers"
)

// The page is made by a run of minutes; its words must not lag behind.
func TestThePageHasTheWordsOfThisFolder(t *testing.T) {
	page, err := os.ReadFile("../../docs/PEERS.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), peers.Intro) || !strings.HasSuffix(string(page), peers.Notes) {
		t.Error("docs/PEERS.md has other words than intro.md and notes.md: run make peers")
	}
	for _, s := range peers.Subjects() {
		if !strings.Contains(string(page), "| "+s.Name+" | "+s.About+" |") {
			t.Errorf("docs/PEERS.md does not show %s as it is: run make peers", s.Name)
		}
	}
}
