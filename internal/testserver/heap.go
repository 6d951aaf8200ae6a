package testserver

import "runtime"

// Heap is how many bytes this process keeps: what a lock or a waiter costs it is the
// difference of two.
func Heap() int64 {
	runtime.GC()
	runtime.GC() // what a pool held in the first goes in the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
