package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// authority writes the certificate of a new one to a file.
func authority(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The pool of PostgreSQL's client parses a URL once. Each of its connections, also to the second
// host, and the one that asks with a password, goes by what the files have when it is made.
func TestPostgresReadsTheFilesOfTLSForEachConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root.crt")
	authority(t, file)
	config := pooled(t, "//u:secret@h,i/db?sslmode=verify-full&sslrootcert="+file)
	before := config.ConnConfig.TLSConfig.RootCAs
	authority(t, file)
	c := next(t, config)
	if c.TLSConfig.RootCAs.Equal(before) || c.TLSConfig.ServerName != "h" {
		t.Errorf("the first host: the authority is the old one: %v; the name %q", c.TLSConfig.RootCAs.Equal(before), c.TLSConfig.ServerName)
	}
	if len(c.Fallbacks) != 1 || c.Fallbacks[0].TLSConfig.RootCAs.Equal(before) || c.Fallbacks[0].TLSConfig.ServerName != "i" {
		t.Errorf("the second host: %+v", c.Fallbacks)
	}
	if c.Password != "secret" || c.Host != "h" {
		t.Errorf("the connection has lost its host %q or its password", c.Host)
	}
}

// next returns the settings of the next connection of a pool for the URL.
func next(t *testing.T, config *pgxpool.Config) *pgx.ConnConfig {
	t.Helper()
	c := config.ConnConfig.Copy()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(context.Background(), c); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// pooled returns the settings of a pool for the URL.
func pooled(t *testing.T, rest string) *pgxpool.Config {
	t.Helper()
	a, err := parseAddress(rest, "5432")
	if err != nil {
		t.Fatal(err)
	}
	again := a
	again.query = maps.Clone(a.query)
	config, err := parsePostgres(a)
	if err != nil {
		t.Fatal(err)
	}
	renewFiles(config, again)
	return config
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A password is changed in a file while a program runs. Goal: the next connection has the new one,
// whoever names the file, with TLS and without; a password in the URL counts more than any file; and
// a file that is away for a moment takes no password away.
func TestPostgresReadsPasswordsForEachConnection(t *testing.T) {
	for _, c := range []struct{ what, before, after, url, variable, value, want string }{
		{"in the URL", "*:*:*:*:old\n", "*:*:*:*:new\n", "//u@h/db?sslmode=disable&passfile=FILE", "", "", "new"},
		{"in the URL, with TLS", "*:*:*:*:old\n", "*:*:*:*:new\n", "//u@h/db?sslmode=require&passfile=FILE", "", "", "new"},
		{"in a variable", "*:*:*:*:old\n", "*:*:*:*:new\n", "//u@h/db?sslmode=disable", "PGPASSFILE", "FILE", "new"},
		{"a service", "[s]\npassword=old\n", "[s]\npassword=new\n", "//u@h/db?sslmode=disable&service=s", "PGSERVICEFILE", "FILE", "new"},
		{"a password in the URL", "*:*:*:*:old\n", "*:*:*:*:new\n", "//u:mine@h/db?sslmode=disable&passfile=FILE", "", "", "mine"},
		{"a file that is away", "*:*:*:*:old\n", "", "//u@h/db?sslmode=disable&passfile=FILE", "", "", "old"},
		{"of another user", "[s]\nuser=a\npassword=old\n", "[s]\nuser=b\npassword=new\n", "//h/db?sslmode=disable&service=s", "PGSERVICEFILE", "FILE", "old"},
		{"of another server", "[s]\nhost=a\npassword=old\n", "[s]\nhost=b\npassword=new\n", "//u@/db?sslmode=disable&service=s", "PGSERVICEFILE", "FILE", "old"},
	} {
		t.Run(c.what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file")
			if c.variable != "" {
				t.Setenv(c.variable, strings.ReplaceAll(c.value, "FILE", file))
			}
			write(t, file, c.before)
			config := pooled(t, strings.ReplaceAll(c.url, "FILE", file))
			write(t, file, c.after)
			if n := next(t, config); n.Password != c.want || n.Host != config.ConnConfig.Host || n.User != config.ConnConfig.User {
				t.Errorf("the next connection is for %s at %s with the password %q, want %q", n.User, n.Host, n.Password, c.want)
			}
		})
	}
}

// Goal: where a connection is tried without TLS first (sslmode=allow), and with it after that, the
// second one goes by what the files have.
func TestPostgresReadsTheFilesOfTLSWhereAServerMayDoWithoutIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root.crt")
	authority(t, file)
	config := pooled(t, "//u:secret@h/db?sslmode=allow&sslrootcert="+file)
	if f := config.ConnConfig.Fallbacks; config.ConnConfig.TLSConfig != nil || len(f) != 1 || f[0].TLSConfig == nil || f[0].TLSConfig.RootCAs == nil {
		t.Fatalf("TLS is not what is tried second: %+v", f)
	}
	before := config.ConnConfig.Fallbacks[0].TLSConfig.RootCAs
	authority(t, file)
	if c := next(t, config); c.TLSConfig != nil || len(c.Fallbacks) != 1 || c.Fallbacks[0].TLSConfig.RootCAs.Equal(before) {
		t.Error("the authority of the next connection is the old one")
	}
}
