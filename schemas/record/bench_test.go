//go:build unix

package record

import (
	"bytes"
	"syscall"
	"testing"
	"time"
)

// cpu is the process's CPU time: wall time says little on a shared machine.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// report tells CPU per call, and the ratio to goavro's when that was measured.
func report(b *testing.B, start, beside time.Duration) {
	b.Helper()
	used := cpu(b) - start
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
	if beside > 0 {
		b.ReportMetric(float64(beside)*float64(b.N)/float64(used), "×goavro")
	}
}

// flush is the usual record: one file, four blocks of 60 bytes.
func flush() *AppendRows {
	r := &AppendRows{
		Shard: ShardKey{Topic: "dbserver1.shop.orders", Partition: 3},
		Epoch: 123_456, Counter: 789, SourceFrom: 50_000_000, SourceTo: 50_100_000,
		RequestFrom: 123_900, RequestTo: 124_000, SchemaID: 1,
		Files:   []DataFile{{ID: 5<<40 | 789, Rows: 95_000, Bytes: 6_000_000, Partition: []byte{0, 0, 1}}},
		Changes: &Ref{Path: "bodies/" + string(bytes.Repeat([]byte("ab"), 32)), Length: 40_000},
		Counts:  Counts{Events: 100_000, Upserts: 95_000, Deletes: 5_000},
	}
	for i := range uint64(4) {
		r.Deletes = append(r.Deletes, DeleteBlock{File: 4<<40 | i, Bitmap: bytes.Repeat([]byte{7}, 60)})
	}
	return r
}

func BenchmarkAppendRowsDecode(b *testing.B) {
	body, err := EncodeBody(nil, flush())
	if err != nil {
		b.Fatal(err)
	}
	codec := goavroCodec(b, "AppendRows")
	beside := besideGoavro(b, func() {
		if _, _, err := codec.NativeFromBinary(body); err != nil {
			b.Fatal(err)
		}
	})
	// Two records in turn, so that paths differ as they do in the log.
	other := flush()
	other.Changes.Path = "bodies/" + string(bytes.Repeat([]byte("cd"), 32))
	second, err := EncodeBody(nil, other)
	if err != nil {
		b.Fatal(err)
	}
	var r AppendRows
	b.ReportAllocs()
	start := cpu(b)
	for i := 0; b.Loop(); i++ {
		if i&1 == 0 {
			err = r.Decode(body)
		} else {
			err = r.Decode(second)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	report(b, start, beside)
}

func BenchmarkAppendRowsEncode(b *testing.B) {
	r := flush()
	body, err := EncodeBody(nil, r)
	if err != nil {
		b.Fatal(err)
	}
	codec := goavroCodec(b, "AppendRows")
	value, _, err := codec.NativeFromBinary(body)
	if err != nil {
		b.Fatal(err)
	}
	beside := besideGoavro(b, func() {
		if body, err = codec.BinaryFromNative(body[:0], value); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		if body, err = EncodeBody(body[:0], r); err != nil {
			b.Fatal(err)
		}
	}
	report(b, start, beside)
}

func BenchmarkEnvelopeDecode(b *testing.B) {
	body, err := EncodeBody(nil, flush())
	if err != nil {
		b.Fatal(err)
	}
	var m Message
	Encode(&m, &Envelope{Type: TypeAppendRows, TypeVersion: 1, ApplyVersion: 1, Table: "shop.orders", TableID: 9, Body: body})
	var env Envelope
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		if err := DecodeEnvelope(m.Key, m.Header[:], m.Value, &env); err != nil {
			b.Fatal(err)
		}
	}
	report(b, start, 0)
}

// A body of 1,000 changes.
func BenchmarkRowsBodyDecode(b *testing.B) {
	var body RowsBody
	for i := range 1000 {
		body.Changes = append(body.Changes, KeyChange{Key: []byte{byte(i >> 8), byte(i)}, HasOrder: true, Order: int64(i)})
	}
	enc, err := EncodeRowsBody(nil, &body)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		if err := DecodeRowsBody(enc, &body); err != nil {
			b.Fatal(err)
		}
	}
	report(b, start, 0)
}

// besideGoavro is the time of one call of goavro's way.
func besideGoavro(b *testing.B, once func()) time.Duration {
	b.Helper()
	const rounds = 20_000
	start := cpu(b)
	for range rounds {
		once()
	}
	return (cpu(b) - start) / rounds
}
