//go:build race

package docs_test

const race = true
