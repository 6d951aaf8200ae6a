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
	var files []string
	for _, pattern := range []string{"../redisnode/lua/*.lua", "../redisnode/lua/*/*.lua", "../redisclient/*.go"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	found := map[string]bool{"INFO": true}
	for _, file := range files {
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
