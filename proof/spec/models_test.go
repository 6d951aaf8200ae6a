package spec

import (
	"os"
	"os/exec"
	"testing"

	"github.com/lockstile/locker/internal/quoted"
)

func TestModelsHoldAndTheirWrongVariantsFail(t *testing.T) {
	if _, err := exec.LookPath("spin"); err != nil && os.Getenv("LOCKER_TEST_REQUIRE") != "1" {
		t.Skip("spin is not installed: make test does it")
	}
	out, err := exec.CommandContext(t.Context(), "./check.sh").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestModelsNameWhatIsThere(t *testing.T) {
	for page, least := range map[string]int{"README.md": 20, "lease.pml": 9, "guard.pml": 3, "redlock.pml": 8} {
		quoted.Names(t, "../..", "proof/spec/"+page, least)
	}
}
