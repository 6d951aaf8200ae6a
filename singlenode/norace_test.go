//go:build !race

package singlenode_test

const raceDetector = false
