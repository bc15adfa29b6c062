package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/processors/adopt"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Bounds of one AdoptFiles record.
const (
	adoptItems = 1000
	adoptBytes = 4 << 20 // of dead positions
	// Rows whose keys a shard takes at a time: what it holds in memory (H6), unless
	// one file has more.
	adoptRows = 1 << 20
)

// ErrOwnTable marks a table of this deployment that was asked for as another
// program's.
var ErrOwnTable = errors.New("table of this deployment")

// Adopted is what was taken of another Iceberg table.
type Adopted struct {
	Files, Rows, Dead, Bytes int64
	// Already are files that the table had, or has had, before.
	Already int64
	Offsets []int64 // of the AdoptFiles records
}

// ReadIceberg reads another program's Iceberg table in the warehouse.
func (n *Conn) ReadIceberg(ctx context.Context, what adopt.What) (*adopt.Table, error) {
	src, err := adopt.Read(ctx, n.store, what)
	if err != nil {
		return nil, err
	}
	tables, err := n.Tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		at := t.Definition.Location + "/data/"
		for i := range src.Files {
			key, ok := n.store.Key(src.Files[i].Path)
			if name, here := strings.CutPrefix(n.store.Location(key), at); ok && here && schemas.IsDataFileName(name) {
				return nil, fmt.Errorf("%s: %s is of a %w, %s, which deletes it once it is compacted: it cannot be of two tables", src.Metadata, src.Files[i].Path, ErrOwnTable, t.Name)
			}
		}
	}
	return src, nil
}

// Adopt takes files of another table into a table as they lie (H14). What of them
// the table has already is passed over, so that an import that was cut short goes on
// where it ended. progress, if any, hears of files.
func (n *Conn) Adopt(ctx context.Context, t *statestore.TableInfo, fit *adopt.Fit, cause string, progress func(files int)) (*Adopted, error) {
	out := &Adopted{}
	for from := 0; from < len(fit.Items); {
		to, dead, rows := from, 0, int64(0)
		for to < len(fit.Items) && to-from < adoptItems && (to == from || dead+len(fit.Items[to].Dead) <= adoptBytes && rows+fit.Items[to].Rows <= adoptRows) {
			dead += len(fit.Items[to].Dead)
			rows += fit.Items[to].Rows
			to++
		}
		if k := len(out.Offsets); k > 0 {
			if _, err := n.WaitKeysTaken(ctx, t.Name, out.Offsets[k-1:]); err != nil {
				return out, err
			}
		}
		if err := n.adoptSome(ctx, t, fit.Items[from:to], fit.Metrics[from:to], cause, out); err != nil {
			return out, err
		}
		if progress != nil {
			progress(to - from)
		}
		from = to
	}
	return out, nil
}

func (n *Conn) adoptSome(ctx context.Context, t *statestore.TableInfo, items []record.AdoptedFile, metrics []record.FileMetrics, cause string, out *Adopted) error {
	body := record.RowsBody{Files: slices.Clone(metrics)}
	slices.SortFunc(body.Files, func(x, y record.FileMetrics) int { return cmp.Compare(x.ID, y.ID) })
	b, err := record.EncodeRowsBody(nil, &body)
	if err != nil {
		return err
	}
	ref, err := n.bodies.Put(ctx, b)
	if err != nil {
		return err
	}
	res, err := n.Request(ctx, t.Name, t.ID, &record.AdoptFiles{Items: items, Metrics: &ref, Cause: cause})
	if err != nil {
		return fmt.Errorf("import into %s: it is not known whether the newest files are in the table; the same import again passes over those that are: %w", t.Name, err)
	}
	o := &res.Outcome
	if o.Code == record.Rejected && o.Reason != record.FileNotNew {
		return fmt.Errorf("import into %s: %w: %s", t.Name, ErrRejected, o.Reason)
	}
	refused := map[int]record.Reason{}
	if err := o.RejectedItems(len(items), func(i int, r record.Reason) { refused[i] = r }); err != nil {
		return err
	}
	var bad error
	for i := range items {
		switch r, was := refused[i]; {
		case !was:
			out.Files++
			out.Rows += items[i].Rows
			out.Bytes += items[i].Bytes
			dead, err := dv.Count(items[i].Dead)
			if err != nil && len(items[i].Dead) > 0 {
				return err
			}
			out.Dead += int64(dead)
		case r == record.FileNotNew:
			out.Already++
		case bad == nil:
			bad = fmt.Errorf("import %s into %s: %w: %s", items[i].Path, t.Name, ErrRejected, r)
		}
	}
	if len(refused) < len(items) {
		out.Offsets = append(out.Offsets, res.Offset)
	}
	return bad
}
