package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/linkedin/goavro/v2"
	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
)

// plainRow is a row as libraries want it.
type plainRow struct {
	ID        int64   `json:"id" parquet:"id"`
	FirstName *string `json:"first_name" parquet:"first_name,dict,zstd,optional"`
	LastName  *string `json:"last_name" parquet:"last_name,dict,zstd,optional"`
	Email     *string `json:"email" parquet:"email,zstd,optional"`
}

type plainEvent struct {
	After  *plainRow `json:"after"`
	Source struct {
		TsMs int64 `json:"ts_ms"`
	} `json:"source"`
	Op string `json:"op"`
}

// plainFlush is how many rows go to one file.
const plainFlush = 256 << 10

// plainUpserts does what an ingest must in the way that comes to mind first:
// a library's decoder into structs, a Pebble key per row that says where it
// lives, a bitmap per file of what died, a library's Parquet writer. It has no
// broker, no log and no catalog. The result is upserts per CPU second.
func (o *Options) plainUpserts(ctx context.Context, def *schemas.Definition, enc encoder, keys, n int64) (_ float64, name string, err error) {
	decode, name := decodeJSON, "encoding/json, a Pebble key per row, parquet-go"
	if def.Format == source.VarveAvro {
		if decode, err = decodeAvro(def.Schema()); err != nil {
			return 0, "", err
		}
		name = "goavro, a Pebble key per row, parquet-go"
	}
	dir := filepath.Join(o.dir, "plain-"+def.Format)
	cache := pebble.NewCache(128 << 20)
	defer cache.Unref()
	po := &pebble.Options{Cache: cache, MemTableSize: 32 << 20, MemTableStopWritesThreshold: 4, DisableWAL: true, Logger: quietPebble{o.Logger}}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, po)
	if err != nil {
		return 0, "", fmt.Errorf("open the plain index: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	x := &plainIndex{db: db, dead: map[uint32]*roaring.Bitmap{}}
	if err := x.fill(ctx, keys); err != nil {
		return 0, "", err
	}
	r := rand.New(rand.NewPCG(o.Seed, 2))
	var used float64
	const slice = 10_000
	buf := make([]byte, 0, slice*maxEvent)
	for done := int64(0); done < n; done += slice {
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		// Events are made beforehand, as they are for ours.
		buf = buf[:0]
		var evs [][]byte
		for range min(slice, n-done) {
			c := drawCustomer(r, r.Int64N(keys))
			at := len(buf)
			if buf, err = enc.upsert(buf, &c); err != nil {
				return 0, "", err
			}
			evs = append(evs, buf[at:])
		}
		took, err := cpuOf(ctx, func() error {
			for _, e := range evs {
				var row plainRow
				if err := decode(e, &row); err != nil {
					return fmt.Errorf("decode an event the plain way: %w", err)
				}
				if err := x.upsert(&row); err != nil {
					return err
				}
			}
			if done+slice < n {
				return nil
			}
			return x.finish()
		})
		if err != nil {
			return 0, "", err
		}
		used += took
	}
	return float64(n) / used, name, nil
}

func decodeJSON(b []byte, row *plainRow) error {
	var e plainEvent
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	if e.After == nil {
		return errors.New("an event without after")
	}
	*row = *e.After
	return nil
}

// decodeAvro decodes varve-avro upserts with goavro.
func decodeAvro(s *schemas.Schema) (func(b []byte, row *plainRow) error, error) {
	codec, err := goavro.NewCodec(string(source.AvroSchemaFor(s)))
	if err != nil {
		return nil, fmt.Errorf("read the events' Avro schema: %w", err)
	}
	text := func(v any) *string {
		u, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		t, ok := u["string"].(string)
		if !ok {
			return nil
		}
		return &t
	}
	return func(b []byte, row *plainRow) error {
		v, _, err := codec.NativeFromBinary(b[10:])
		if err != nil {
			return err
		}
		e, _ := v.(map[string]any)
		fields, ok := e["row"].(map[string]any)
		if !ok {
			return fmt.Errorf("an event of other fields: %v", len(e))
		}
		row.ID, ok = fields["id"].(int64)
		if !ok {
			return errors.New("an event without id")
		}
		row.FirstName, row.LastName, row.Email = text(fields["first_name"]), text(fields["last_name"]), text(fields["email"])
		return nil
	}, nil
}

type plainIndex struct {
	db   *pebble.DB
	file uint32
	rows []plainRow
	dead map[uint32]*roaring.Bitmap
	out  bytes.Buffer
}

// fill makes the index of a table of so many rows.
func (x *plainIndex) fill(ctx context.Context, keys int64) error {
	b := x.db.NewBatch()
	var k [8]byte
	var v [8]byte
	for i := range keys {
		binary.BigEndian.PutUint64(k[:], uint64(i))
		binary.LittleEndian.PutUint32(v[:], uint32(i/plainFlush)+1)
		binary.LittleEndian.PutUint32(v[4:], uint32(i%plainFlush))
		if err := b.Set(k[:], v[:], nil); err != nil {
			return fmt.Errorf("fill the plain index: %w", err)
		}
		if i%100_000 == 99_999 || i == keys-1 {
			if err := errors.Join(b.Commit(pebble.NoSync), ctx.Err()); err != nil {
				return fmt.Errorf("fill the plain index: %w", err)
			}
			b = x.db.NewBatch()
		}
	}
	x.file = uint32(keys/plainFlush) + 2
	_, err := cpuOf(ctx, x.db.Flush)
	return errors.Join(b.Close(), err)
}

func (x *plainIndex) upsert(row *plainRow) error {
	var k, v [8]byte
	binary.BigEndian.PutUint64(k[:], uint64(row.ID))
	old, closer, err := x.db.Get(k[:])
	switch {
	case err == nil:
		f := binary.LittleEndian.Uint32(old)
		if x.dead[f] == nil {
			x.dead[f] = roaring.New()
		}
		x.dead[f].Add(binary.LittleEndian.Uint32(old[4:]))
		if err := closer.Close(); err != nil {
			return fmt.Errorf("read the plain index: %w", err)
		}
	case !errors.Is(err, pebble.ErrNotFound):
		return fmt.Errorf("read the plain index: %w", err)
	}
	binary.LittleEndian.PutUint32(v[:], x.file)
	binary.LittleEndian.PutUint32(v[4:], uint32(len(x.rows)))
	if err := x.db.Set(k[:], v[:], pebble.NoSync); err != nil {
		return fmt.Errorf("write the plain index: %w", err)
	}
	x.rows = append(x.rows, *row)
	if len(x.rows) == plainFlush {
		return x.flush()
	}
	return nil
}

// flush writes the rows to a file, and what died of others.
func (x *plainIndex) flush() error {
	x.out.Reset()
	w := parquet.NewGenericWriter[plainRow](&x.out)
	if _, err := w.Write(x.rows); err != nil {
		return fmt.Errorf("write a plain data file: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write a plain data file: %w", err)
	}
	for _, d := range x.dead {
		d.RunOptimize()
		if _, err := d.ToBytes(); err != nil {
			return fmt.Errorf("write what died: %w", err)
		}
	}
	clear(x.dead)
	x.rows = x.rows[:0]
	x.file++
	return nil
}

func (x *plainIndex) finish() error {
	if err := errors.Join(x.flush(), x.db.Flush()); err != nil {
		return fmt.Errorf("flush the plain index: %w", err)
	}
	return nil
}

type quietPebble struct{ l *slog.Logger }

func (p quietPebble) Infof(string, ...any) {}
func (p quietPebble) Errorf(format string, args ...any) {
	p.l.Error("database", "error", fmt.Sprintf(format, args...))
}
func (p quietPebble) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
