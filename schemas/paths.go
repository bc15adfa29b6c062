package schemas

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// DataFileName is the name of a file that ingest writes: what it holds is all
// in the log, so the path needs no place in a record.
func DataFileName(tableID, epoch int64, counter uint64) string {
	var room [80]byte
	b := strconv.AppendInt(room[:0], tableID, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, epoch, 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, counter, 10)
	return string(append(b, ".parquet"...))
}

// JobFileName is the name of a file that a job wrote (F5).
func JobFileName(name [16]byte) string { return hex.EncodeToString(name[:]) + ".parquet" }

// IsDataFileName says that a name is of a form that varve alone gives to data
// files: that of DataFileName or JobFileName.
func IsDataFileName(name string) bool {
	base, found := strings.CutSuffix(name, ".parquet")
	if !found {
		return false
	}
	if b, err := hex.DecodeString(base); err == nil && len(b) == 16 {
		return true
	}
	parts := strings.Split(base, "-")
	for _, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return len(parts) == 3
}
