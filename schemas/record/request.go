package record

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// NewRequestID is a random request id (L9).
func NewRequestID() RequestID {
	var id RequestID
	rand.Read(id[:]) // never fails: crypto/rand ends the process instead
	return id
}

// RequestIDFrom is the request id that follows from what is asked: the first
// 16 bytes of SHA-256 over domain and parts, each behind its length (u64 BE).
// Senders that must agree without talking (several first owners creating one
// table) use it.
func RequestIDFrom(domain string, parts ...[]byte) RequestID {
	h := sha256.New()
	var n [8]byte
	part := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	part([]byte(domain))
	for _, p := range parts {
		part(p)
	}
	var sum [sha256.Size]byte
	return RequestID(h.Sum(sum[:0])[:len(RequestID{})])
}

// String is the id in hex.
func (id RequestID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says that there is no id.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }
