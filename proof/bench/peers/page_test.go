package peers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstile/locker/proof/bench/peers"
	"github.com/lockstile/locker/proof/matrix"
	"github.com/lockstile/locker/proof/matrix/report"
)

// To make the page takes minutes, so it may be older than its texts: it must not be.
func TestThePageHasTheWordsOfThisFolder(t *testing.T) {
	page, err := os.ReadFile("../../../docs/PEERS.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), peers.Intro) || !strings.HasSuffix(string(page), peers.Notes) {
		t.Error("docs/PEERS.md has other words than intro.md and notes.md: run make peers")
	}
	var made strings.Builder
	report.MarkdownUnder(&made, new(matrix.Matrix), peers.Intro)
	if head, _, _ := strings.Cut(made.String(), "\n## Declared\n"); !strings.Contains(string(page), head+"\n## Declared\n") {
		t.Errorf("docs/PEERS.md does not explain its words as proof/matrix/report does:\n%s", head)
	}
	for _, s := range peers.Subjects() {
		if !strings.Contains(string(page), "| "+s.Name+" | "+s.About+" |") {
			t.Errorf("docs/PEERS.md does not show %s as it is: run make peers", s.Name)
		}
	}
}
