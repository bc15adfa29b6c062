package record

import (
	"errors"
	"testing"
)

// TestJobHead: the head of a dispatch and of a find dispatch is what the whole
// message says; bytes that are damaged behind the head, too, have none.
func TestJobHead(t *testing.T) {
	want := JobHead{Job: JobID{Plan: 7, Item: 3, Attempt: 2}, TableID: 41, Partition: 5}
	inputs := []DispatchInput{{File: 9, Path: "data/a.parquet", Rows: 10, Hi: 10}}
	d, err := EncodeDispatch(nil, &Dispatch{Job: want.Job, Table: "shop.orders", TableID: want.TableID, Partition: want.Partition, Strategy: "full", Inputs: inputs})
	if err != nil {
		t.Fatal(err)
	}
	f, err := EncodeFind(nil, &FindDispatch{Job: want.Job, Table: "shop.orders", TableID: want.TableID, Partition: want.Partition, Inputs: inputs})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"dispatch": d, "find": f} {
		var got JobHead
		if err := DecodeJobHead(b, &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		b[len(b)-6] ^= 1
		if err := DecodeJobHead(b, &got); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s, damaged: %v", name, err)
		}
		b[0] = FindForm + 1
		if err := DecodeJobHead(b, &got); !errors.Is(err, ErrNewerForm) {
			t.Errorf("%s of a newer form: %v", name, err)
		}
	}
	if err := DecodeJobHead(nil, &JobHead{}); !errors.Is(err, ErrUndecodable) {
		t.Errorf("nothing: %v", err)
	}
}
