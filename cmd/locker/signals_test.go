package main

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// What comes while locker waits for the lock is not for the command, though the lock may
// be there before it was read.
func TestSignalsThatCameBeforeTheCommandAreNotPassedOn(t *testing.T) {
	for range 100 {
		signals := make(chan os.Signal, 16)
		for range cap(signals) {
			signals <- syscall.SIGHUP
		}
		until(signals, func(context.Context) {})
		if n := len(signals); n > 0 {
			t.Fatalf("%d are left", n)
		}
	}
}
