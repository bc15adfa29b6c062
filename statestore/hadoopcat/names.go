package hadoopcat

import (
	"strconv"
	"strings"
)

const (
	hintName     = "version-hint.text"
	plainSuffix  = ".metadata.json"
	gzipSuffix   = ".gz.metadata.json" // written by other engines, never by us
	folder       = "/metadata/"
	versionStart = "v"
)

func versionKey(tableKey string, n int) string {
	return tableKey + folder + versionStart + strconv.Itoa(n) + plainSuffix
}

func gzipKey(tableKey string, n int) string {
	return tableKey + folder + versionStart + strconv.Itoa(n) + gzipSuffix
}

func hintKey(tableKey string) string { return tableKey + folder + hintName }

// parseVersion reads the number of a version's file name, gzipped or not.
func parseVersion(name string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(name, versionStart)
	if !ok {
		return 0, false
	}
	if d, gz := strings.CutSuffix(digits, gzipSuffix); gz {
		digits = d
	} else if digits, ok = strings.CutSuffix(digits, plainSuffix); !ok {
		return 0, false
	}
	return parseNumber(digits)
}

// parseNumber takes only what strconv.Itoa writes for a version: from 1, no
// sign, no leading zeros, no white space.
func parseNumber(digits string) (int, bool) {
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || strconv.Itoa(n) != digits {
		return 0, false
	}
	return n, true
}
