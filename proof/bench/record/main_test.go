package record

import (
	"fmt"
	"os"
	"testing"
)

// These tests take minutes, and nothing that changes here changes other people's bugs.
func TestMain(m *testing.M) {
	if os.Getenv("LOCKER_RECORD") != "1" {
		fmt.Println("left out: \"make record\" shows the bugs of other libraries")
		os.Exit(0)
	}
	os.Exit(m.Run())
}
