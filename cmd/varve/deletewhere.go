package main

import (
	"context"
	"errors"

	"github.com/varve-io/varve/topology"
)

// countWhere counts what deleteWhere would delete.
func (a *app) countWhere(ctx context.Context, s *session, table, where string) error {
	count := func() (*topology.Counted, error) {
		if _, err := s.Table(ctx, table); err != nil {
			return nil, err
		}
		if s.node != nil {
			return s.node.CountWhere(ctx, table, where)
		}
		return topology.RequestCountWhere(ctx, a.data, table, where)
	}
	c, err := count()
	if errors.Is(err, topology.ErrPredicate) {
		return usagef("--where: %w", err)
	}
	if err != nil {
		return err
	}
	return a.show(object{{"table", table}, {"rows", c.Rows}, {"files", c.Files}, {"rows_read", c.Scanned}})
}

// deleteWhere deletes rows by a condition (C8).
func (a *app) deleteWhere(ctx context.Context, s *session, table, where string, noWait bool) error {
	offset, files, err := s.DeleteWhere(ctx, table, where)
	if errors.Is(err, topology.ErrPredicate) {
		return usagef("--where: %w", err)
	}
	if err != nil {
		return err
	}
	result := object{{"table", table}, {"offset", offset}}
	if noWait {
		return a.show(append(result, field{"settled", false}))
	}
	p := a.progress()
	found, err := s.WaitFound(ctx, table, offset, func(f *topology.Found) {
		p.set(float64(f.Files)/float64(max(files, 1)), "%d of %d files read, %d rows deleted", f.Files, files, f.Rows)
	})
	p.done()
	if err != nil {
		return err
	}
	if err := s.WaitVisible(ctx, table, found.Offset); err != nil {
		return err
	}
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	return a.show(append(result, field{"settled", true}, field{"rows_deleted", found.Rows}, field{"files", found.Files}, field{"rows_read", found.Scanned},
		field{"snapshot_id", idOrNull(t.Head.SnapshotID)}, field{"metadata_location", t.Head.MetadataPath}))
}
