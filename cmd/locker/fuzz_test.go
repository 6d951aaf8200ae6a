package main

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
)

// Whatever is known of a lock is valid JSON, in which names and texts are as they were, and
// numbers are texts, exact for programs that read no numbers above 2^53.
func FuzzLockInJSON(f *testing.F) {
	f.Add("invoices/42", "host:1", uint64(1)<<53+1, 2, true)
	f.Add("\x01\u2028</script>", "\"\\", ^uint64(0), -1, true)
	f.Add("日本語", "", uint64(0), 0, false)
	f.Fuzz(func(t *testing.T, name, holder string, number uint64, slot int, held bool) {
		if locker.CheckName(name) != nil {
			t.Skip("no lock has this name")
		}
		info := locker.Info{Name: name, Held: held, Kind: locker.KindShared, Token: fencing.Token(number), Holders: []locker.Holder{{Number: locker.Number(number), Slot: slot}}}
		written, err := json.Marshal(infoJSON(info))
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Name, Token string
			Held        bool
			Holders     []struct {
				Token string
				Slot  *int
			}
		}
		if err := json.Unmarshal(written, &read); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		want := strconv.FormatUint(number, 10)
		if number == 0 {
			want = "" // not known
		}
		if read.Name != name || read.Held != held || read.Token != want || len(read.Holders) != 1 || read.Holders[0].Token != want || (read.Holders[0].Slot != nil) != (slot >= 0) {
			t.Errorf("%+v: %s", info, written)
		}
	})
}

// Whatever the arguments are, a command takes them or returns an error: what stands behind the first "--" is never a flag.
func FuzzArgumentsOfACommand(f *testing.F) {
	f.Add("NAME", "--ttl=5s", "--", "--ttl=x")
	f.Add("-b", "redis://u:p@h", "--json", "x")
	f.Add("--", "-b", "--", "-h")
	f.Add("-b=", "---", "-", "--slots=99999999999999999999")
	f.Fuzz(func(t *testing.T, one, two, three, behind string) {
		for _, verb := range []string{"inspect", "list", "run", "unlock", "lock", "renew"} {
			p := newProgram()
			if err := p.parse([]string{verb, one, two, three, "--", behind}); err == nil && p.chosen != nil && len(p.behind) == 0 {
				t.Errorf("%q: nothing stands behind the dashes", []string{one, two, three, "--", behind})
			}
		}
	})
}
