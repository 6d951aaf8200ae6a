package testserver

import "runtime"

// Heap returns how many bytes of memory this process uses, without garbage. The
// difference of two such figures is what locks or waiters cost.
func Heap() int64 {
	runtime.GC()
	runtime.GC() // frees what a sync.Pool has kept over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
