package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Format is the form of manifests that this binary writes, and the newest that
// it reads.
const Format = 1

// Limits of what is read.
const (
	maxManifest = 64 << 20 // bytes
	maxFiles    = 1 << 17
	maxName     = 200 // bytes of a file's name
)

// Errors that callers decide on.
var (
	// ErrNone: there is no checkpoint that can be used.
	ErrNone = errors.New("there is no usable checkpoint")
	// ErrNewer: the manifest is of a form, or the state of an apply version, that
	// this binary does not know.
	ErrNewer = errors.New("the checkpoint was made by a newer version")
	// ErrDamaged: an object is missing or is not what its name or manifest says.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrForeign: the checkpoint is of another deployment or partition.
	ErrForeign = errors.New("the checkpoint belongs to another deployment or partition")
	// ErrUnfit: the log does not reach to the checkpoint, or begins behind it.
	ErrUnfit = errors.New("the checkpoint does not fit the log")
)

// Manifest says what a checkpoint is and which files it has.
type Manifest struct {
	Format       int     `json:"format"`
	Deployment   string  `json:"deployment"`
	Partitions   int32   `json:"partitions"`
	Partition    int32   `json:"partition"`
	Offset       int64   `json:"offset"`
	LeaderEpoch  int32   `json:"leader_epoch"`
	Checksum     uint32  `json:"record_crc32c"`
	TimeMs       int64   `json:"time_ms"`
	Chain        string  `json:"chain"`
	ApplyVersion uint32  `json:"apply_version"`
	Content      Content `json:"content"`
	Tables       []Table `json:"tables"`
	Files        []File  `json:"files"`

	name string // of the manifest, without folder
}

// Content are facts of the state.
type Content struct {
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Tables int64  `json:"tables"`
	Shards int64  `json:"shards"`
	Files  int64  `json:"files"`
	Rows   int64  `json:"rows"`
}

// Table is what a node that does not have the state needs of a table: what
// statestore.TableInfo has but its snapshots. Definition is the base64 of its
// Avro bytes.
type Table struct {
	ID         int64    `json:"id"`
	Name       string   `json:"name"`
	Definition string   `json:"definition"`
	Head       Catalog  `json:"head"`
	Pending    *Pending `json:"pending,omitempty"`
	Changes    bool     `json:"changes"`
	LastChange int64    `json:"last_change"`
	Files      int64    `json:"files"`
	Rows       int64    `json:"rows"`
	Bytes      int64    `json:"bytes"`
	Dead       int64    `json:"dead"`
	Vectors    int64    `json:"vectors"`
	Counts     Counts   `json:"counts"`
	Requests   []int64  `json:"requests"`
	Shards     []Shard  `json:"shards"`
	// Reshard is what the state knows of divisions of the source topic, in
	// base64 of the state's own form.
	Reshard string `json:"reshard,omitempty"`
	// Rolled is the offset of the newest Rollback, 0 none.
	Rolled int64 `json:"rolled,omitempty"`
}

// Catalog is the table's statestore.CatalogHead.
type Catalog struct {
	SnapshotID      int64  `json:"snapshot_id"`
	Sequence        int64  `json:"sequence"`
	NextRowID       int64  `json:"next_row_id"`
	TimestampMs     int64  `json:"timestamp_ms"`
	MetadataVersion int64  `json:"metadata_version"`
	MetadataPath    string `json:"metadata_path"`
	MetadataSHA256  string `json:"metadata_sha256"`
	Build           int64  `json:"build"`
	Through         int64  `json:"through"`
}

// Pending is a cut that waits for its publisher.
type Pending struct {
	Cut       int64  `json:"cut"`
	Build     int64  `json:"build"`
	Attempts  int64  `json:"attempts"`
	LastCause string `json:"last_cause"`
	Rollback  int64  `json:"rollback,omitempty"`
}

// Counts are record.Counts, in their order.
type Counts [9]int64

// Shard is one of a table's.
type Shard struct {
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id"`
	Partition  int32  `json:"partition"`
	FirstClaim int64  `json:"first_claim"`
	Epoch      int64  `json:"epoch"`
	Open       bool   `json:"open"`
	Retired    bool   `json:"retired"`
	Member     string `json:"member"`
	Writer     uint32 `json:"writer"`
	Counter    int64  `json:"counter"`
	SourceEnd  int64  `json:"source_end"`
	RequestEnd int64  `json:"request_end"`
	Framing    uint64 `json:"framing"`
	Counts     Counts `json:"counts"`
	Horizon    int64  `json:"horizon"`
	Index      *Ref   `json:"index,omitempty"`
}

// Ref names an object of the warehouse.
type Ref struct {
	Path   string `json:"path"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
}

// File is one of the database's.
type File struct {
	Name   string `json:"name"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
	Object string `json:"object"`
}

// ID is the checkpoint's name for people: its offset and the beginning of its
// manifest's hash.
func (m *Manifest) ID() string { return idOf(m.name) }

func idOf(name string) string {
	offset, hash, ok := parseName(name)
	if !ok {
		return name
	}
	return fmt.Sprintf("%d-%s", offset, hash[:12])
}

// Bytes is the length of all files.
func (m *Manifest) Bytes() int64 {
	n := int64(0)
	for i := range m.Files {
		n += m.Files[i].Length
	}
	return n
}

// Head is where the state stands in its log.
func (m *Manifest) Head() statestore.Head {
	h := statestore.Head{
		Offset: m.Offset, LeaderEpoch: m.LeaderEpoch, Checksum: m.Checksum, TimeMs: m.TimeMs, ApplyVersion: m.ApplyVersion,
		Partitions: m.Partitions, Partition: m.Partition,
	}
	hex.Decode(h.Chain[:], []byte(m.Chain)) // both were checked by decode
	hex.Decode(h.Deployment[:], []byte(m.Deployment))
	return h
}

// Directory is what the manifest says of the tables, as far as it says it.
func (m *Manifest) Directory() ([]*statestore.TableInfo, error) {
	out := make([]*statestore.TableInfo, len(m.Tables))
	for i := range m.Tables {
		t := &m.Tables[i]
		b, err := base64.StdEncoding.DecodeString(t.Definition)
		def := new(schemas.Definition)
		if err == nil {
			err = record.DecodeDefinition(b, def)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: checkpoint %s: definition of table %s: %w", ErrDamaged, m.ID(), t.Name, err)
		}
		h := &t.Head
		x := &statestore.TableInfo{
			ID: t.ID, Name: t.Name, Definition: def, Changes: t.Changes, LastChange: t.LastChange, Files: t.Files, Rows: t.Rows, Bytes: t.Bytes,
			Dead: t.Dead, Vectors: t.Vectors, Rolled: t.Rolled, Counts: t.Counts.record(), Requests: t.Requests,
			Head: statestore.CatalogHead{
				SnapshotID: h.SnapshotID, Sequence: h.Sequence, NextRowID: h.NextRowID, TimestampMs: h.TimestampMs,
				MetadataVersion: h.MetadataVersion, MetadataPath: h.MetadataPath, Build: h.Build, Through: h.Through,
			},
		}
		hex.Decode(x.Head.MetadataHash[:], []byte(h.MetadataSHA256))
		if t.Reshard != "" {
			b, err := base64.StdEncoding.DecodeString(t.Reshard)
			if err == nil {
				err = x.DecodeReshard(b)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: checkpoint %s: reshard of table %s: %w", ErrDamaged, m.ID(), t.Name, err)
			}
		}
		if p := t.Pending; p != nil {
			x.Pending = &statestore.PendingCut{Cut: p.Cut, Build: p.Build, Attempts: p.Attempts, LastCause: p.LastCause, Rollback: p.Rollback}
		}
		for j := range t.Shards {
			s := &t.Shards[j]
			si := statestore.ShardInfo{
				Topic: s.Topic, Partition: s.Partition, FirstClaim: s.FirstClaim, Epoch: s.Epoch, Open: s.Open, Retired: s.Retired, Member: s.Member,
				Writer: s.Writer, Counter: s.Counter, SourceEnd: s.SourceEnd, RequestEnd: s.RequestEnd, Framing: s.Framing, Counts: s.Counts.record(),
				IndexHorizon: s.Horizon,
			}
			hex.Decode(si.TopicID[:], []byte(s.TopicID))
			if s.Index != nil {
				si.Index = record.Ref{Path: s.Index.Path, Length: s.Index.Length}
				hex.Decode(si.Index.Hash[:], []byte(s.Index.SHA256))
			}
			x.Shards = append(x.Shards, si)
		}
		out[i] = x
	}
	return out, nil
}

// describe makes a manifest without files.
func describe(im *statestore.Image) (*Manifest, error) {
	h := &im.Head
	m := &Manifest{
		Format: Format, Deployment: hex.EncodeToString(h.Deployment[:]), Partitions: h.Partitions, Partition: h.Partition,
		Offset: h.Offset, LeaderEpoch: h.LeaderEpoch, Checksum: h.Checksum, TimeMs: h.TimeMs, Chain: h.Chain.String(), ApplyVersion: h.ApplyVersion,
		Content: Content{Keys: im.Keys, Bytes: im.Bytes, SHA256: im.Content.String(), Tables: int64(len(im.Tables))},
		Tables:  []Table{}, Files: []File{},
	}
	for _, t := range im.Tables {
		def, err := record.EncodeDefinition(nil, t.Definition)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.Name, err)
		}
		h := &t.Head
		x := Table{
			ID: t.ID, Name: t.Name, Definition: base64.StdEncoding.EncodeToString(def), Changes: t.Changes, LastChange: t.LastChange,
			Files: t.Files, Rows: t.Rows, Bytes: t.Bytes, Dead: t.Dead, Vectors: t.Vectors, Counts: countsOf(&t.Counts),
			Requests: append([]int64{}, t.Requests...), Shards: []Shard{},
			Head: Catalog{
				SnapshotID: h.SnapshotID, Sequence: h.Sequence, NextRowID: h.NextRowID, TimestampMs: h.TimestampMs,
				MetadataVersion: h.MetadataVersion, MetadataPath: h.MetadataPath, MetadataSHA256: h.MetadataHash.String(), Build: h.Build, Through: h.Through,
			},
		}
		x.Rolled = t.Rolled
		x.Reshard = base64.StdEncoding.EncodeToString(t.EncodeReshard())
		if p := t.Pending; p != nil {
			x.Pending = &Pending{Cut: p.Cut, Build: p.Build, Attempts: p.Attempts, LastCause: p.LastCause, Rollback: p.Rollback}
		}
		for i := range t.Shards {
			s := &t.Shards[i]
			y := Shard{
				Topic: s.Topic, TopicID: hex.EncodeToString(s.TopicID[:]), Partition: s.Partition, FirstClaim: s.FirstClaim, Epoch: s.Epoch,
				Open: s.Open, Retired: s.Retired, Member: s.Member, Writer: s.Writer, Counter: s.Counter, SourceEnd: s.SourceEnd,
				RequestEnd: s.RequestEnd, Framing: s.Framing, Counts: countsOf(&s.Counts), Horizon: s.IndexHorizon,
			}
			if s.Index.Path != "" {
				y.Index = &Ref{s.Index.Path, s.Index.Length, s.Index.Hash.String()}
			}
			x.Shards = append(x.Shards, y)
		}
		m.Tables = append(m.Tables, x)
		m.Content.Shards += int64(len(t.Shards))
		m.Content.Files += t.Files
		m.Content.Rows += t.Rows
	}
	return m, nil
}

func countsOf(c *record.Counts) Counts {
	return Counts{c.Events, c.Upserts, c.Deletes, c.LateIgnored, c.AbsentDeletes, c.Control, c.DeadUpserts, c.DeadDeletes, c.DeadOther}
}

func (c *Counts) record() record.Counts {
	return record.Counts{
		Events: c[0], Upserts: c[1], Deletes: c[2], LateIgnored: c[3], AbsentDeletes: c[4], Control: c[5], DeadUpserts: c[6], DeadDeletes: c[7], DeadOther: c[8],
	}
}

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("it has %d bytes, more than %d", len(b), maxManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint manifest: %w", err)
	}
	return b, nil
}

// ManifestName is the name of a manifest of these bytes.
func ManifestName(offset int64, b []byte) string {
	h := sha256.Sum256(b)
	return fmt.Sprintf("%020d-%x.json", offset, h[:])
}

func parseName(name string) (offset int64, hash string, ok bool) {
	rest, isJSON := strings.CutSuffix(name, ".json")
	if !isJSON || len(rest) != 20+1+64 || rest[20] != '-' || !isHex(rest[21:], 32) {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(rest[:20], 10, 64)
	return offset, rest[21:], err == nil && offset >= 0
}

func isHex(s string, bytes int) bool {
	if len(s) != 2*bytes {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// decodeManifest reads the bytes of a manifest of this name.
func decodeManifest(name string, b []byte) (*Manifest, error) {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w: manifest %s: %s", ErrDamaged, name, fmt.Sprintf(format, args...))
	}
	offset, hash, ok := parseName(name)
	if !ok {
		return nil, damaged("that is no manifest's name")
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != hash {
		return nil, damaged("its bytes are not those that its name tells")
	}
	var form struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &form); err != nil {
		return nil, damaged("%v", err)
	}
	if form.Format > Format {
		return nil, fmt.Errorf("%w: manifest %s has form %d, this binary knows up to %d: upgrade it", ErrNewer, name, form.Format, Format)
	}
	m := &Manifest{name: name}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, damaged("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, damaged("there is more behind its end")
	}
	if again, err := json.Marshal(m); err != nil || !bytes.Equal(again, b) {
		return nil, damaged("it is not written as a manifest is")
	}
	if m.Format != Format || m.Offset != offset || m.Partition < 0 || m.Partition >= m.Partitions ||
		!isHex(m.Deployment, 16) || !isHex(m.Chain, 32) || !isHex(m.Content.SHA256, 32) || len(m.Files) == 0 || len(m.Files) > maxFiles {
		return nil, damaged("its facts cannot be")
	}
	for i := range m.Tables {
		if !isHex(m.Tables[i].Head.MetadataSHA256, 32) {
			return nil, damaged("the head of table %d cannot be", m.Tables[i].ID)
		}
		for j := range m.Tables[i].Shards {
			if s := &m.Tables[i].Shards[j]; !isHex(s.TopicID, 16) || s.Index != nil && !isHex(s.Index.SHA256, 32) {
				return nil, damaged("shards of table %d cannot be", m.Tables[i].ID)
			}
		}
	}
	for i := range m.Files {
		f := &m.Files[i]
		if !plainName(f.Name) || f.Length < 0 || !isHex(f.SHA256, 32) || i > 0 && m.Files[i-1].Name >= f.Name {
			return nil, damaged("file %d cannot be", i)
		}
		if f.Object == "" && f.Length == 0 {
			continue
		}
		rest, ok := strings.CutPrefix(f.Object, filesDir+f.SHA256+".")
		if !ok || !isHex(rest, 8) {
			return nil, damaged("file %s lies nowhere", f.Name)
		}
	}
	return m, nil
}

// plainName says whether a file of the database may have this name: it stays
// in its folder.
func plainName(s string) bool {
	if s == "" || len(s) > maxName || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Folders below a Place.
const (
	manifestsDir = "manifests/"
	filesDir     = "files/"
	expiredDir   = "expired/"
	damagedDir   = "damaged/" // names of files that a restore found damaged
)

// Place is where the checkpoints of one partition lie.
type Place struct {
	store  objstore.Store
	prefix string // ends with a slash
}

// At is the place of a partition's checkpoints in a deployment's warehouse.
func At(store objstore.Store, deployment string, partition int32) Place {
	return Place{store: store, prefix: fmt.Sprintf("_varve/%s/checkpoints/%d/", deployment, partition)}
}

// Location of the place.
func (p Place) Location() string { return p.store.Location(strings.TrimSuffix(p.prefix, "/")) }

// names lists a folder of manifests, oldest first. Objects that are none are
// passed over.
func (p Place) names(ctx context.Context, dir string) ([]objstore.Info, error) {
	var out []objstore.Info
	err := p.store.List(ctx, p.prefix+dir, func(i objstore.Info) error {
		i.Key = strings.TrimPrefix(i.Key, p.prefix+dir)
		if _, _, ok := parseName(i.Key); ok {
			out = append(out, i)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	return out, nil
}

// read reads a manifest. An error wraps ErrDamaged or ErrNewer, or may pass.
func (p Place) read(ctx context.Context, dir, name string) (*Manifest, error) {
	b, err := p.store.ReadAll(ctx, p.prefix+dir+name, maxManifest)
	if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrTooLarge) {
		return nil, fmt.Errorf("%w: manifest %s: %w", ErrDamaged, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read a checkpoint's manifest: %w", err)
	}
	return decodeManifest(name, b)
}

// Entry is one manifest as it lies there. Err says why it cannot be read.
type Entry struct {
	ID       string
	Offset   int64
	Manifest *Manifest
	Err      error
	MadeMs   int64 // by the store's clock
	// Own is the bytes of objects that no other listed checkpoint names.
	Own, Shared int64
}

// List gives the checkpoints of the place, oldest first.
func (p Place) List(ctx context.Context) ([]Entry, error) {
	infos, err := p.names(ctx, manifestsDir)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(infos))
	uses := map[string]int{}
	for _, i := range infos {
		e := Entry{ID: idOf(i.Key), MadeMs: i.ModTime.UnixMilli()}
		e.Offset, _, _ = parseName(i.Key)
		e.Manifest, e.Err = p.read(ctx, manifestsDir, i.Key)
		if errors.Is(e.Err, objstore.ErrNotFound) {
			continue // it went meanwhile
		}
		if e.Err != nil && !errors.Is(e.Err, ErrDamaged) && !errors.Is(e.Err, ErrNewer) {
			return nil, e.Err
		}
		if e.Manifest != nil {
			for j := range e.Manifest.Files {
				uses[e.Manifest.Files[j].Object]++
			}
		}
		out = append(out, e)
	}
	for i := range out {
		if out[i].Manifest == nil {
			continue
		}
		for j := range out[i].Manifest.Files {
			if f := &out[i].Manifest.Files[j]; uses[f.Object] > 1 {
				out[i].Shared += f.Length
			} else {
				out[i].Own += f.Length
			}
		}
	}
	return out, nil
}

// check says whether a checkpoint is of a deployment and partition, and of a
// version that this binary can go on from.
func (m *Manifest) check(deployment [16]byte, partition int32) error {
	if h := m.Head(); h.Deployment != deployment || h.Partition != partition {
		return fmt.Errorf("%w: checkpoint %s is of partition %d of deployment %s, not %d of %x", ErrForeign, m.ID(), m.Partition, m.Deployment, partition, deployment)
	}
	if !statestore.Applies(m.ApplyVersion) {
		return fmt.Errorf("%w: checkpoint %s: apply version %d; this binary knows up to %d: upgrade it", ErrNewer, m.ID(), m.ApplyVersion, statestore.ApplyVersion)
	}
	return nil
}

// Newest is the newest checkpoint whose manifest is whole and that check takes
// (nil: all are); an error wrapping ErrNone when there is none. What it passes
// over it tells refused. Its files are not looked at.
func (p Place) Newest(ctx context.Context, deployment [16]byte, partition int32, check func(context.Context, *Manifest) error, refused func(id string, err error)) (*Manifest, error) {
	infos, err := p.names(ctx, manifestsDir)
	if err != nil {
		return nil, err
	}
	for i := len(infos) - 1; i >= 0; i-- {
		m, err := p.fit(ctx, infos[i].Key, deployment, partition, check)
		if err == nil {
			return m, nil
		}
		if !isRefusal(err) {
			return nil, err
		}
		if refused != nil {
			refused(idOf(infos[i].Key), err)
		}
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, p.Location())
}

// fit reads a manifest and says whether it can be used.
func (p Place) fit(ctx context.Context, name string, deployment [16]byte, partition int32, check func(context.Context, *Manifest) error) (*Manifest, error) {
	m, err := p.read(ctx, manifestsDir, name)
	if err == nil {
		err = m.check(deployment, partition)
	}
	if err == nil && check != nil {
		err = check(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// isRefusal says whether an error is about one checkpoint, for good: another
// one may do.
func isRefusal(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) || errors.Is(err, ErrForeign) || errors.Is(err, ErrUnfit) ||
		errors.Is(err, statestore.ErrFork)
}

// Tables is the directory of tables of the newest checkpoint, and the log
// offset that it stands at: a node that does not keep the state reads the
// decided log from behind it. An error wraps ErrNone when there is none.
func (p Place) Tables(ctx context.Context, deployment [16]byte, partition int32, check func(context.Context, *Manifest) error) ([]*statestore.TableInfo, int64, error) {
	m, err := p.Newest(ctx, deployment, partition, check, nil)
	if err != nil {
		return nil, -1, err
	}
	ts, err := m.Directory()
	return ts, m.Offset, err
}
