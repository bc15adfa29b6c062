package record

import "testing"

type golden struct {
	name string
	body []byte
}

func goldenSeeds(testing.TB) []golden { return nil }
