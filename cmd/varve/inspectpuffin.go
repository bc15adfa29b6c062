package main

import (
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/statestore/objstore"
)

func (a *app) inspectPuffinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "puffin PATH",
		Short: "Show a Puffin file's blobs and check its vectors",
		Long: "Shows the footer of a Puffin file and reads every deletion vector in it: its\n" +
			"checksum, and whether it holds as many positions as the footer says.\n" + pathHelp,
		Example: "  varve inspect puffin x.puffin\n  varve inspect puffin x.puffin --output csv",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withPath(cmd.Context(), args[0], func(o objstore.Object) error {
				r, err := puffin.Open(o, o.Size())
				if err != nil {
					return err
				}
				shown, bad := puffinObject(r, o.Size())
				if err := a.showRows(shown, "blobs"); err != nil {
					return err
				}
				if bad > 0 {
					return fmt.Errorf("%d of its vectors cannot be read; see the column check", bad)
				}
				return nil
			})
		},
	}
}

func puffinObject(r *puffin.Reader, size int64) (object, int) {
	m := r.Metadata()
	bad := 0
	blobs := &rowset{cols: []string{"blob", "type", "offset", "bytes", "codec", "fields", "snapshot_id", "sequence", "data_file", "cardinality", "check", "properties"}}
	for i := range m.Blobs {
		b := &m.Blobs[i]
		var file, cardinality, check, codec, others any
		var rest object
		for _, p := range b.Properties {
			switch p.Key {
			case puffin.PropertyDataFile:
				file = p.Value
			case puffin.PropertyCardinality:
				cardinality = number(p.Value)
			default:
				rest = append(rest, field{p.Key, p.Value})
				others = rest
			}
		}
		if b.CompressionCodec != "" {
			codec = b.CompressionCodec
		}
		if b.Type == dv.BlobType {
			check = "ok"
			if _, err := r.ReadVector(i); err != nil {
				check = err.Error()
				bad++
			}
		}
		blobs.rows = append(blobs.rows, []any{i, b.Type, b.Offset, byteSize(b.Length), codec, numbersJSON(b.Fields), b.SnapshotID, b.SequenceNumber,
			file, cardinality, check, others})
	}
	properties := &rowset{cols: []string{"property", "value"}}
	for _, p := range m.Properties {
		properties.rows = append(properties.rows, []any{p.Key, p.Value})
	}
	return object{{"kind", "puffin"}, {"bytes", byteSize(size)}, {"blobs", blobs}, {"properties", properties}}, bad
}

// number is a text's whole number, else the text.
func number(s string) any {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v
	}
	return s
}

func (a *app) inspectDVCommand() *cobra.Command {
	var (
		blob   int
		file   string
		offset int64
		length int64
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "dv PATH",
		Short: "Show the positions that a deletion vector deletes",
		Long: "Shows a deletion vector: of a Puffin file (the only one, or chosen by --blob, --data-file\n" +
			"or --offset and --length), of a file that holds one blob, or of a bare Roaring map.\n" +
			"Positions are shown as ranges, both ends included.\n" + pathHelp,
		Example: "  varve inspect dv x.puffin --data-file file:///lake/shop/orders/data/3-1-1.parquet\n" +
			"  varve inspect dv x.puffin --blob 2 --output csv",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.given("blob") && a.given("data-file") || a.given("offset") && (a.given("blob") || a.given("data-file")) {
				return usagef("--blob, --data-file and --offset each choose a vector; give one of them")
			}
			return withPath(cmd.Context(), args[0], func(o objstore.Object) error {
				v, facts, err := readAnyVector(o, blob, file, offset, length)
				if err != nil {
					return err
				}
				return a.showVector(v, facts, limit)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&blob, "blob", -1, "`number` of the blob in the Puffin file, from 0")
	f.StringVar(&file, "data-file", "", "the vector of this data file, by its `location` letter by letter")
	f.Int64Var(&offset, "offset", -1, "`byte` at which the blob begins, as a manifest entry says")
	f.Int64Var(&length, "length", 0, "its length in `bytes`")
	f.IntVar(&limit, "limit", 0, "show at most so many `ranges` (0: all)")
	return cmd
}

func readAnyVector(o objstore.Object, blob int, file string, offset, length int64) (*dv.Vector, object, error) {
	if offset >= 0 {
		if length <= 0 || length > puffin.MaxBlobSize || offset > o.Size()-length {
			return nil, nil, usagef("--offset %d and --length %d do not lie in the %d bytes of the file", offset, length, o.Size())
		}
		b := make([]byte, length)
		if _, err := o.ReadAt(b, offset); err != nil {
			return nil, nil, fmt.Errorf("read %d bytes at %d: %w", length, offset, err)
		}
		v, err := dv.Decode(b)
		return v, object{{"kind", "blob"}, {"offset", offset}, {"bytes", byteSize(length)}}, err
	}
	r, err := puffin.Open(o, o.Size())
	if err != nil {
		if blob >= 0 || file != "" {
			return nil, nil, err
		}
		return readBareVector(o, err)
	}
	blobs := r.Metadata().Blobs
	var vectors []int
	for i := range blobs {
		if blobs[i].Type != dv.BlobType {
			continue
		}
		if name, _ := blobs[i].Properties.Get(puffin.PropertyDataFile); file != "" && name != file {
			continue
		}
		vectors = append(vectors, i)
	}
	switch {
	case blob >= 0:
		if blob >= len(blobs) {
			return nil, nil, usagef("the Puffin has %d blobs, none of number %d", len(blobs), blob)
		}
		vectors = []int{blob}
	case len(vectors) == 0 && file != "":
		return nil, nil, usagef("the Puffin has no vector of %s; see \"varve inspect puffin\" for the files it has", file)
	case len(vectors) == 0:
		return nil, nil, errors.New("the Puffin holds no deletion vector")
	case len(vectors) > 1:
		return nil, nil, usagef("the Puffin holds %d vectors; choose one with --blob or --data-file (\"varve inspect puffin\" lists them)", len(vectors))
	}
	i := vectors[0]
	v, err := r.ReadVector(i)
	name, _ := blobs[i].Properties.Get(puffin.PropertyDataFile)
	return v, object{{"kind", "puffin blob"}, {"blob", i}, {"data_file", name}, {"offset", blobs[i].Offset}, {"bytes", byteSize(blobs[i].Length)}}, err
}

// readBareVector reads a file that is a vector and nothing else: a blob, or
// the Roaring map inside one.
func readBareVector(o objstore.Object, notPuffin error) (*dv.Vector, object, error) {
	b, err := readObject(o, puffin.MaxBlobSize)
	if err != nil {
		return nil, nil, err
	}
	v, blobErr := dv.Decode(b)
	if blobErr == nil {
		return v, object{{"kind", "blob"}, {"bytes", byteSize(len(b))}}, nil
	}
	v, mapErr := dv.DecodeMap(b)
	if mapErr == nil {
		return v, object{{"kind", "roaring map"}, {"bytes", byteSize(len(b))}}, nil
	}
	return nil, nil, fmt.Errorf("no deletion vector: as a Puffin: %w; as a blob: %w; as a Roaring map: %w", notPuffin, blobErr, mapErr)
}

func (a *app) showVector(v *dv.Vector, facts object, limit int) error {
	if a.mode == modeCSV || a.mode == modeJSONL {
		out := a.list("from", "to", "count")
		n := 0
		for from, to := range ranges(v) {
			if limit > 0 && n == limit {
				break
			}
			n++
			if err := out.row(from, to, to-from+1); err != nil {
				return err
			}
		}
		return out.close()
	}
	var highest any
	if top, ok := v.Max(); ok {
		highest = top
	}
	rs := &rowset{cols: []string{"from", "to", "count"}}
	count := 0
	for from, to := range ranges(v) {
		if count++; limit <= 0 || count <= limit {
			rs.rows = append(rs.rows, []any{from, to, to - from + 1})
		}
	}
	return a.show(append(facts, field{"cardinality", v.Cardinality()}, field{"highest", highest}, field{"range_count", count}, field{"ranges", rs}))
}

// ranges are the runs of neighbouring positions.
func ranges(v *dv.Vector) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		open := false
		var from, to uint64
		for p := range v.All() {
			switch {
			case open && p == to+1:
				to = p
				continue
			case open && !yield(from, to):
				return
			}
			open, from, to = true, p, p
		}
		if open {
			yield(from, to)
		}
	}
}
