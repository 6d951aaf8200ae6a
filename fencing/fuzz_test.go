package fencing

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// Every token is read as it was written, as text and in JSON. Of all texts those alone are read
// that say a number from 0 on in decimal, and as that number.
func FuzzTextOfAToken(f *testing.F) {
	for _, text := range []string{"0", "1", "007", "+1", "-1", " 1", "1_0", "1e3", "0x1", "18446744073709551615", "18446744073709551616", "٣"} {
		f.Add(text, uint64(math.MaxUint64))
	}
	f.Fuzz(func(t *testing.T, text string, n uint64) {
		if back, err := ParseToken(Token(n).String()); err != nil || back != Token(n) {
			t.Errorf("%d: written as %s, read as %d, %v", n, Token(n), back, err)
		}
		var back struct {
			Token  Token
			Shared SharedToken
		}
		written, err := json.Marshal(map[string]any{"Token": Token(n), "Shared": SharedToken(n)})
		if err == nil {
			err = json.Unmarshal(written, &back)
		}
		if err != nil || back.Token != Token(n) || back.Shared != SharedToken(n) || !strings.Contains(string(written), Token(n).String()) {
			t.Errorf("%d: in JSON %s, read as %+v, %v", n, written, back, err)
		}
		token, err := ParseToken(text)
		digits := strings.Trim(text, "0123456789") == ""
		short := strings.TrimLeft(text, "0")
		switch {
		case err != nil && (token != 0 || !strings.HasPrefix(err.Error(), "fencing: ")):
			t.Errorf("%q: %d, %v", text, token, err)
		case err == nil && (text == "" || !digits || token.String() != short && (token != 0 || short != "")):
			t.Errorf("%q is read as %d", text, token)
		case err != nil && digits && text != "" && len(short) < 20:
			t.Errorf("%q: %v", text, err)
		}
	})
}
