package doctor

import "testing"

func TestVersionsAreComparedPartByPart(t *testing.T) {
	for version, old := range map[string]bool{
		"3.5.12": true, "3.5.13": false, "3.5.9": true, "3.6.0": false, "3.4.99": true, "4.0.0": false, "2.9.99": true,
		"3.5": false, "": false, "unknown": false, "3.5.13-rc.0": false,
	} {
		if before(version, 3, 5, 13) != old {
			t.Errorf("%q is before 3.5.13: %v", version, !old)
		}
	}
	if !before("6.2.14", 7, 0) || before("7.0.0", 7, 0) || before("7.2", 7, 0) {
		t.Error("6.2 comes before 7.0, 7.0 and 7.2 do not")
	}
}
