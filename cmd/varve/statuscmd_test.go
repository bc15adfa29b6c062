package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology"
)

// TestSourceOffsetsAway: brokers that do not answer leave the lag unknown and
// say so; they are asked once, not once a topic.
func TestSourceOffsetsAway(t *testing.T) {
	a := &app{log: slog.New(slog.DiscardHandler)}
	admin, err := topology.NewAdmin(topology.ClientOptions{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	offsets, away := a.sourceOffsets(t.Context(), admin, "orders", nil)
	if offsets != nil || away == nil || !strings.Contains(away.Error(), "topic orders") || !strings.Contains(away.Error(), "waits for the brokers") {
		t.Fatalf("%v, %v: want no offsets and an error that names the topic", offsets, away)
	}
	admin.Close() // whoever asks again gets another error
	if _, err := a.sourceOffsets(t.Context(), admin, "other", away); err != away {
		t.Errorf("asked again: %v", err)
	}
}
