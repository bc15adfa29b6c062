package processors

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Bodies reads and writes the objects that records name by their hash: large
// bodies (L10) and erasable ones (E1). They lie under _varve/<deployment>/ of
// the warehouse, never under a table's location (S7).
type Bodies struct {
	Store  objstore.Store
	Prefix string // _varve/<deployment>
	// AtOnce is how many objects whoever applies a record fetches at a time, from 1.
	AtOnce int
}

// MaxBody bounds one body, in bytes.
const MaxBody = statestore.MaxBody

// maxVoid bounds a void entry, in bytes.
const maxVoid = 4096

// Errors of a body that is not what its record says.
var (
	// ErrBodyMissing: the object is not there (yet, or no longer).
	ErrBodyMissing = errors.New("a record's body is missing")
	// ErrBodyAltered: the object's bytes are not those that the record named.
	ErrBodyAltered = errors.New("a record's body was altered")
	// ErrNotLost: an object is there, so it is not void.
	ErrNotLost = errors.New("the object is not lost")
)

// defaultAtOnce is AtOnce unless somebody changes it.
const defaultAtOnce = 16

// NewBodies is the store of bodies of a deployment.
func NewBodies(s objstore.Store, deployment string) *Bodies {
	return &Bodies{Store: s, Prefix: "_varve/" + deployment, AtOnce: defaultAtOnce}
}

// Put makes b durable under its hash and returns its reference.
func (p *Bodies) Put(ctx context.Context, b []byte) (record.Ref, error) {
	h := record.Hash(sha256.Sum256(b))
	r := record.Ref{Path: p.Prefix + "/bodies/" + h.String(), Length: int64(len(b)), Hash: h}
	if err := p.Store.Create(ctx, r.Path, b); err != nil {
		return record.Ref{}, fmt.Errorf("write a record's body: %w", err)
	}
	return r, nil
}

// MapPath is the path of a forwarding map of a fresh name (F5).
func (p *Bodies) MapPath(name [16]byte) string {
	return p.Prefix + "/maps/" + hex.EncodeToString(name[:])
}

// Map gives a forwarding map, from the store unless it stands in its reference (F23).
func (p *Bodies) Map(ctx context.Context, r *record.Ref) ([]byte, error) {
	if r.Inline() {
		return r.OpenInline()
	}
	return p.Get(ctx, r)
}

// Get reads a body, or a forwarding map that is an object, and checks its length
// and hash.
func (p *Bodies) Get(ctx context.Context, r *record.Ref) ([]byte, error) {
	if r.Length < 0 || r.Length > MaxBody {
		return nil, fmt.Errorf("%w: %s says %d bytes", ErrBodyAltered, r.Path, r.Length)
	}
	b, err := p.Store.ReadAll(ctx, r.Path, r.Length)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil, fmt.Errorf("%w: %s; restore the object, the record waits for it", ErrBodyMissing, r.Path)
	case errors.Is(err, objstore.ErrTooLarge):
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrBodyAltered, r.Path, r.Length)
	case err != nil:
		return nil, fmt.Errorf("read a record's body: %w", err)
	}
	if int64(len(b)) != r.Length || sha256.Sum256(b) != r.Hash {
		return nil, fmt.Errorf("%w: %s; restore the object", ErrBodyAltered, r.Path)
	}
	return b, nil
}

// void is where the void entry lies of an object that the record at an offset
// names, and what it holds. Both follow from what is void alone: whoever writes
// it writes the same.
func (p *Bodies) void(partition int32, offset int64, hash record.Hash) (key string, content []byte) {
	return fmt.Sprintf("%s/void/%d/%020d-%s", p.Prefix, partition, offset, hash),
		fmt.Appendf(nil, "partition %d, offset %d: %s is lost\n", partition, offset, hash)
}

// Void says for good that what the record at an offset of a transactions
// partition names is lost: the record is applied without it (L10). The object
// must be gone, and nobody may have applied the record with it: the caller
// knows. An error wraps ErrNotLost when the object is there, whatever its bytes.
func (p *Bodies) Void(ctx context.Context, partition int32, offset int64, ref *record.Ref) error {
	if ref.Inline() {
		return fmt.Errorf("%w: what stands in the record itself is there with the record", ErrNotLost)
	}
	switch _, err := p.Get(ctx, ref); {
	case err == nil:
		return fmt.Errorf("%w: %s is there and whole", ErrNotLost, ref.Path)
	case errors.Is(err, ErrBodyAltered):
		return fmt.Errorf("%w: %s is there, with other bytes than the record names; put it back as it was, or, when those bytes are nowhere any more, delete it and try again", ErrNotLost, ref.Path)
	case !errors.Is(err, ErrBodyMissing):
		return err
	}
	key, content := p.void(partition, offset, ref.Hash)
	if err := p.Store.Create(ctx, key, content); err != nil {
		return fmt.Errorf("write the void entry: %w", err)
	}
	return nil
}

// Voided says whether an object that the record at an offset names is void. It
// is asked before the object: one that came back stays void, or two who apply
// the record would see two things.
func (p *Bodies) Voided(ctx context.Context, partition int32, offset int64, hash record.Hash) (bool, error) {
	key, want := p.void(partition, offset, hash)
	have, err := p.Store.ReadAll(ctx, key, maxVoid)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return false, nil
	case err != nil && !errors.Is(err, objstore.ErrTooLarge):
		return false, fmt.Errorf("look for a void entry: %w", err)
	case err != nil || string(have) != string(want):
		return false, fmt.Errorf("%w: void entry %s holds something else than varve writes; delete it, and write it with \"varve transaction void\" if it is wanted", ErrBodyAltered, key)
	}
	return true, nil
}

// Message encodes a request. A body above record.MaxInlineBody goes to the
// object store first.
func (p *Bodies) Message(ctx context.Context, env record.Envelope, v any) (record.Message, error) {
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		return record.Message{}, fmt.Errorf("encode a %s record: %w", record.TypeOf(v), err)
	}
	env.Type = record.TypeOf(v)
	env.TypeVersion = record.BodyVersion(env.Type)
	if len(body) > record.MaxInlineBody {
		ref, err := p.Put(ctx, body)
		if err != nil {
			return record.Message{}, err
		}
		env.BodyRef = &ref
	} else {
		env.Body = body
	}
	var m record.Message
	record.Encode(&m, &env)
	return m, nil
}

// Open decodes a record's envelope and gives its body, fetched if need be.
func (p *Bodies) Open(ctx context.Context, key, header, value []byte) (record.Envelope, []byte, error) {
	var env record.Envelope
	if err := record.DecodeEnvelope(key, header, value, &env); err != nil {
		return env, nil, err
	}
	if env.BodyRef == nil {
		return env, env.Body, nil
	}
	b, err := p.Get(ctx, env.BodyRef)
	return env, b, err
}
