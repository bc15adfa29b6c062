package checkpoint

import (
	"context"
	"fmt"
	"strings"

	"github.com/varve-io/varve/statestore/objstore"
)

// A file that a restore found damaged is noted in the store: whoever makes the
// next checkpoint, on whatever node, does not share it (CreateOptions.Avoid is
// what the same process knows). The note goes when the file has gone.

// noteDamaged makes the note of a file.
func (p Place) noteDamaged(ctx context.Context, object string) error {
	name, ok := strings.CutPrefix(object, filesDir)
	if !ok {
		return nil
	}
	if err := p.store.Create(ctx, p.prefix+damagedDir+name, []byte(object)); err != nil {
		return fmt.Errorf("note that a checkpoint's file is damaged: %w", err)
	}
	return nil
}

// damaged are the objects that are noted.
func (p Place) damaged(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := p.store.List(ctx, p.prefix+damagedDir, func(i objstore.Info) error {
		out[filesDir+strings.TrimPrefix(i.Key, p.prefix+damagedDir)] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list what of checkpoints is damaged: %w", err)
	}
	return out, nil
}

// forgetDamaged removes the notes of files that are not there any more.
func (p Place) forgetDamaged(ctx context.Context, there map[string]bool) error {
	noted, err := p.damaged(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for object := range noted {
		if !there[object] {
			gone = append(gone, p.prefix+damagedDir+strings.TrimPrefix(object, filesDir))
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return p.store.Delete(ctx, gone...)
}
