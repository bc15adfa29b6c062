package ingest

import "encoding/binary"

// How the ways through the jobs that rewrote a file stand in a side file.
const (
	movesNone  = 0
	movesWhole = 1 // one, of the whole file: the range is not told
	movesList  = 2 // count, then each with its range
)

// wholeFile is the end of a range of which it is not known that the file has so many rows.
const wholeFile = 1<<32 - 1

// mapPaths are the paths of a side file's maps, numbered as they are met. Where maps
// stand in their references (F23), each path stands there once, however many files
// its job took, and so it is in memory: in its place is its number, and the path
// where the number is new. Nil: paths stand in their places.
type mapPaths map[string]uint64

// anyInline says whether a side file has such maps.
func (s *side) anyInline() bool {
	for _, f := range s.Files {
		for i := range f.Moved {
			if f.Moved[i].Map.Inline() {
				return true
			}
		}
	}
	return false
}

func appendMoves(b []byte, all []moved, paths mapPaths) []byte {
	switch {
	case len(all) == 0:
		return append(b, movesNone)
	case len(all) == 1 && all[0].Lo == 0 && all[0].Hi == wholeFile:
		return appendMove(append(b, movesWhole), &all[0], paths)
	}
	b = binary.AppendUvarint(append(b, movesList), uint64(len(all)))
	for i := range all {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(all[i].Lo)), uint64(all[i].Hi))
		b = appendMove(b, &all[i], paths)
	}
	return b
}

func appendMove(b []byte, m *moved, paths mapPaths) []byte {
	n, known := paths[m.Map.Path]
	if paths != nil {
		if !known {
			n = uint64(len(paths))
			paths[m.Map.Path] = n
		}
		b = binary.AppendUvarint(b, n)
	}
	if !known {
		b = binary.AppendUvarint(b, uint64(len(m.Map.Path)))
		b = append(b, m.Map.Path...)
	}
	b = binary.AppendVarint(b, m.Map.Length)
	b = append(b, m.Map.Hash[:]...)
	b = binary.AppendUvarint(b, m.First)
	return binary.AppendVarint(binary.AppendVarint(b, m.At), m.TimeMs)
}

func (r *sideReader) moves() (all []moved) {
	switch form := r.byte(); form {
	case movesNone:
	case movesWhole:
		all = append(all, r.move(moved{Hi: wholeFile}))
	case movesList:
		for n := r.count(); n > 0 && r.bad == nil; n-- {
			lo, hi := r.uvarint(), r.uvarint()
			if lo >= hi || hi > wholeFile {
				r.bad = errSide
			}
			m := r.move(moved{Lo: uint32(lo), Hi: uint32(hi)})
			if len(all) > 0 && compareMoves(all[len(all)-1], m) >= 0 {
				r.bad = errSide
			}
			all = append(all, m)
		}
		if len(all) == 0 {
			r.bad = errSide
		}
	default:
		r.bad = errSide
	}
	return all
}

func (r *sideReader) move(m moved) moved {
	m.Map.Path = r.mapPath()
	m.Map.Length = r.varint()
	r.fill(m.Map.Hash[:])
	m.First = r.uvarint()
	m.At, m.TimeMs = r.varint(), r.varint()
	return m
}

func (r *sideReader) mapPath() string {
	if !r.numbered {
		return r.text()
	}
	n := r.uvarint()
	if n == uint64(len(r.paths)) {
		r.paths = append(r.paths, r.text())
	}
	if n >= uint64(len(r.paths)) {
		r.bad = errSide
		return ""
	}
	return r.paths[n]
}

func (r *sideReader) byte() byte {
	b, err := r.r.ReadByte()
	if err != nil {
		r.bad = errSide
	}
	return b
}
