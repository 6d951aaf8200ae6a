package locker_test

import (
	"testing"

	"github.com/lockstile/locker/internal/quoted"
)

func TestArchitectureNamesWhatIsThere(t *testing.T) { quoted.Names(t, ".", "docs/ARCHITECTURE.md", 50) }
