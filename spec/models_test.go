package spec

import (
	"os"
	"os/exec"
	"testing"
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
