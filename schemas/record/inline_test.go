package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// TestInlineMap: what is small enough stands in its reference, in one form, and
// comes back (F23).
func TestInlineMap(t *testing.T) {
	for n := 1; n <= MaxInlineMap; n++ {
		b := bytes.Repeat([]byte{byte(n), 0xff, 0}, n)[:n]
		r, ok := InlineMap(b)
		if !ok || !r.Inline() || r.Length != int64(n) || r.Hash != sha256.Sum256(b) {
			t.Fatalf("%d bytes: %+v, %v", n, r, ok)
		}
		if got, err := r.OpenInline(); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes come back as %x: %v", n, got, err)
		}
		if w := r.Where(); len(w) > 30 || strings.Contains(w, "base64") {
			t.Fatalf("a message would show %s", w)
		}
	}
	for _, n := range []int{0, MaxInlineMap + 1} {
		if _, ok := InlineMap(make([]byte, n)); ok {
			t.Errorf("%d bytes stand inline", n)
		}
	}
	if r := (Ref{Path: "_varve/x/maps/data:", Length: 1}); r.Inline() || r.Where() != r.Path {
		t.Errorf("an object is inline, or shown as %s", r.Where())
	}
}

// TestInlineMapOtherForms: of the many ways to write the same bytes as a data URI
// one is taken.
func TestInlineMapOtherForms(t *testing.T) {
	good, _ := InlineMap([]byte("many"))
	if good.Path != "data:;base64,bWFueQ==" {
		t.Fatal(good.Path)
	}
	for _, path := range []string{
		"", "data:", "data:,many", "data:;base64,", "data:;base64,bWFueQ", "data:;base64,bWFueR==", "data:;base64,bWFueQ=\n=", "data:;base64,bWFueQ==\n",
		"data:;base64,bWF\nueQ==", "data:;base64,bWF\nueQ=", "data:;base64, bWFueQ==", "data:;base64,bWFueQ%3D%3D", "data:;charset=utf-8;base64,bWFueQ==",
		"data:text/plain;base64,bWFueQ==", "DATA:;base64,bWFueQ==", "data:;BASE64,bWFueQ==", "bWFueQ==", "data:;base64,bWFueQ==#a", "data:;base64,bWFueQ==bWFueQ==",
	} {
		r := good
		r.Path = path
		if b, err := r.OpenInline(); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%q gives %q, %v", path, b, err)
		}
	}
	for _, n := range []int64{-1, 0, 3, 5, 1 << 62} {
		r := good
		r.Length = n
		if _, err := r.OpenInline(); !errors.Is(err, ErrUndecodable) {
			t.Errorf("length %d: %v", n, err)
		}
	}
	other := good
	other.Hash[31] ^= 1
	if _, err := other.OpenInline(); !errors.Is(err, ErrUndecodable) {
		t.Errorf("another hash: %v", err)
	}
	large := bytes.Repeat([]byte{7}, MaxInlineMap+1)
	r := Ref{Path: inlinePrefix + base64.StdEncoding.EncodeToString(large), Length: int64(len(large)), Hash: sha256.Sum256(large)}
	if _, err := r.OpenInline(); !errors.Is(err, ErrUndecodable) {
		t.Errorf("a large one: %v", err)
	}
}

// FuzzOpenInline: whatever opens is what InlineMap gives of those bytes.
func FuzzOpenInline(f *testing.F) {
	r, _ := InlineMap([]byte("varveFM1"))
	f.Add(r.Path, r.Length)
	f.Add("data:;base64,bWFueQ==", int64(4))
	f.Add("data:;base64,bWF\nueQ==", int64(4))
	f.Add("data:,many", int64(4))
	f.Fuzz(func(t *testing.T, path string, length int64) {
		r := Ref{Path: path, Length: length}
		// So that a path of another form is not refused for its hash alone.
		if at := strings.IndexByte(path, ','); at >= 0 {
			if b, err := base64.StdEncoding.DecodeString(path[at+1:]); err == nil {
				r.Hash = sha256.Sum256(b)
			}
		}
		b, err := r.OpenInline()
		if err != nil {
			return
		}
		if again, ok := InlineMap(b); !ok || again != r {
			t.Fatalf("%q of %d bytes opens; its form is %q", path, length, again.Path)
		}
	})
}
