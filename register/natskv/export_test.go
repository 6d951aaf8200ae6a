package natskv

// What the tests need of the Store itself.
var (
	Open = open
	Key  = key
)
