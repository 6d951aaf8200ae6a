package testserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// built returns the program of a nested module below this folder. It builds it unless
// this version of Go has already built it from these sources. Builds are kept in
// LOCKER_TEST_CACHE, by default in the user's cache folder.
func built(module string) (string, error) {
	_, file, _, ok := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), module)
	if _, err := os.Stat(source); !ok || err != nil {
		return "", fmt.Errorf("the sources of %s are not on this machine", module)
	}
	id, err := fingerprint(source)
	if err != nil {
		return "", err
	}
	folder, err := cacheFolder()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, module+"-"+id)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	return binary, build(source, binary)
}

// build puts the program in place in one step, because tests of several packages may
// build it at the same time.
func build(source, binary string) error {
	work, err := os.MkdirTemp(filepath.Dir(binary), "build")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in a folder for caches
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(work, "program"), ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.Rename(filepath.Join(work, "program"), binary)
}

// fingerprint names what a build depends on.
func fingerprint(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, name, len(b))
		_, _ = sum.Write(b) // a hash takes everything
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

func cacheFolder() (string, error) {
	folder := os.Getenv("LOCKER_TEST_CACHE")
	if folder == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		folder = filepath.Join(user, "lockstile-test")
	}
	return folder, os.MkdirAll(folder, 0o755)
}
