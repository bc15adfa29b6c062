package bench

import "testing"

func TestBelow(t *testing.T) {
	for where, want := range map[string]string{
		"/mnt/lake": "/mnt/lake/x",
		"s3://b/some?endpoint=http://h:1&region=r": "s3://b/some/x?endpoint=http://h:1&region=r",
		"s3://b": "s3://b/x",
	} {
		if got, err := below(where, "x"); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", where, got, err, want)
		}
	}
}
