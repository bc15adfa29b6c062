package endtoend

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// otherHolders are tests that hold cases of merge order beside mergeCases, by number:
// the folder and the test. A case that is in neither has no test.
var otherHolders = map[int][]string{
	14: {"processors/adopt TestDeletes", "cmd/varve TestImportIceberg"}, // position deletes of a table that is taken; no table is upgraded in place
	16: {"processors/publisher TestTwoPublishers", "processors/publisher TestRemoteTwoPublishers"},
	17: {"topology/endtoend TestOutsideFaults", "processors/publisher TestLostAnswer"},
	18: {"topology/endtoend TestJobsKilled", "processors/sim TestLostWorkerWakesUp"},
	19: {"topology/endtoend TestJobsWait", "processors/sim TestPlannedTwice"},
	20: {"statestore TestManySplits", "statestore TestManyPlans", "statestore TestDeepTree"},
	21: {"topology/endtoend TestTree", "processors/sim TestDeleteBesideASplit", "processors/sim TestStruckBesideWhatMoved"},
	22: {"topology/endtoend TestTree", "processors/sim TestDeleteBesideASplit"},
	23: {"topology/endtoend TestForeignDeleteFiles"},
	25: {"topology/endtoend TestRollback"},
	26: {"topology/endtoend TestGroups", "processors/sim TestTwoBelievers", "statestore TestTwoOwnersExhaustive"},
	27: {"topology/endtoend TestForeignRewrite", "topology/endtoend TestForeignBusy"},
	30: {"topology/endtoend TestGarbage", "processors/sim TestJobCompletesWhileACutIsPending"},
	31: {"topology/endtoend TestOutsideFaults", "processors/sim TestCommitLandedUnheard"},
	32: {"processors/publisher TestTwoPublishers", "processors/publisher TestRemoteStalledPublisher"},
	34: {"processors/sim TestUnknownRecords"},
	39: {"processors/sim TestIndexLostWithItsCheckpoints"},
	41: {"processors/sim TestAddedTwiceBetweenShards"},
	42: {"processors/sim TestAddedAndStruck"},
	43: {"topology/endtoend TestForeignOwed"},
	44: {"statestore TestScripts"}, // testdata/foreign
	45: {"topology/endtoend TestForeignOwed", "processors/sim TestAddedBeneathARequest"},
	46: {"statestore TestScripts"}, // testdata/catalog
}

// lastCase is the number of the last case of merge order.
const lastCase = 47

// TestEveryCaseHasATest: each case of merge order is in mergeCases, which run with a
// compaction before, during and after the delete, or in a test that is named here and
// is there.
func TestEveryCaseHasATest(t *testing.T) {
	ours := map[int]bool{}
	for i := range mergeCases {
		ours[mergeCases[i].n] = true
	}
	for n := 1; n <= lastCase; n++ {
		if !ours[n] && len(otherHolders[n]) == 0 {
			t.Errorf("no test holds case %d", n)
		}
	}
	for n, tests := range otherHolders {
		for _, test := range tests {
			folder, name, _ := strings.Cut(test, " ")
			files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				found = found || regexp.MustCompile(`(?m)^func `+name+`\(`).Match(text)
			}
			if !found {
				t.Errorf("case %d is to be held by %s, which is not there", n, test)
			}
		}
	}
}
