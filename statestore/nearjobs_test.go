package statestore

import "testing"

// TestNearJobs: what is at hand is what was written last, within its bound, and
// nothing of what ended.
func TestNearJobs(t *testing.T) {
	var n nearJobs
	at := func(table int64, item int32) nearJob { return nearJob{table, jobID{7, item}} }
	big := make([]byte, nearJobsRoom/4)
	for i := range int32(6) {
		n.keep(at(1, i), big)
	}
	if len(n.byID) != 3 || n.byID[at(1, 0)] == nil || n.byID[at(1, 5)] != nil {
		t.Errorf("%d jobs are at hand", len(n.byID))
	}
	n.keep(at(1, 1), []byte("attempt 2"))
	n.keep(at(2, 9), []byte("another table"))
	if string(n.byID[at(1, 1)]) != "attempt 2" {
		t.Error("an older attempt is at hand")
	}
	n.keep(at(1, 2), make([]byte, nearJobsRoom+1))
	if _, ok := n.byID[at(1, 2)]; ok {
		t.Error("a job that has grown beyond the room is at hand as it was before")
	}
	n.forgetTable(1)
	n.forget(at(1, 77))
	if len(n.byID) != 1 || n.size != len("another table")+nearJobBytes {
		t.Errorf("%d jobs, %d bytes", len(n.byID), n.size)
	}
	n.forget(at(2, 9))
	if n.size != 0 {
		t.Errorf("%d bytes of nothing", n.size)
	}
}
