package schemas

import "testing"

// The vectors of Kafka's own UtilsTest.testMurmur2.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

// L1: toPositive, not the absolute value, and the same for every caller.
func TestPartitionOf(t *testing.T) {
	for _, c := range []struct {
		table      string
		partitions int32
		want       int32
	}{
		{"abc", 8, 479470107 % 8},
		{"21", 8, (-973932308 & 0x7fffffff) % 8},
		{"foobar", 7, (-790332482 & 0x7fffffff) % 7},
		{"", 1, 0},
		{"shop.orders", 1, 0},
	} {
		if got := PartitionOf(c.table, c.partitions); got != c.want {
			t.Errorf("%q of %d: %d, want %d", c.table, c.partitions, got, c.want)
		}
	}
}
