package record

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// MaxInlineMap is the most bytes of a forwarding map that its completion may carry
// itself (F23), for an object of its own costs a call of the store where it is
// written and one wherever its record is read. What a map brings, the rows of a job
// of a few hundred or, laid end to end, of any number of rows, is below that; what
// is larger costs more than it saves, for the state and every shard keep what stands
// in a record, for as long as a block may name a file that the job rewrote.
const MaxInlineMap = 1 << 10

const (
	inlineScheme = "data:"
	inlinePrefix = inlineScheme + ";base64,"
)

// InlineMap is a reference that holds what it refers to: its path is a data URI
// (RFC 2397). ok says whether b may stand inline.
func InlineMap(b []byte) (r Ref, ok bool) {
	if len(b) == 0 || len(b) > MaxInlineMap {
		return Ref{}, false
	}
	return Ref{Path: inlinePrefix + base64.StdEncoding.EncodeToString(b), Length: int64(len(b)), Hash: sha256.Sum256(b)}, true
}

// Inline says that a reference is to nothing in the store: it has the bytes itself,
// or says so.
func (r *Ref) Inline() bool { return strings.HasPrefix(r.Path, inlineScheme) }

// OpenInline gives the bytes that stand in an inline reference. Only the form that
// InlineMap gives is one, with the length and hash that it says.
func (r *Ref) OpenInline() ([]byte, error) {
	if r.Length < 1 || r.Length > MaxInlineMap {
		return nil, fmt.Errorf("%w: an inline map of %d bytes; it may have 1 to %d", ErrUndecodable, r.Length, MaxInlineMap)
	}
	text, ok := strings.CutPrefix(r.Path, inlinePrefix)
	if !ok || len(text) != base64.StdEncoding.EncodedLen(int(r.Length)) {
		return nil, fmt.Errorf("%w: an inline map is not %q and %d bytes in base64", ErrUndecodable, inlinePrefix, r.Length)
	}
	// The decoder passes over line ends, but with one of them in so many characters
	// there are fewer bytes.
	b, err := inlineText.DecodeString(text)
	if err != nil || int64(len(b)) != r.Length {
		return nil, fmt.Errorf("%w: an inline map is not %d bytes in base64", ErrUndecodable, r.Length)
	}
	if sha256.Sum256(b) != r.Hash {
		return nil, fmt.Errorf("%w: an inline map has another hash than its reference says", ErrUndecodable)
	}
	return b, nil
}

var inlineText = base64.StdEncoding.Strict()

// Where is the path of what a reference is to, for messages: what stands inline is
// not shown.
func (r *Ref) Where() string {
	if r.Inline() {
		return fmt.Sprintf("(inline, %d bytes)", r.Length)
	}
	return r.Path
}
