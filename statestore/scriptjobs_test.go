package statestore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// mapStore holds the forwarding maps that scripts made, by hash, as an object
// store does.
var mapStore sync.Map

// applyFetching applies a record with the maps that it needs (L3).
func applyFetching(st *statestore.Store, r *statestore.Record) (record.OutcomeMessage, error) {
	for {
		out, err := st.Apply(r)
		var wait *statestore.NeedsMap
		if !errors.As(err, &wait) {
			return out, err
		}
		for _, ref := range wait.Refs {
			if len(r.LostMaps) > 0 {
				r.LostMaps = append(r.LostMaps, ref.Hash)
				continue
			}
			b, ok := mapStore.Load(ref.Hash)
			if !ok {
				return out, err
			}
			st.ProvideMap(ref.Hash, b.([]byte))
		}
	}
}

// rejectedItems tells of the items that a batch record's outcome rejects.
func rejectedItems(o *record.Outcome) string {
	var b strings.Builder
	if err := o.RejectedItems(1<<20, func(i int, r record.Reason) { fmt.Fprintf(&b, ", item %d: %s", i, r) }); err != nil {
		return ", " + err.Error()
	}
	return b.String()
}

// planFrom reads lines "job 1/1 1/2[0,3)".
func planFrom(a *args) *record.PlanJobs {
	p := &record.PlanJobs{}
	for _, l := range a.lines {
		f := strings.Fields(l)
		item := record.PlanItem{TargetBytes: a.num("target", 0), Strategy: a.str("strategy", "")}
		for _, x := range f[1:] {
			name, span, ranged := strings.Cut(x, "[")
			in := record.JobInput{File: fileID(a.t, name, 0), Lo: 0, Hi: -1}
			if ranged {
				lo, hi, _ := strings.Cut(strings.TrimSuffix(span, ")"), ",")
				in.Lo, in.Hi = number(a.t, lo), number(a.t, hi)
			}
			item.Inputs = append(item.Inputs, in)
		}
		p.Items = append(p.Items, item)
	}
	return p
}

// wholeFiles gives inputs without a range their file's.
func (s *script) wholeFiles(t *testing.T, table string, p *record.PlanJobs) {
	rows := map[uint64]int64{}
	if i := s.info(t, table); i != nil {
		if err := s.st.Files(i.ID, func(f *statestore.FileInfo) error {
			rows[f.ID] = f.Rows
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range p.Items {
		for j := range p.Items[i].Inputs {
			if in := &p.Items[i].Inputs[j]; in.Hi < 0 {
				in.Hi = rows[in.File]
			}
		}
	}
}

// jobLine is a line "job 4 0 outputs=3,2 order=0010 attempt=1 bad=…".
type jobLine struct {
	t    *testing.T
	id   record.JobID
	vals map[string]string
	has  map[string]bool
}

func jobLines(a *args) (all []jobLine) {
	for _, l := range a.lines {
		f := strings.Fields(l)
		j := jobLine{t: a.t, vals: map[string]string{}, has: map[string]bool{}}
		j.id = record.JobID{Plan: number(a.t, f[1]), Item: int32(number(a.t, f[2])), Attempt: 1}
		for _, x := range f[3:] {
			k, v, ok := strings.Cut(x, "=")
			if j.vals[k] = v; !ok {
				j.has[k] = true
			}
		}
		if v, ok := j.vals["attempt"]; ok {
			j.id.Attempt = int32(number(a.t, v))
		}
		all = append(all, j)
	}
	return all
}

// completeFrom makes what a worker that read the jobs' dispatches would send, bent
// by bad=…: outputs of the rows named, by default one, and a map in which the
// inputs' rows take turns as order says, by default one input after the other.
func (s *script) completeFrom(t *testing.T, a *args) *record.CompleteJob {
	c := &record.CompleteJob{Metrics: ref(9)}
	info := s.info(t, a.table())
	for _, j := range jobLines(a) {
		item := record.CompletedJob{Job: j.id, Sorted: true}
		if v, ok := j.vals["schema"]; ok {
			item.SchemaID = int32(number(t, v))
		}
		n := &statestore.JobNotice{Table: a.table(), Job: j.id}
		if info != nil {
			n.TableID = info.ID
		}
		d, _, err := s.st.Dispatch(n)
		if err != nil {
			t.Fatal(err)
		}
		if d == nil { // no such attempt: what its worker says is not looked at
			item.Map = *ref(3)
			item.Outputs = []record.JobOutput{{Name: [16]byte{1}, Rows: 1, Bytes: 10}}
			c.Items = append(c.Items, item)
			continue
		}
		c.Items = append(c.Items, s.executed(t, d, item, &j))
	}
	if a.has("no-metrics") {
		c.Metrics = nil
	}
	return c
}

func (s *script) executed(t *testing.T, d *record.Dispatch, item record.CompletedJob, j *jobLine) record.CompletedJob {
	var inputs []forward.Input
	var order []byte
	for i := range d.Inputs {
		in := &d.Inputs[i]
		x := forward.Input{File: in.File, Lo: uint32(in.Lo), Hi: uint32(in.Hi), Dead: in.Dead, Rows: uint64(in.Hi - in.Lo)}
		if len(in.Dead) > 0 {
			n, err := dv.Count(in.Dead)
			if err != nil {
				t.Fatal(err)
			}
			x.Rows -= n
		}
		order = append(order, bytes.Repeat([]byte{byte(i)}, int(x.Rows))...)
		inputs = append(inputs, x)
	}
	item.Sorted = !slices.ContainsFunc(inputs, func(in forward.Input) bool { return statestore.IsUnsorted(in.File) })
	switch j.vals["bad"] {
	case "sorted": // an input's rows need not ascend
		item.Sorted = true
	case "file":
		inputs[0].File++
	case "dead": // R of another moment
		inputs[0].Dead = positions(1)
	case "short":
		order = order[:len(order)-1]
	}
	if v, ok := j.vals["order"]; ok {
		order = order[:0]
		for _, c := range v {
			order = append(order, byte(c-'0'))
		}
	}
	var sizes []int64
	if v, ok := j.vals["outputs"]; ok {
		for _, x := range strings.Split(v, ",") {
			if x != "" {
				sizes = append(sizes, number(t, x))
			}
		}
	} else if len(order) > 0 {
		sizes = []int64{int64(len(order))}
	}
	var b bytes.Buffer
	w, err := forward.NewWriter(&b, inputs)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for k, n := range sizes {
		end := min(at+n, int64(len(order)))
		if err := w.Append(order[at:end]); err != nil {
			t.Fatal(err)
		}
		at = end
		if w.EndOutput(); j.vals["bad"] != "rows" || k > 0 {
			item.Outputs = append(item.Outputs, record.JobOutput{Rows: n, Bytes: 10 * n})
		} else {
			item.Outputs = append(item.Outputs, record.JobOutput{Rows: n + 1, Bytes: 10 * n})
		}
		o := &item.Outputs[len(item.Outputs)-1]
		o.Name = [16]byte{15: byte(k), 0: byte(len(s.log)), 1: byte(item.Job.Item), 2: 1}
		if j.vals["bad"] == "name" {
			o.Name = [16]byte{1}
		}
	}
	if err := w.Close(); err != nil && j.vals["bad"] != "short" {
		t.Fatal(err)
	}
	text := b.Bytes()
	if j.vals["bad"] == "map" {
		text = slices.Clone(text)
		text[len(text)/2] ^= 1
	}
	hash := record.Hash(sha256.Sum256(text))
	if form, ok := j.vals["inline"]; ok || j.has["inline"] {
		item.Map = inlineMap(t, text, form)
		return item
	}
	if j.vals["bad"] != "away" {
		mapStore.Store(hash, text)
	}
	item.Map = record.Ref{Path: fmt.Sprintf("_varve/x/maps/%x", hash[:16]), Length: int64(len(text)), Hash: hash}
	switch j.vals["bad"] {
	case "path":
		item.Map.Path = "_varve/x/bodies/" + hash.String()
	case "length":
		item.Map.Length = statestore.MaxBody + 1
	}
	return item
}

// inlineMap is a map in its completion, and where form is not empty in another form
// than the one that is allowed (F23).
func inlineMap(t *testing.T, text []byte, form string) record.Ref {
	ref, ok := record.InlineMap(text)
	if !ok {
		t.Fatalf("a map of %d bytes", len(text))
	}
	at := strings.Index(ref.Path, ",") + 1
	coded := ref.Path[at:]
	switch form {
	case "":
	case "hash":
		ref.Hash[0]++
	case "shorter":
		ref.Length--
	case "longer":
		ref.Length++
	case "cut-off":
		ref.Path = ref.Path[:len(ref.Path)-4]
	case "more":
		ref.Path += "AAAA"
	case "line-end":
		ref.Path = ref.Path[:at] + coded[:8] + "\n" + coded[8:]
	case "line-end-inside": // as many characters
		ref.Path = ref.Path[:at] + coded[:8] + "\n" + coded[9:]
	case "hex":
		ref.Path = fmt.Sprintf("data:;base16,%X", text)
	case "typed":
		ref.Path = "data:application/octet-stream;base64," + coded
	case "upper":
		ref.Path = "DATA:;base64," + coded
	case "plain":
		ref.Path = "data:," + coded
	case "padding": // bits that no byte takes are not 0
		if !strings.HasSuffix(coded, "=") {
			t.Fatalf("a map of %d bytes needs no padding", len(text))
		}
		end := strings.IndexByte(coded, '=')
		ref.Path = ref.Path[:at] + coded[:end-1] + string(coded[end-1]+1) + coded[end:]
	case "large": // what may be an object may not be inline
		text = append(text, make([]byte, record.MaxInlineMap)...)
		ref = record.Ref{Path: "data:;base64," + base64.StdEncoding.EncodeToString(text), Length: int64(len(text)), Hash: sha256.Sum256(text)}
	default:
		t.Fatalf("inline=%s", form)
	}
	return ref
}

func releaseFrom(a *args) *record.ReleaseJob {
	r := &record.ReleaseJob{Cause: "silent"}
	for _, j := range jobLines(a) {
		r.Items = append(r.Items, record.ReleasedJob{Job: j.id, Again: j.has["again"]})
	}
	return r
}

func (s *script) jobsText(t *testing.T, id int64) string {
	var b strings.Builder
	if err := s.st.OpenJobs(id, func(j *statestore.JobInfo) error {
		fmt.Fprintf(&b, "job %d %d, attempt %d since @%d: %d inputs, %d rows\n", j.Job.Plan, j.Job.Item, j.Job.Attempt, j.Since, j.Inputs, j.Rows)
		var inputs []record.DispatchInput
		if j.Find {
			d, _, err := s.st.FindDispatch(&j.JobNotice)
			if err != nil {
				return err
			}
			inputs = d.Inputs
		} else {
			d, _, err := s.st.Dispatch(&j.JobNotice)
			if err != nil {
				return err
			}
			inputs = d.Inputs
		}
		for i := range inputs {
			in := &inputs[i]
			fmt.Fprintf(&b, "  %s [%d,%d), row id %d, sequence %d", fileName(in.File), in.Lo, in.Hi, in.FirstRowID, in.Sequence)
			if len(in.Dead) > 0 {
				fmt.Fprintf(&b, ", without %s", positionText(t, in.Dead))
			}
			b.WriteByte('\n')
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return none(b.String())
}
