package record

import (
	"encoding/binary"
	"fmt"
)

// AppendRejectedItem appends an item to Outcome.Items: (uvarint item − the last
// one − 1, uvarint reason)*, ascending. last is −1 before the first.
func AppendRejectedItem(dst []byte, last, item int, r Reason) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(item-last-1)), uint64(r))
}

// RejectedItems calls fn with each item that a batch record's outcome rejects,
// ascending. n is how many items the record has.
func (o *Outcome) RejectedItems(n int, fn func(item int, r Reason)) error {
	last := -1
	for b := o.Items; len(b) > 0; {
		gap, k := binary.Uvarint(b)
		if k <= 0 || gap >= uint64(n-last-1) {
			return fmt.Errorf("outcome items: %w", ErrUndecodable)
		}
		b = b[k:]
		reason, k := binary.Uvarint(b)
		if k <= 0 || reason == 0 || reason > 1<<16-1 {
			return fmt.Errorf("outcome items: %w", ErrUndecodable)
		}
		b = b[k:]
		last += int(gap) + 1
		fn(last, Reason(reason))
	}
	return nil
}

// Rejected is the set of items that a batch record's outcome rejects. n is how
// many items the record has.
func (o *Outcome) Rejected(n int) (map[int]bool, error) {
	items := map[int]bool{}
	return items, o.RejectedItems(n, func(i int, _ Reason) { items[i] = true })
}
