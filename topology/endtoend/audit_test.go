package endtoend

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/iceberg"
)

// lake is what a table's metadata names, with what lies in its folder.
type lake struct {
	data  string            // the data folder
	named map[string]string // path of every file that some version names, and what it is
}

func (l *lake) read(t testing.TB, location string) []byte {
	t.Helper()
	b, err := os.ReadFile(localPath(t, location))
	if err != nil {
		t.Fatal("what the metadata names is not there: ", err)
	}
	return b
}

func localPath(t testing.TB, location string) string {
	t.Helper()
	p, ok := strings.CutPrefix(location, "file://")
	if onS3 != nil {
		p, ok = onS3.locate(location), true
	}
	if !ok {
		t.Fatalf("%s is no local file", location)
	}
	return p
}

// name takes a file that metadata names; false: it was taken before.
func (l *lake) name(t testing.TB, location, what string) bool {
	t.Helper()
	p := localPath(t, location)
	if l.named[p] != "" {
		return false
	}
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("a %s that the metadata names is not there: %v", what, err)
	}
	l.named[p] = what
	return true
}

// nameAll follows every version that the log committed down to its files.
func (l *lake) nameAll(t testing.TB, h *history) {
	t.Helper()
	for i := range h.commits {
		c := &h.commits[i]
		l.name(t, c.MetadataPath, "metadata file")
		m, err := iceberg.ParseMetadata(l.read(t, c.MetadataPath))
		if err != nil {
			t.Fatal(err)
		}
		for j := range m.Snapshots {
			l.nameSnapshot(t, m.Snapshots[j].ManifestList)
		}
	}
}

func (l *lake) nameSnapshot(t testing.TB, list string) {
	t.Helper()
	if !l.name(t, list, "manifest list") {
		return
	}
	lines, err := iceberg.ReadManifestList(l.read(t, list))
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		if !l.name(t, lines[i].Path, "manifest") {
			continue
		}
		m, err := iceberg.ReadManifest(l.read(t, lines[i].Path))
		if err != nil {
			t.Fatal(err)
		}
		for j := range m.Entries {
			what := "data file"
			if lines[i].Content != iceberg.Data {
				what = "Puffin"
			}
			if m.Entries[j].Status == iceberg.Deleted {
				// No reader of this snapshot opens it, and it may be collected (G7).
				if _, err := os.Stat(localPath(t, m.Entries[j].File.Path)); errors.Is(err, os.ErrNotExist) {
					continue
				}
			}
			l.name(t, m.Entries[j].File.Path, what)
		}
	}
}

var (
	// What an outside catalog calls the metadata that it writes, and our names of
	// one attempt at a snapshot.
	catalogName = regexp.MustCompile(`^\d+-[0-9a-f-]{36}\.metadata\.json$`)
	attemptName = regexp.MustCompile(`^(?:([0-9a-f]{32})-\d+-(?:m\d+\.avro|dv\d+\.puffin)|snap-\d+-([0-9a-f]{32})\.avro)$`)

	// What Spark calls its data files and metadata.
	sparkName = regexp.MustCompile(`^(?:\d{5}-\d+-[0-9a-f-]{36}(?:-\d+)?-\d{5}(?:-deletes)?\.(?:parquet|puffin)|[0-9a-f-]{36}-m\d+\.avro|snap-\d+-\d+-[0-9a-f-]{36}\.avro)$`)

	dataName = regexp.MustCompile(`^(\d+)-(\d+)-(\d+)\.parquet$`)
	jobName  = regexp.MustCompile(`^[0-9a-f]{32}\.parquet$`)
)

// audit: whatever a committed version names is there; what is there and named
// by none is a file that was dead before its first snapshot, or one of a closed
// epoch. Of metadata nothing is left over: attempts at one build offset write
// the same files. Only where an outside catalog refused a commit the attempt's
// manifests and vectors stay, all of them (C4), and its own versions by others.
func audit(t testing.TB, data string, h *history) {
	t.Helper()
	l := &lake{data: data, named: map[string]string{}}
	l.nameAll(t, h)
	accepted, newest := map[string]bool{}, map[int32]int64{}
	for i := range h.appends {
		a := &h.appends[i]
		newest[a.Shard.Partition] = max(newest[a.Shard.Partition], a.Epoch)
		for j := range a.Files {
			accepted[strconv.FormatInt(a.Epoch, 10)+"-"+strconv.FormatUint(a.Files[j].ID&(1<<40-1), 10)] = true
		}
	}
	left := map[string]int{}
	taken := map[string]bool{} // attempts of which a committed version names something
	for path := range l.named {
		if m := attemptName.FindStringSubmatch(filepath.Base(path)); m != nil {
			taken[m[1]+m[2]] = true
		}
	}
	for path := range lakeFiles(t, data) {
		rel, err := filepath.Rel(filepath.Join(data, "lake"), path)
		if err != nil {
			t.Fatal(err)
		}
		if h.folder != "" && !strings.HasPrefix(rel, h.folder+"/") && !strings.HasPrefix(rel, "_varve/") {
			continue // of another table
		}
		switch {
		case l.named[path] != "" || strings.HasPrefix(rel, "_varve/") || filepath.Base(path) == "version-hint.text":
		case h.outside && sparkName.MatchString(filepath.Base(path)):
			left["files of another writer whose commit was refused"]++
		case filepath.Base(filepath.Dir(path)) == "data":
			if h.outputs[filepath.Base(path)] {
				left["outputs of jobs, dead before their first snapshot (V7)"]++
				continue
			}
			if jobName.MatchString(filepath.Base(path)) {
				left["outputs of attempts that no completion names (G3)"]++
				continue
			}
			m := dataName.FindStringSubmatch(filepath.Base(path))
			if m == nil {
				t.Errorf("%s is no data file of ours", rel)
				continue
			}
			if accepted[m[2]+"-"+m[3]] {
				left["data files dead before their first snapshot (V7)"]++
				continue
			}
			epoch, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil || slices.Contains(slices.Collect(maps.Values(newest)), epoch) {
				t.Errorf("%s is named by no record, and its epoch is open", rel)
			}
			left["data files of unfinished attempts (G3)"]++
		case h.outside && catalogName.MatchString(filepath.Base(path)):
			left["versions by other writers, or that the catalog did not take"]++
		case h.outside && attemptName.MatchString(filepath.Base(path)):
			m := attemptName.FindStringSubmatch(filepath.Base(path))
			if taken[m[1]+m[2]] {
				t.Errorf("%s is of a snapshot that was committed, and not named by it", rel)
			}
			left["metadata of attempts that the catalog refused (C4)"]++
		default:
			t.Errorf("%s is left over", rel)
		}
	}
	kinds := map[string]int{}
	for _, what := range l.named {
		kinds[what]++
	}
	t.Logf("named: %v; left over: %v", kinds, left)
}
