package postgres

// What a statement's error says.
var (
	Unsure = unsure
	Broken = broken
)
