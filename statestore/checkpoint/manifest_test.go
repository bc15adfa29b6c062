package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

func sample(t testing.TB) *Manifest {
	t.Helper()
	def := &schemas.Definition{
		Name: "t", Location: "mem://store/t", FormatVersion: 3, Mode: schemas.ModeDV, SourceTopic: "t", Format: "rows-json",
		Schemas:      []schemas.Schema{{Identifier: []int32{1}, Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}}},
		LastColumnID: 1, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
	}
	m, err := describe(&statestore.Image{
		Head: statestore.Head{Offset: 7, Partitions: 2, Partition: 1, ApplyVersion: 1},
		Tables: []*statestore.TableInfo{{ID: 3, Name: "t", Definition: def, Shards: []statestore.ShardInfo{{
			Topic: "t", Epoch: 4, Index: record.Ref{Path: "p", Length: 5},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := strings.Repeat("0a", 32)
	m.Files = []File{{Name: "CURRENT", SHA256: h}, {Name: "MANIFEST-1", Length: 2, SHA256: h, Object: filesDir + h + ".0123456789abcdef"}}
	return m
}

// TestManifestForm: the bytes of a manifest are pinned, and what could lead a
// restore out of its folder, or to another object, is refused.
func TestManifestForm(t *testing.T) {
	good := sample(t)
	b, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeManifest(ManifestName(7, b), b)
	if err != nil {
		t.Fatal(err)
	}
	ts, err := m.Directory()
	if err != nil || ts[0].ID != 3 || ts[0].Shards[0].Index.Path != "p" {
		t.Fatal(ts, err)
	}
	if !strings.HasPrefix(string(b), `{"format":1,"deployment":"00000000000000000000000000000000","partitions":2,"partition":1,"offset":7,"leader_epoch":0,"record_crc32c":0,"time_ms":0,"chain":"`) {
		t.Fatalf("%s", b)
	}
	for what, edit := range map[string]func(m *Manifest){
		"name out of the folder":   func(m *Manifest) { m.Files[0].Name = "../x" },
		"name of a folder":         func(m *Manifest) { m.Files[0].Name = ".." },
		"two of one name":          func(m *Manifest) { m.Files[1].Name = "CURRENT" },
		"object of another hash":   func(m *Manifest) { m.Files[1].Object = "files/" + strings.Repeat("0b", 32) + ".0123456789abcdef" },
		"object elsewhere":         func(m *Manifest) { m.Files[1].Object = "../../catalog" },
		"bytes without an object":  func(m *Manifest) { m.Files[0].Length = 3 },
		"negative length":          func(m *Manifest) { m.Files[1].Length = -1 },
		"no files":                 func(m *Manifest) { m.Files = []File{} },
		"partition out of range":   func(m *Manifest) { m.Partition = 2 },
		"chain of other length":    func(m *Manifest) { m.Chain = "00" },
		"offset of another name":   func(m *Manifest) { m.Offset = 8 },
		"deployment in capitals":   func(m *Manifest) { m.Deployment = strings.ToUpper("0a" + m.Deployment[2:]) },
		"topic id of other length": func(m *Manifest) { m.Tables[0].Shards[0].TopicID = "" },
	} {
		m := sample(t)
		edit(m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(ManifestName(7, b), b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, b := range map[string][]byte{
		"spaces":        append(bytes.Clone(b), ' '),
		"unknown field": bytes.Replace(b, []byte(`{"format":1,`), []byte(`{"format":1,"more":2,`), 1),
		"another order": bytes.Replace(b, []byte(`"partitions":2,"partition":1`), []byte(`"partition":1,"partitions":2`), 1),
	} {
		if _, err := decodeManifest(ManifestName(7, b), b); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzManifest: no bytes panic; what decodes is what encodes to them.
func FuzzManifest(f *testing.F) {
	b, err := sample(f).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(int64(7), b)
	f.Add(int64(0), []byte(`{"format":9}`))
	f.Fuzz(func(t *testing.T, offset int64, b []byte) {
		m, err := decodeManifest(ManifestName(offset, b), b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := m.encode()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatal("another form", err)
		}
		m.Head()
		if _, err := m.Directory(); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}
