package planner

import "testing"

// F24: with one unsorted input a job's outputs need not ascend, so such files are put
// together among themselves, whatever the strategy.
func TestUnsortedApart(t *testing.T) {
	var files []File
	for i := range 12 {
		files = append(files, File{Bytes: mib, Dead: 500, Unsorted: i%2 == 1})
	}
	for _, s := range []Strategy{SizeRatio, SmallFiles, Deletes, Full} {
		if got, want := ids(plan(policy(s), 100, files...)), "[[1 3 5 7 9 11] [2 4 6 8 10 12]]"; got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}
