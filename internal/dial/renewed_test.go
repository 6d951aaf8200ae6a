package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	a, err := parseAddress("//u:secret@h,i/db?sslmode=verify-full&sslrootcert="+file, "5432")
	if err != nil {
		t.Fatal(err)
	}
	config, err := parsePostgres(a)
	if err != nil {
		t.Fatal(err)
	}
	renewTLS(config, a)
	before := config.ConnConfig.TLSConfig.RootCAs
	authority(t, file)
	c := config.ConnConfig.Copy()
	if err := config.BeforeConnect(context.Background(), c); err != nil {
		t.Fatal(err)
	}
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
