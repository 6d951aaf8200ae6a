package mailbox

import (
	"strings"
	"testing"
)

// Whatever a store sends, a waiter hears a word only if it names that waiter, and nobody hears
// two. The values of waiters never begin with an exclamation mark.
func FuzzWordOfAnyText(f *testing.F) {
	for _, text := range []string{"", "!", "v", "!v", "!!v", "v!", "3#v", "!3#v", "#v\x00"} {
		f.Add(text, "v", "3#v")
	}
	f.Fuzz(func(t *testing.T, text, one, two string) {
		if one == two || strings.HasPrefix(one+"\x00"+two, "!") || strings.HasPrefix(two, "!") {
			t.Skip("no values of two waiters")
		}
		m := New(nil)
		defer m.Close()
		heard := make(map[string][]Word)
		for _, value := range []string{one, two} {
			if err := m.Open(t.Context(), value, func(w Word) { heard[value] = append(heard[value], w) }); err != nil {
				t.Fatal(err)
			}
		}
		m.Receive(text)
		for _, value := range []string{one, two} {
			want := map[string]Word{value: Ask, "!" + value: StandBy}[text]
			if got := heard[value]; len(got) > 1 || want == 0 && len(got) > 0 || want > 0 && (len(got) != 1 || got[0] != want) {
				t.Errorf("%q: the waiter %q heard %v, want %v", text, value, got, want)
			}
		}
	})
}
