package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstile/locker/internal/doctor"
)

// Goal: the doctor names each right that the locks' scripts need, also those that a later
// change needs. Method: all calls that stand in the sources of the scripts are looked for in
// the probe. INFO has a finding of its own.
func TestTheProbeHasEveryCommandOfTheScripts(t *testing.T) {
	files, err := filepath.Glob("../redisnode/*.go")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	found := map[string]bool{"INFO": true}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			if command := m[1]; !found[command] {
				found[command] = true
				if !strings.Contains(doctor.Probe, "{'"+command+"'") && !strings.Contains(doctor.Probe, "acl_check_cmd('"+command+"'") {
					t.Errorf("scripts call %s, and the probe does not: %s", command, filepath.Base(file))
				}
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("%d commands were found in %d files: nothing is tested", len(found), len(files))
	}
}
