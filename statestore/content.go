package statestore

// contentSum is a digest of what a snapshot lists, whatever the order: the sum
// of a number of each file and of each vector. It is held against what a
// Rollback says that the snapshot lists (G11); it guards against mistakes, not
// against somebody who looks for two contents of one sum.
type contentSum [2]uint64

// mix spreads every bit of a number over all of them (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (c *contentSum) change(sign, a, b uint64) {
	h := mix(a) ^ b
	c[0] += sign * mix(h)
	c[1] += sign * mix(mix(h+0x632be59bd9b4e019)^a)
}

const (
	listed   = 1
	unlisted = ^uint64(0) // minus one
)

// file adds a file, or takes it out.
func (c *contentSum) file(sign uint64, id uint64, rowID int64) { c.change(sign, id, uint64(rowID)) }

// vector adds a vector, or takes it out.
func (c *contentSum) vector(sign uint64, id uint64, puffin string, offset, cardinality int64) {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(puffin) {
		h = (h ^ uint64(puffin[i])) * 1099511628211
	}
	c.change(sign, mix(id)+1, mix(h)^mix(uint64(offset))<<1^uint64(cardinality))
}

func (c *contentSum) encode(e *enc) {
	e.u(c[0])
	e.u(c[1])
}

func decContent(d *dec) contentSum { return contentSum{d.u(), d.u()} }
