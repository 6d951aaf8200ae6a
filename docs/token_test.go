package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstile/locker/postgres"
)

// The sequence of tokens is set so far ahead that a token passes 2^53, as one of ZooKeeper
// does after 2,048 elections.
func TestTokenBeyondTheNumbersOfJavaScriptArrivesWhole(t *testing.T) {
	t.Parallel()
	url, db := database(t)
	mustExec(t, db, postgres.Schema)
	mustExec(t, db, `SELECT setval('lockstile_token', 8796093022208)`) // 2^43; a token is this times 1,024
	p := start(t, []string{"LOCKER_BACKEND=" + url}, "job")
	p.Ends(0)
	var sent struct{ Token json.RawMessage }
	if err := json.Unmarshal([]byte(p.Said()), &sent); err != nil {
		t.Fatalf("%v: %s", err, p.Said())
	}
	token := strings.Trim(string(sent.Token), `"`)
	if `"`+token+`"` != string(sent.Token) || len(token) < len("9007199254740992") || token <= "9007199254740992" {
		t.Fatalf("not a string with a token beyond 2^53: %s", sent.Token)
	}
	if got := inJavaScript(t, only(t, "js"), p.Said()); got != "invoice 42 under token "+token {
		t.Errorf("JavaScript reads %q from %s", got, p.Said())
	}
}

// Numbers that JavaScript rounds show that the test above could fail.
func TestScriptOfThePageRoundsNoTokenAndNumberWould(t *testing.T) {
	t.Parallel()
	careless := strings.Replace(only(t, "js"), "BigInt(job.token)", "Number(job.token)", 1)
	for _, token := range []string{"9007199254740993", "18446744073709551615"} {
		text := `{"invoice": 42, "token": "` + token + `"}`
		want := "invoice 42 under token " + token
		if got := inJavaScript(t, only(t, "js"), text); got != want {
			t.Errorf("JavaScript reads %q from %s", got, text)
		}
		if got := inJavaScript(t, careless, text); got == want {
			t.Errorf("Number reads %s exactly, and the page says that it does not", text)
		}
	}
}

// inJavaScript returns what a script says when it reads text.
func inJavaScript(t *testing.T, script, text string) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	file := filepath.Join(t.TempDir(), "job.mjs")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	node := exec.Command("node", file)
	node.Stdin = strings.NewReader(text)
	out, err := node.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
