package main

import (
	"fmt"
	"slices"
	"strings"
)

// nearest is the known word that is closest to word, and how many edits part
// them; "" when nothing is known. Of equally close ones the first by name.
func nearest(word string, known []string) (string, int) {
	known = slices.Sorted(slices.Values(known))
	best, distance := "", 0
	for _, k := range known {
		d := edits(strings.ToLower(word), strings.ToLower(k))
		// What only has a word before or behind is close as well.
		if len(word) >= 3 && (strings.Contains(k, word) || strings.Contains(word, k)) {
			d = min(d, 2)
		}
		if best == "" || d < distance {
			best, distance = k, d
		}
	}
	return best, distance
}

// didYouMean is "; did you mean …?" when a known word is near enough to be meant.
func didYouMean(word string, known []string) string {
	k, d := nearest(word, known)
	if k == "" || d > max(2, len(word)/3) {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", k)
}

// edits is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
