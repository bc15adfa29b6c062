package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// DefaultKeep is how many checkpoints stay.
const DefaultKeep = 3

// ExpireOptions of Expire.
type ExpireOptions struct {
	// Keep is how many checkpoints stay, at least 1. Default: DefaultKeep.
	Keep int
	// Grace is how long files stay that nothing names. Default: DefaultGrace.
	Grace time.Duration
	// Offset is where the owner's own state stands.
	Offset int64
	// Now is the time by the clock of the store, as near as the grace is long.
	Now time.Time
}

// Expired is what went.
type Expired struct {
	Manifests, Files int
	Bytes            int64 // of the files
}

// Expire removes the checkpoints beyond the newest few, and files that nothing
// names any more. Repeating it resumes.
func (p Place) Expire(ctx context.Context, opt ExpireOptions) (*Expired, error) {
	if opt.Keep == 0 {
		opt.Keep = DefaultKeep
	}
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	out := &Expired{}
	infos, err := p.names(ctx, manifestsDir)
	if err != nil {
		return nil, err
	}
	kept := 0
	for i := len(infos) - 1; i >= 0; i-- {
		name := infos[i].Key
		offset, _, _ := parseName(name)
		if offset > opt.Offset {
			continue
		}
		if _, err := p.read(ctx, manifestsDir, name); err != nil {
			if errors.Is(err, ErrDamaged) && kept > 0 {
				// It would be of no use to anyone, and there are newer ones.
				if err := p.remove(ctx, name); err != nil {
					return nil, err
				}
				out.Manifests++
				continue
			}
			if isRefusal(err) {
				continue
			}
			return nil, err
		}
		if kept++; kept <= max(opt.Keep, 1) {
			continue
		}
		if err := p.remove(ctx, name); err != nil {
			return nil, err
		}
		out.Manifests++
	}
	return out, p.sweep(ctx, &opt, out)
}

// remove takes a manifest away; its copy protects what it names for the grace.
func (p Place) remove(ctx context.Context, name string) error {
	b, err := p.store.ReadAll(ctx, p.prefix+manifestsDir+name, maxManifest)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = p.store.Create(ctx, p.prefix+expiredDir+name, b)
	}
	if err == nil || errors.Is(err, objstore.ErrTooLarge) {
		err = p.store.Delete(ctx, p.prefix+manifestsDir+name)
	}
	if err != nil {
		return fmt.Errorf("expire checkpoint %s: %w", idOf(name), err)
	}
	return nil
}

// Delete removes the checkpoint of an id, or of the beginning of one that names
// a single one. Its files go with a later Expire.
func (p Place) Delete(ctx context.Context, id string) error {
	name, err := p.find(ctx, id)
	if err != nil {
		return err
	}
	return p.remove(ctx, name)
}

// find is the name of the manifest of an id.
func (p Place) find(ctx context.Context, id string) (string, error) {
	infos, err := p.names(ctx, manifestsDir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, i := range infos {
		offset, hash, _ := parseName(i.Key)
		if full := fmt.Sprintf("%d-%s", offset, hash); id != "" && (full == id || strings.HasPrefix(full, id) && (strings.Contains(id, "-") || id == fmt.Sprint(offset))) {
			found = append(found, i.Key)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("%w of id %q in %s; list them", ErrNone, id, p.Location())
	}
	return "", fmt.Errorf("%w of id %q alone: %d begin so in %s; give more of it", ErrNone, id, len(found), p.Location())
}

func (p Place) sweep(ctx context.Context, opt *ExpireOptions, out *Expired) error {
	// Standing manifests are read before expired ones: a manifest that goes
	// meanwhile is found in one of the two.
	named := map[string]bool{}
	unknown := false
	note := func(dir, name string) error {
		m, err := p.read(ctx, dir, name)
		switch {
		case errors.Is(err, ErrNewer):
			unknown = true
			return nil
		case isRefusal(err):
			return nil
		case err != nil:
			return err
		}
		for i := range m.Files {
			named[m.Files[i].Object] = true
		}
		return nil
	}
	old := opt.Now.Add(-opt.Grace)
	standing, err := p.names(ctx, manifestsDir)
	if err != nil {
		return err
	}
	for _, i := range standing {
		if err := note(manifestsDir, i.Key); err != nil {
			return err
		}
	}
	expired, err := p.names(ctx, expiredDir)
	if err != nil {
		return err
	}
	var done []string
	for _, i := range expired {
		if i.ModTime.Before(old) {
			done = append(done, p.prefix+expiredDir+i.Key)
			continue
		}
		if err := note(expiredDir, i.Key); err != nil {
			return err
		}
	}
	if unknown {
		return nil
	}
	var gone []string
	there := map[string]bool{}
	err = p.store.List(ctx, p.prefix+filesDir, func(i objstore.Info) error {
		there[strings.TrimPrefix(i.Key, p.prefix)] = true
		if object := strings.TrimPrefix(i.Key, p.prefix); !named[object] && i.ModTime.Before(old) {
			gone = append(gone, i.Key)
			out.Files++
			out.Bytes += i.Size
		}
		return nil
	})
	if err == nil && len(gone) > 0 {
		err = p.store.Delete(ctx, gone...)
	}
	if err == nil && len(done) > 0 {
		err = p.store.Delete(ctx, done...)
	}
	if err == nil {
		err = p.forgetDamaged(ctx, there)
	}
	if err != nil {
		return fmt.Errorf("remove files that no checkpoint names: %w", err)
	}
	return nil
}
