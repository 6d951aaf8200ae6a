package hashslot

import (
	"strings"
	"testing"
)

// The check value is from the Redis Cluster specification, appendix A, and the
// slots of the first two from CLUSTER KEYSLOT.
func TestSlotIsThatOfTheSpecification(t *testing.T) {
	for key, want := range map[string]uint16{"123456789": 0x31C3, "foo": 12182, "": 0} {
		if got := Slot(key); got != want%16384 {
			t.Errorf("slot of %q is %d, want %d", key, got, want%16384)
		}
	}
}

// tagged is the rule of the specification: what is hashed is the text between
// the first brace and the next closing one, if there is any.
func tagged(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); found && closed && tag != "" {
		return tag
	}
	return key
}

func TestKeyBesideAnotherLiesInItsSlotAndIsUnique(t *testing.T) {
	names := []string{"", "a", "{a}", "{a}b", "b{a}", "a}b", "{}", "{}x", "{", "}", "{{a}}", "{a", "a{}b{c}", "t:{a}", "invoices/42", "{a}:{a}"}
	seen := make(map[string]string)
	for _, name := range names {
		key := Beside("x:", name)
		if got, want := Slot(tagged(key)), Slot(tagged(name)); got != want {
			t.Errorf("%q lies in slot %d, %q in %d", key, got, name, want)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q share the key %q", name, other, key)
		}
		seen[key] = name
	}
}

// Stores have such keys: those of another release must be the same.
func TestKeyBesideAnotherIsTheSameInEveryRelease(t *testing.T) {
	for key, want := range map[string]string{
		"a": "x:{a}", "{a": "x:{{a}", "{a}b": "x:{a}:{a}b", "a}b": "x:{20658}:a}b", "": "x:{3560}:",
	} {
		if got := Beside("x:", key); got != want {
			t.Errorf("beside %q is %q, want %q", key, got, want)
		}
	}
}

// Such names cost no more than others: a lock's keys are made for every request.
func BenchmarkBesideAKeyThatClosesABrace(b *testing.B) {
	Beside("x:", "a}")
	for b.Loop() {
		Beside("x:", "a}")
	}
}
