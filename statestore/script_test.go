package statestore_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestScripts runs testdata/*. Each file is a log of one partition, record by
// record, with what apply decides; testdata/README.md lists the commands. After
// its last command every log is applied again, in other batches, by stores that
// are opened anew and that crash: all must end with the same state and hash.
func TestScripts(t *testing.T) {
	seen := map[record.Reason]bool{}
	files := 0
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) == ".md" {
			return
		}
		files++
		s := newScript(t)
		datadriven.RunTest(t, path, s.run)
		s.checkReplays(t)
		s.checkWays(t)
		for r := range s.reasons {
			seen[r] = true
		}
	})
	if all, err := filepath.Glob("testdata/*"); err != nil || files < len(all)-1 {
		return // -run picked some
	}
	for r := record.ReasonNone; r <= record.BadSplit; r++ {
		if !seen[r] && !strings.HasPrefix(r.String(), "reason ") {
			t.Errorf("no script shows the reason %q", r)
		}
	}
}

// script interprets one file.
type script struct {
	t      testing.TB
	fs     *vfs.MemFS
	st     *statestore.Store
	log    []statestore.Record
	chains []record.Hash // after each record
	timeMs int64
	hold   bool             // no commit after each record
	labels map[string]int64 // as=name: offset of that record

	reasons  map[record.Reason]bool // seen
	listings map[int64]*listing     // by snapshot: what it lists
}

const startMs = 1_700_000_000_000

func newScript(t testing.TB) *script {
	s := &script{t: t, fs: vfs.NewCrashableMem(), timeMs: startMs, labels: map[string]int64{}, reasons: map[record.Reason]bool{}}
	s.open()
	t.Cleanup(func() {
		if err := s.st.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openMem(fs vfs.FS, cache int64) (*statestore.Store, error) {
	return statestore.Open("state", statestore.Options{
		FS: fs, Cache: cache, MemTable: 256 << 10, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func openSilent(fs vfs.FS, cache int64) (*statestore.Store, error) {
	return statestore.Open("state", statestore.Options{
		FS: fs, Cache: cache, MemTable: 256 << 10, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Silent: true,
	})
}

func (s *script) open() {
	st, err := openMem(s.fs, 1<<20)
	if err != nil {
		s.t.Fatal(err)
	}
	s.st = st
}

// args are one command's arguments. Those without a value are names, in order.
type args struct {
	t     *testing.T
	names []string
	vals  map[string][]string
	lines []string
}

var labelPattern = regexp.MustCompile(`\$([a-z0-9]+)(\+1)?`)

// parseArgs reads a command. $name is the offset of the record that was given
// as=name, $name+1 the one after it.
func (s *script) parseArgs(t *testing.T, d *datadriven.TestData) *args {
	a := &args{t: t, vals: map[string][]string{}}
	resolve := func(text string) string {
		return labelPattern.ReplaceAllStringFunc(text, func(m string) string {
			f := labelPattern.FindStringSubmatch(m)
			n, ok := s.labels[f[1]]
			if !ok {
				t.Fatalf("no record was given as=%s", f[1])
			}
			if f[2] != "" {
				n++
			}
			return strconv.FormatInt(n, 10)
		})
	}
	for _, c := range d.CmdArgs {
		if c.Vals == nil {
			a.names = append(a.names, resolve(c.Key))
			continue
		}
		for _, v := range c.Vals {
			a.vals[c.Key] = append(a.vals[c.Key], resolve(v))
		}
	}
	for _, l := range strings.Split(resolve(d.Input), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			a.lines = append(a.lines, l)
		}
	}
	return a
}

func (a *args) has(name string) bool { return slices.Contains(a.names, name) }

func (a *args) table() string {
	if len(a.names) > 0 {
		return a.names[0]
	}
	return "t"
}

func (a *args) str(key, def string) string {
	if v, ok := a.vals[key]; ok {
		return strings.Join(v, ",")
	}
	return def
}

func (a *args) num(key string, def int64) int64 {
	if v, ok := a.vals[key]; ok {
		return number(a.t, v[0])
	}
	return def
}

// number reads 12, 1<<40, max, min.
func number(t *testing.T, s string) int64 {
	t.Helper()
	switch s {
	case "max":
		return 1<<63 - 1
	case "min":
		return -1 << 63
	}
	base, shift, ok := strings.Cut(s, "<<")
	n, err := strconv.ParseInt(base, 10, 64)
	if err != nil {
		t.Fatalf("%q is no number", s)
	}
	if ok {
		k, err := strconv.Atoi(shift)
		if err != nil {
			t.Fatalf("%q is no number", s)
		}
		n <<= k
	}
	return n
}

// rng reads [5,10); from is negative when absent.
func (a *args) rng(key string, from, to int64) (int64, int64) {
	v, ok := a.vals[key]
	if !ok {
		return from, to
	}
	l, r, ok := strings.Cut(strings.Trim(strings.Join(v, ","), "[)"), ",")
	if !ok {
		a.t.Fatalf("%s=%s is no range", key, v)
	}
	return number(a.t, l), number(a.t, r)
}

func (a *args) shard() record.ShardKey {
	k := shardKey(int32(a.num("shard", 0)))
	k.TopicID[0] = byte(a.num("topic", 9))
	return k
}

// fileID reads writer/counter; w is the writer given.
func fileID(t *testing.T, s string, writer uint32) uint64 {
	t.Helper()
	w, c, ok := strings.Cut(s, "/")
	if !ok {
		t.Fatalf("%q is no file: write writer/counter", s)
	}
	if w != "w" {
		writer = uint32(number(t, w))
	}
	return statestore.FileID(writer, uint64(number(t, c)))
}

func fileName(id uint64) string {
	return fmt.Sprintf("%d/%d", id>>40, statestore.FileCounter(id))
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	a := s.parseArgs(t, d)
	switch d.Cmd {
	case "time":
		span, err := time.ParseDuration(a.names[0])
		if err != nil {
			t.Fatal(err)
		}
		s.timeMs += span.Milliseconds()
		return ""
	case "hold":
		s.hold = true
		return ""
	case "commit":
		s.hold = false
		return s.commit(t)
	case "restart":
		if err := s.st.Close(); err != nil {
			t.Fatal(err)
		}
		s.open()
		return s.catchUp(t)
	case "crash":
		clone := s.fs.CrashClone(vfs.CrashCloneCfg{})
		if err := s.st.Close(); err != nil {
			t.Fatal(err)
		}
		s.fs = clone
		s.open()
		return s.catchUp(t)
	case "garbage", "jobs", "tree", "table", "shards", "files", "frozen", "head", "due", "unsent", "definition", "specs", "partition":
		return s.show(t, d.Cmd, a)
	case "sent":
		s.st.Sent(number(t, a.names[0]))
		return ""
	}
	r := s.make(t, d.Cmd, a)
	return s.apply(t, r, a.str("as", ""))
}

// apply puts a record at the end of the log and applies it.
func (s *script) apply(t *testing.T, r statestore.Record, as string) string {
	r.Offset, r.TimeMs = int64(len(s.log)), s.timeMs
	if r.LeaderEpoch < 0 {
		r.Offset -= int64(r.LeaderEpoch)
	}
	out, err := applyFetching(s.st, &r)
	if err != nil {
		return "stopped: " + sentinel(err)
	}
	if as != "" {
		s.labels[as] = r.Offset
	}
	s.log, s.chains = append(s.log, r), append(s.chains, out.Chain)
	s.reasons[out.Outcome.Reason] = true
	if err := out.Outcome.RejectedItems(1<<20, func(_ int, r record.Reason) { s.reasons[r] = true }); err != nil {
		t.Fatal(err)
	}
	text := outcomeText(&out)
	if !s.hold {
		text += s.commit(t)
	}
	return text
}

func sentinel(err error) string {
	for _, e := range []error{
		statestore.ErrHole, statestore.ErrFork, statestore.ErrUnknownVersion, statestore.ErrIdentity, statestore.ErrCorrupt,
	} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

func outcomeText(m *record.OutcomeMessage) string {
	o := &m.Outcome
	text := fmt.Sprintf("@%d %s", m.Offset, o.Code)
	if o.Reason != record.ReasonNone {
		text += ": " + o.Reason.String()
	}
	if len(o.Numbers) > 0 {
		text += " " + strings.ReplaceAll(fmt.Sprint(o.Numbers), "9223372036854775807", "max")
	}
	if o.Changed {
		text += " changed"
	}
	return text + rejectedItems(o)
}

// commit commits and tells the derived outcomes and the cuts that can be sent now.
func (s *script) commit(t *testing.T) string {
	o, err := s.st.Commit()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i := range o.Outcomes {
		var m record.OutcomeMessage
		if err := record.DecodeOutcomeMessage(o.Outcomes[i].Key, o.Outcomes[i].Value, &m); err != nil {
			t.Fatal(err)
		}
		if m.Derived {
			text += fmt.Sprintf("\n  %s: the request @%d", m.Outcome.Code, m.Outcome.Numbers[0])
			if m.Outcome.Reason != record.ReasonNone {
				text += ", " + m.Outcome.Reason.String()
			}
			if m.Type == record.TypeDeleteWhere {
				text += fmt.Sprintf(", %d rows died, %d files of %d rows were read", m.Outcome.Numbers[record.WhereRows], m.Outcome.Numbers[record.WhereFiles], m.Outcome.Numbers[record.WhereScanned])
			}
			s.reasons[m.Outcome.Reason] = true
		}
	}
	for _, c := range o.Cuts {
		text += fmt.Sprintf("\n  publish %s, built at @%d", c.Table, c.Build)
	}
	for _, j := range o.Jobs {
		text += fmt.Sprintf("\n  dispatch job %d %d, attempt %d", j.Job.Plan, j.Job.Item, j.Job.Attempt)
	}
	return text
}

// catchUp applies what an opened store lacks of the log; it must decide as before.
func (s *script) catchUp(t *testing.T) string {
	from := s.st.Head().Offset + 1
	for i := from; i < int64(len(s.log)); i++ {
		out, err := applyFetching(s.st, &s.log[i])
		if err != nil {
			t.Fatal(err)
		}
		if out.Chain != s.chains[i] {
			t.Fatalf("log offset %d: another hash when applied again", i)
		}
	}
	if _, err := s.st.Commit(); err != nil {
		t.Fatal(err)
	}
	s.hold = false
	return fmt.Sprintf("applies [%d,%d) again", from, len(s.log))
}

func (s *script) info(t *testing.T, name string) *statestore.TableInfo {
	t.Helper()
	i, err := s.st.Table(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (s *script) shardInfo(t *testing.T, name string, k record.ShardKey) statestore.ShardInfo {
	if i := s.info(t, name); i != nil {
		for _, sh := range i.Shards {
			if sh.TopicID == k.TopicID && sh.Partition == k.Partition {
				return sh
			}
		}
	}
	return statestore.ShardInfo{}
}

// make builds a command's record. Every command takes the envelope's fields:
// id= seen= table-id= apply-version= type-version= form= type=.
func (s *script) make(t *testing.T, cmd string, a *args) statestore.Record {
	env := record.Envelope{
		ApplyVersion: uint32(a.num("apply-version", 1)), OffsetSeen: a.num("seen", int64(len(s.log))-1),
		Table: a.table(), TableID: -1,
	}
	if i := s.info(t, a.table()); i != nil {
		env.TableID = i.ID
	}
	var v any
	switch cmd {
	case "genesis", "set-version":
		env.Table, env.TableID = "", -1
		dep := testDeployment
		dep[15] = byte(a.num("deployment", 0))
		v = &record.SetApplyVersion{
			Deployment: dep, Partitions: int32(a.num("partitions", 1)), Partition: int32(a.num("partition", 0)), Version: uint32(a.num("version", 1)),
		}
		if len(a.names) > 0 {
			env.Table = a.names[0]
		}
	case "create":
		env.TableID = -1
		v = &record.CreateTable{Definition: scriptDefinition(a), SuffixID: a.has("suffix")}
	case "alter":
		v = alterFrom(a)
	case "partition-by":
		v = specFrom(a)
	case "drop":
		v = &record.DropTable{}
	case "claim":
		v = &record.ClaimShard{Shard: a.shard(), LogStart: a.num("log-start", 0), Member: a.str("member", "m")}
	case "append":
		v = s.appendFrom(a)
	case "shard-index":
		v = &record.ShardIndex{Shard: a.shard(), Epoch: a.num("epoch", s.shardInfo(t, a.table(), a.shard()).Epoch), Offset: a.num("offset", 0), File: *ref(7)}
	case "skip":
		from, to := a.rng("source", 0, 0)
		v = &record.SkipSource{Shard: a.shard(), From: from, To: to, Cause: "a poison event"}
	case "retire":
		v = &record.RetireShard{Shard: a.shard()}
	case "reshard":
		x := &record.Reshard{TopicID: a.shard().TopicID, Topic: "topic", Partitions: int32(a.num("partitions", 2)), StoodStill: a.has("stood-still")}
		for _, l := range a.lines {
			p, end, _ := strings.Cut(l, "=")
			x.Ends = append(x.Ends, record.ShardEnd{Partition: int32(number(t, p)), Offset: number(t, end)})
		}
		v = x
	case "refs":
		v = refsFrom(a)
	case "expire":
		v = expireFrom(a)
	case "rollback":
		v = s.rollbackFrom(t, a)
	case "delete-keys":
		d := &record.DeleteKeys{Keys: *ref(5), Count: 1}
		if _, ok := a.vals["order"]; ok {
			d.HasOrder, d.Order = true, a.num("order", 0)
		}
		v = d
	case "cut":
		v = &record.Cut{}
	case "committed":
		v = s.committedFrom(t, a)
	case "failed":
		p := s.pending(t, a.table())
		v = &record.SnapshotFailed{Cut: a.num("cut", p.Cut), Build: a.num("build", p.Build), Attempt: a.num("attempt", 1), Cause: a.str("cause", "store")}
	case "base":
		v = s.baseFrom(t, a)
	case "foreign-specs":
		v = s.foreignSpecsFrom(t, a)
	case "catalog-schemas":
		x := &record.CatalogSchemas{}
		if i := s.info(t, a.table()); i != nil {
			x.Snapshot, x.NextSchema, x.LastColumnID = i.Head.SnapshotID, int32(len(i.Definition.Schemas)), i.Definition.LastColumnID
		}
		x.Snapshot = a.num("snapshot", x.Snapshot)
		x.NextSchema, x.LastColumnID = int32(a.num("next", int64(x.NextSchema))), int32(a.num("last", int64(x.LastColumnID)))
		v = x
	case "renumber-specs":
		x := s.foreignSpecsFrom(t, a)
		v = &record.RenumberSpecs{Snapshot: x.Snapshot, Specs: x.Specs, LastPartitionID: x.LastPartitionID}
	case "where":
		v = whereFrom(a)
	case "found":
		v = s.foundFrom(a)
	case "plan":
		p := planFrom(a)
		s.wholeFiles(t, a.table(), p)
		v = p
	case "complete":
		v = s.completeFrom(t, a)
	case "split":
		v = splitFrom(a)
	case "extend":
		v = extendFrom(a)
	case "release":
		v = releaseFrom(a)
	case "collect":
		v = s.collectFrom(t, a)
	case "collected":
		v = &record.FilesCollected{Collect: a.num("collect", 0)}
	case "add-files":
		v = addFilesFrom(a)
	case "adopt":
		v = adoptFrom(a)
	case "foreign":
		v = s.foreignFrom(t, a)
	case "positions":
		v = &record.DeletePositions{Deletes: s.appendFrom(a).Deletes}
	case "again":
		// The same bytes once more.
		r := s.log[number(t, a.names[0])]
		return statestore.Record{Key: r.Key, Header: r.Header, Value: r.Value, Body: r.Body}
	case "control":
		return statestore.Record{Control: true, Value: []byte{0, 0, 0, 1}}
	case "raw":
		return rawFrom(a)
	case "hole":
		return statestore.Record{LeaderEpoch: -1}
	default:
		t.Fatalf("unknown command %s", cmd)
	}
	env.TableID = a.num("table-id", env.TableID)
	env.Type = record.Type(a.num("type", int64(record.TypeOf(v))))
	env.TypeVersion = uint16(a.num("type-version", int64(record.BodyVersion(record.TypeOf(v)))))
	if env.Type != record.TypeAppendRows && env.Type != record.TypeCompleteJob && env.Type != record.TypeRowsFound {
		env.Request = requestID(a.num("id", int64(len(s.log))))
		if a.has("no-id") {
			env.Request = record.RequestID{}
		}
	}
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	var fetched []byte
	if place := a.str("body", ""); place != "" {
		r := record.Ref{Hash: record.Hash{7}, Length: int64(len(body))}
		r.Path = "_varve/x/bodies/" + r.Hash.String()
		fetched = body
		switch place {
		case "stored":
		case "lost":
			fetched = nil
		case "long":
			r.Path = "_varve/" + strings.Repeat("x/", 600) + "bodies/" + r.Hash.String()
		case "outside":
			r.Path = "../bodies/" + r.Hash.String()
		case "other-name":
			r.Path = "_varve/x/bodies/" + record.Hash{8}.String()
		case "negative":
			r.Length = -1
		case "huge":
			r.Length = statestore.MaxBody + 1
		default:
			t.Fatalf("body=%s", place)
		}
		env.BodyRef = &r
	} else {
		env.Body = body
	}
	var m record.Message
	record.Encode(&m, &env)
	if f := a.num("form", 0); f != 0 {
		m.Header[0] = byte(f)
	}
	out := statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value, Body: fetched, BodyLost: a.str("body", "") == "lost"}
	if a.str("maps", "") == "lost" {
		out.LostMaps = []record.Hash{{}} // applyFetching adds those that are asked for
	}
	if r := statestore.NeedsBody(&out); (r == nil) != (env.BodyRef == nil || a.str("body", "") != "stored" && a.str("body", "") != "lost") {
		t.Fatalf("NeedsBody: %v", r)
	}
	damage(t, &out, a.str("damage", ""))
	return out
}

// rawFrom is a record of any bytes, in hex: key= header= value=.
func rawFrom(a *args) statestore.Record {
	read := func(key string) []byte {
		b, err := hex.DecodeString(a.str(key, ""))
		if err != nil {
			a.t.Fatal(err)
		}
		return b
	}
	return statestore.Record{Key: read("key"), Header: read("header"), Value: read("value")}
}

func damage(t *testing.T, r *statestore.Record, what string) {
	switch what {
	case "":
	case "value":
		r.Value[len(r.Value)/2] ^= 1
	case "cut-off":
		r.Value = r.Value[:len(r.Value)-5]
	case "key":
		r.Key = append(slices.Clone(r.Key), 'x')
	case "header":
		r.Header = r.Header[:7]
	case "no-header":
		r.Header = nil
	default:
		t.Fatalf("damage=%s", what)
	}
}

func alterFrom(a *args) *record.AlterTable {
	v := &record.AlterTable{}
	for _, l := range a.lines {
		f := strings.Fields(l)
		typ := func(name string) schemas.Type {
			t, err := schemas.ParseType(name)
			if err != nil {
				a.t.Fatal(err)
			}
			return t
		}
		switch f[0] {
		case "set":
			k, x, _ := strings.Cut(f[1], "=")
			v.Set = append(v.Set, schemas.Property{Key: k, Value: x})
		case "remove":
			v.Remove = append(v.Remove, f[1])
		case "add":
			c := record.AddColumn{Name: f[1], Type: typ(f[2])}
			if len(f) > 3 {
				c.Default = strings.TrimPrefix(f[3], "default=")
			}
			v.Add = append(v.Add, c)
		case "widen":
			v.Widen = append(v.Widen, record.WidenColumn{Name: f[1], Type: typ(strings.Join(f[2:], " "))})
		case "policy": // commit interval, retention age and count; 0 leaves
			v.Policy = &record.Policy{CommitIntervalMs: number(a.t, f[1]), RetentionMs: number(a.t, f[2]), RetentionCount: number(a.t, f[3])}
		default:
			a.t.Fatalf("alter: %s", l)
		}
	}
	return v
}

// appendFrom: what the command does not say is what the shard's owner would send.
func (s *script) appendFrom(a *args) *record.AppendRows {
	sh := s.shardInfo(a.t, a.table(), a.shard())
	v := &record.AppendRows{
		Shard: a.shard(), Epoch: a.num("epoch", sh.Epoch), Counter: a.num("counter", sh.Counter+1),
		SchemaID: int32(a.num("schema", 0)), Framing: uint64(a.num("framing", 0)),
	}
	v.SourceFrom, v.SourceTo = a.rng("source", sh.SourceEnd, sh.SourceEnd)
	v.RequestFrom, v.RequestTo = a.rng("requests", sh.RequestEnd, sh.RequestEnd)
	v.Forgets = a.num("forgets", 0)
	v.Counts.Events = a.num("events", 0)
	v.Counts.LateIgnored = a.num("late", 0)
	for _, l := range a.lines {
		f := strings.Fields(l)
		switch f[0] {
		case "add":
			file := record.DataFile{ID: fileID(a.t, f[1], sh.Writer), Rows: 1, Bytes: 100}
			for _, x := range f[2:] {
				k, val, _ := strings.Cut(x, "=")
				switch k {
				case "rows":
					file.Rows = number(a.t, val)
				case "bytes":
					file.Bytes = number(a.t, val)
				case "spec":
					file.SpecID = int32(number(a.t, val))
				case "partition":
					b, err := hex.DecodeString(val)
					if err != nil {
						a.t.Fatal(err)
					}
					file.Partition = b
				default:
					a.t.Fatalf("append: %s", l)
				}
			}
			v.Files = append(v.Files, file)
		case "kill", "kill-bytes":
			b := record.DeleteBlock{File: fileID(a.t, strings.TrimSuffix(f[1], ":"), sh.Writer)}
			if f[0] == "kill-bytes" {
				var err error
				if b.Bitmap, err = hex.DecodeString(f[2]); err != nil {
					a.t.Fatal(err)
				}
			} else {
				var p []uint32
				for _, x := range f[2:] {
					lo, hi, isRange := strings.Cut(x, "-")
					from, to := number(a.t, lo), number(a.t, lo)
					if isRange {
						to = number(a.t, hi)
					}
					for ; from <= to; from++ {
						p = append(p, uint32(from))
					}
				}
				b.Bitmap = positions(p...)
			}
			v.Deletes = append(v.Deletes, b)
		default:
			a.t.Fatalf("append: %s", l)
		}
	}
	if (len(v.Files) > 0 || a.has("list")) && !a.has("no-list") {
		v.Changes = ref(byte(len(s.log)))
	}
	return v
}

func (s *script) pending(t *testing.T, name string) statestore.PendingCut {
	if i := s.info(t, name); i != nil && i.Pending != nil {
		return *i.Pending
	}
	return statestore.PendingCut{Cut: -1, Build: -1}
}

// committedFrom is what a publisher of the pending cut sends: one manifest of
// new files, one of vectors. Arguments and lines change it.
func (s *script) committedFrom(t *testing.T, a *args) *record.SnapshotCommitted {
	c := &record.SnapshotCommitted{}
	i := s.info(t, a.table())
	var f *statestore.FrozenCut
	if i != nil {
		var err error
		if f, err = s.st.Frozen(i.ID); err != nil {
			t.Fatal(err)
		}
	}
	if f == nil {
		f = &statestore.FrozenCut{Cut: -1, Build: -1}
	}
	c.Cut, c.Build, c.Parent = f.Cut, f.Build, f.Head.SnapshotID
	c.TimestampMs, c.MetadataVersion = max(f.TimeMs, f.Head.TimestampMs+1), f.Head.MetadataVersion+1
	c.MetadataPath = fmt.Sprintf("v%d", c.MetadataVersion)
	c.Sequence, c.FirstRowID = f.Head.Sequence, f.Head.NextRowID
	if f.Makes() {
		c.SnapshotID, c.Sequence, c.Operation = 1000+f.Build, f.Head.Sequence+1, "overwrite"
		c.ManifestList = fmt.Sprintf("list-%d", f.Build)
	}
	for j := range f.Files {
		x := &f.Files[j]
		if x.Added {
			if len(c.Files) == 0 {
				c.Manifests = append(c.Manifests, record.ManifestInfo{Path: fmt.Sprintf("data-%d", f.Build), Bytes: 10})
			}
			c.Files = append(c.Files, record.FileRowID{File: x.ID, FirstRowID: f.Head.NextRowID + c.AddedRows})
			c.AddedRows += x.Rows
		}
	}
	for j := range f.Files {
		x := &f.Files[j]
		if x.Dead != nil {
			if len(c.Vectors) == 0 {
				c.Manifests = append(c.Manifests, record.ManifestInfo{Path: fmt.Sprintf("vectors-%d", f.Build), Content: 1})
				c.Puffins = []record.PuffinInfo{{Path: fmt.Sprintf("puffin-%d", f.Build), Bytes: 10}}
			}
			c.Vectors = append(c.Vectors, record.VectorInfo{File: x.ID, Offset: 4, Length: 40, Cardinality: x.DeadCount, Manifest: int32(len(c.Manifests) - 1)})
		}
	}
	if len(c.Manifests) == 0 && len(f.Files) > 0 {
		c.Manifests = []record.ManifestInfo{{Path: fmt.Sprintf("data-%d", f.Build)}}
	}
	s.bendCommit(a, c)
	s.note(f, c)
	return c
}

func (s *script) bendCommit(a *args, c *record.SnapshotCommitted) {
	c.Cut, c.Build, c.Parent = a.num("cut", c.Cut), a.num("build", c.Build), a.num("parent", c.Parent)
	c.SnapshotID, c.Sequence = a.num("snapshot", c.SnapshotID), a.num("sequence", c.Sequence)
	c.FirstRowID, c.AddedRows = a.num("first-row", c.FirstRowID), a.num("added-rows", c.AddedRows)
	c.TimestampMs, c.MetadataVersion = a.num("timestamp", c.TimestampMs), a.num("version", c.MetadataVersion)
	for _, l := range a.lines {
		f := strings.Fields(l)
		at := number(a.t, f[1])
		switch f[0] {
		case "double-file":
			c.Files = slices.Insert(c.Files, int(at), c.Files[at])
			c.Files = c.Files[:len(c.Files)-1]
		case "no-file":
			c.Files = slices.Delete(c.Files, int(at), int(at)+1)
		case "file":
			x := &c.Files[at]
			for _, y := range f[2:] {
				k, v, _ := strings.Cut(y, "=")
				switch k {
				case "row":
					x.FirstRowID = number(a.t, v)
				case "manifest":
					x.Manifest = int32(number(a.t, v))
				case "id":
					x.File = fileID(a.t, v, 0)
				}
			}
		case "vector":
			x := &c.Vectors[at]
			for _, y := range f[2:] {
				k, v, _ := strings.Cut(y, "=")
				switch k {
				case "cardinality":
					x.Cardinality = number(a.t, v)
				case "manifest":
					x.Manifest = int32(number(a.t, v))
				case "puffin":
					x.Puffin = int32(number(a.t, v))
				case "offset":
					x.Offset = number(a.t, v)
				case "id":
					x.File = fileID(a.t, v, 0)
				}
			}
		case "no-vector":
			c.Vectors = slices.Delete(c.Vectors, int(at), int(at)+1)
		case "manifest":
			x := &c.Manifests[at]
			for _, y := range f[2:] {
				k, v, _ := strings.Cut(y, "=")
				switch k {
				case "path":
					x.Path = v
				case "replaces":
					for _, n := range strings.Split(v, ",") {
						x.Replaces = append(x.Replaces, number(a.t, n))
					}
				}
			}
		default:
			a.t.Fatalf("committed: %s", l)
		}
	}
}

// show prints state.
func (s *script) show(t *testing.T, cmd string, a *args) string {
	var b strings.Builder
	switch cmd {
	case "head":
		h := s.st.Head()
		fmt.Fprintf(&b, "offset %d, apply version %d, partition %d of %d, table time +%s, dedupe horizon @%d", h.Offset, h.ApplyVersion, h.Partition, h.Partitions,
			time.Duration(h.TimeMs-startMs)*time.Millisecond, h.Horizon)
		if a.has("chain") {
			fmt.Fprintf(&b, "\n%s", h.Chain)
		}
		return b.String()
	case "due":
		for _, d := range s.st.ToCut() {
			fmt.Fprintf(&b, "%s every %d ms\n", d.Name, d.CommitIntervalMs)
		}
		return none(b.String())
	case "unsent":
		if err := s.st.Unsent(number(t, a.names[0]), func(m statestore.Message) error {
			kind := ""
			if m.Derived {
				kind = " derived"
			}
			fmt.Fprintf(&b, "@%d%s\n", m.Offset, kind)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return none(b.String())
	}
	i := s.info(t, a.table())
	if i == nil {
		return "none"
	}
	switch cmd {
	case "table":
		fmt.Fprintf(&b, "id %d, files %d, rows %d, bytes %d, dead %d, vectors %d, last change @%d, to cut %t\n", i.ID, i.Files, i.Rows, i.Bytes, i.Dead, i.Vectors, i.LastChange, i.Changes)
		fmt.Fprintf(&b, "head: snapshot %d, sequence %d, next row %d, version %d, built @%d, through @%d\n", i.Head.SnapshotID, i.Head.Sequence, i.Head.NextRowID, i.Head.MetadataVersion, i.Head.Build, i.Head.Through)
		if i.Pending != nil {
			fmt.Fprintf(&b, "pending: cut @%d, built @%d, attempts %d %s\n", i.Pending.Cut, i.Pending.Build, i.Pending.Attempts, i.Pending.LastCause)
			if i.Pending.Rollback != 0 {
				fmt.Fprintf(&b, "back to %d\n", i.Pending.Rollback)
			}
		}
		var ids []int64
		for _, x := range i.Snapshots {
			ids = append(ids, x.ID)
		}
		if i.Rolled != 0 {
			fmt.Fprintf(&b, "rolled back @%d\n", i.Rolled)
		}
		fmt.Fprintf(&b, "snapshots %v, open requests %v", ids, i.Requests)
		if len(i.Held) > 0 {
			fmt.Fprintf(&b, ", held %v", i.Held)
		}
		b.WriteString(refsText(i))
	case "definition":
		d := i.Definition
		for j := range d.Schemas {
			fmt.Fprintf(&b, "schema %d:", d.Schemas[j].ID)
			for _, f := range d.Schemas[j].Fields {
				fmt.Fprintf(&b, " %d:%s %s", f.ID, f.Name, f.Type)
				if f.InitialDefault != nil {
					fmt.Fprintf(&b, " default %s", f.InitialDefault)
				}
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "current %d, properties %v, location %s\n", d.CurrentSchema, d.Properties, d.Location)
		fmt.Fprintf(&b, "a cut every %d ms, snapshots kept %d ms and %d of them", d.CommitIntervalMs, d.RetentionMs, d.RetentionCount)
	case "specs":
		b.WriteString(s.specs(t, i))
	case "shards":
		for _, x := range i.Shards {
			open := "closed"
			if x.Open {
				open = "open"
			}
			if x.Retired {
				open += ", retired"
			}
			fmt.Fprintf(&b, "topic %d/%d: epoch %d %s, writer %d, counter %d, source end %d, request end %d, index horizon %d, framing %d, events %d\n",
				x.TopicID[0], x.Partition, x.Epoch, open, x.Writer, x.Counter, x.SourceEnd, x.RequestEnd, x.IndexHorizon, x.Framing, x.Counts.Events)
		}
	case "files":
		if err := s.st.Files(i.ID, func(f *statestore.FileInfo) error {
			fmt.Fprintf(&b, "%s rows %d, record @%d, epoch %d", fileName(f.ID), f.Rows, f.Record, f.Epoch)
			if f.Published {
				fmt.Fprintf(&b, ", row id %d, sequence %d", f.RowID, f.Sequence)
			}
			switch {
			case f.Moved:
				b.WriteString(", moved")
			case f.Gone:
				b.WriteString(", gone")
			}
			if f.Job {
				b.WriteString(", in a job")
			}
			if f.Dead != nil {
				fmt.Fprintf(&b, ", dead %s", positionText(t, f.Dead))
			}
			if f.Vector != nil {
				fmt.Fprintf(&b, ", vector of %d in %s", f.Vector.Cardinality, f.Vector.Puffin)
			}
			b.WriteString(partsText(f.Parts))
			b.WriteByte('\n')
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	case "garbage":
		return s.garbageText(t, i.ID)
	case "jobs":
		return s.jobsText(t, i.ID)
	case "tree":
		return s.treeText(t, i.ID)
	case "partition":
		p, err := hex.DecodeString(a.str("tuple", ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.st.PartitionFiles(i.ID, int32(a.num("spec", 0)), p, func(id uint64) error {
			fmt.Fprintf(&b, "%s\n", fileName(id))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	case "frozen":
		f, err := s.st.Frozen(i.ID)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			return "none"
		}
		b.WriteString(frozenText(t, f))
	}
	return none(b.String())
}

func frozenText(t testing.TB, f *statestore.FrozenCut) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cut @%d, built @%d, time +%s, schema %d, definition changed %t, base %d, expires %v\n", f.Cut, f.Build,
		time.Duration(f.TimeMs-startMs)*time.Millisecond, f.Definition.CurrentSchema, f.DefChanged, f.Head.SnapshotID, f.Expire)
	for _, r := range f.Ranges {
		fmt.Fprintf(&b, "source %d ends at %d\n", r.Partition, r.End)
	}
	if f.Rollback != 0 {
		fmt.Fprintf(&b, "back to %d\n", f.Rollback)
	}
	b.WriteString(refChangesText(&f.Refs))
	for i := range f.Files {
		x := &f.Files[i]
		fmt.Fprintf(&b, "%s rows %d", fileName(x.ID), x.Rows)
		if x.Added {
			b.WriteString(" added")
		}
		if x.Moved {
			b.WriteString(" moved,")
		}
		if x.Removed {
			b.WriteString(" removed")
		}
		if x.Dead != nil {
			fmt.Fprintf(&b, " dead %s", positionText(t, x.Dead))
		}
		if x.Vector != nil {
			fmt.Fprintf(&b, " replaces a vector of %d", x.Vector.Cardinality)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func none(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func positionText(t testing.TB, set []byte) string {
	b, err := dv.ReadBitmap(set)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for it := b.Iterator(); it.HasNext(); {
		out = append(out, strconv.Itoa(int(it.Next())))
	}
	if len(out) > 8 {
		return fmt.Sprintf("%s…%s (%d)", out[0], out[len(out)-1], len(out))
	}
	return strings.Join(out, " ")
}

// checkReplays applies the script's log in other ways and compares states.
func (s *script) checkReplays(t *testing.T) {
	t.Helper()
	if _, err := s.st.Commit(); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(4) {
		if err := replayEquals(s.st, s.log, s.chains, randv2.New(randv2.NewPCG(seed, 1))); err != nil {
			t.Errorf("replay %d: %v", seed, err)
		}
	}
}

// checkWays: every completed job has as many ways through it as files are left
// that it took, so what a rollback undid or a collection took leaves none behind
// (F15, G1).
func (s *script) checkWays(t *testing.T) {
	t.Helper()
	moved, ways := map[int64]int64{}, map[int64]int64{}
	if err := s.st.Tables(func(i *statestore.TableInfo) error {
		moved[i.ID] = 0
		return s.st.Files(i.ID, func(f *statestore.FileInfo) error {
			if f.Moved {
				moved[i.ID]++
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.st.Dump(func(k, v []byte) error {
		if k[0] != 'k' {
			return nil
		}
		v = v[1:] // its form
		for n := range 4 {
			x, size := binary.Varint(v) // the second is unsigned, and passed over
			if v = v[size:]; n == 3 {
				ways[int64(binary.BigEndian.Uint64(k[1:]))] += x
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for id, n := range moved { // a dropped table keeps what it had (A10)
		if ways[id] != n {
			t.Errorf("completed jobs took %d files of table %d, and there are %d ways through them", n, id, ways[id])
		}
	}
}
