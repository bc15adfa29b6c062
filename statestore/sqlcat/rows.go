package sqlcat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/lib/pq"

	"github.com/varve-io/varve/statestore/restclient"
)

// The tables, as version 1 of Iceberg's JDBC catalog makes them. Version 0 lacks
// iceberg_type, and so do those of some PyIceberg versions.
const (
	createTables = `CREATE TABLE IF NOT EXISTS iceberg_tables (
		catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
		metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
		PRIMARY KEY (catalog_name, table_namespace, table_name))`
	createNamespaces = `CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
		catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000),
		PRIMARY KEY (catalog_name, namespace, property_key))`
	hasTables = `SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name IN ('iceberg_tables', 'iceberg_namespace_properties')`
	hasType   = `SELECT count(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'iceberg_tables' AND column_name = 'iceberg_type'`
)

// rows are the catalog's rows in the database.
type rows struct {
	db    *sql.DB
	name  string // of the catalog
	typed bool   // iceberg_tables tells tables from views
}

// prepare makes the tables where they are not, and looks at those that are there.
func (r *rows) prepare(ctx context.Context) error {
	var n int
	if err := r.db.QueryRowContext(ctx, hasTables).Scan(&n); err != nil {
		return failed(err, false)
	}
	if n < 2 {
		for _, text := range []string{createTables, createNamespaces} {
			if _, err := r.db.ExecContext(ctx, text); err != nil {
				return failed(err, false)
			}
		}
	}
	if err := r.db.QueryRowContext(ctx, hasType).Scan(&n); err != nil {
		return failed(err, false)
	}
	r.typed = n > 0
	return nil
}

// isTable leaves views out.
func (r *rows) isTable() string {
	if r.typed {
		return ` AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)`
	}
	return ""
}

// at is where a table's newest metadata lies; ErrNotFound: there is no such table.
func (r *rows) at(ctx context.Context, namespace, table string) (string, error) {
	var at sql.NullString
	err := r.db.QueryRowContext(ctx, `SELECT metadata_location FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3`+r.isTable(),
		r.name, namespace, table).Scan(&at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", restclient.ErrNotFound
	case err != nil:
		return "", failed(err, false)
	case at.String == "":
		return "", fmt.Errorf("%w: table %s.%s has no metadata_location", restclient.ErrNonsense, namespace, table)
	}
	return at.String, nil
}

// move sets where a table's newest metadata lies, if it was at old until now; old
// is empty for a new table. One statement: it is done or not.
func (r *rows) move(ctx context.Context, namespace, table, old, now string) error {
	var res sql.Result
	var err error
	switch {
	case old != "":
		res, err = r.db.ExecContext(ctx, `UPDATE iceberg_tables SET metadata_location = $1, previous_metadata_location = $2
			WHERE catalog_name = $3 AND table_namespace = $4 AND table_name = $5 AND metadata_location = $2`+r.isTable(), now, old, r.name, namespace, table)
	case r.typed:
		res, err = r.db.ExecContext(ctx, `INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)
			VALUES ($1, $2, $3, $4, 'TABLE') ON CONFLICT DO NOTHING`, r.name, namespace, table, now)
	default:
		res, err = r.db.ExecContext(ctx, `INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, r.name, namespace, table, now)
	}
	if err != nil {
		return failed(err, true)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return failed(err, true)
	}
	if n == 0 {
		return fmt.Errorf("%w: its metadata is not at %q any more", restclient.ErrConflict, old)
	}
	return nil
}

// makeNamespace notes that a namespace is there.
func (r *rows) makeNamespace(ctx context.Context, namespace string) error {
	_, err := r.db.ExecContext(ctx, `INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
		VALUES ($1, $2, 'exists', 'true') ON CONFLICT DO NOTHING`, r.name, namespace)
	if err != nil {
		return failed(err, false)
	}
	return nil
}

// failed says what an error of the database means. move: the statement changes a
// table, and what fails on the way is unknown.
func failed(err error, move bool) error {
	what := restclient.ErrAway
	var e *pq.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &e):
		class := string(e.Code)[:min(2, len(e.Code))]
		switch {
		case class == "28" || e.Code == "42501":
			what = restclient.ErrDenied
		case class == "3D" || class == "3F":
			what = restclient.ErrOptions
		case class == "40" || class == "23":
			what = restclient.ErrConflict
		case strings.Contains("08 53 57 58 XX", class):
			if move { // the server went down with the statement in hand
				what = restclient.ErrUnknown
			}
		default:
			what = restclient.ErrNonsense
		}
	case errors.As(err, &dial) && dial.Op == "dial": // nothing was sent
	case move:
		what = restclient.ErrUnknown
	}
	return fmt.Errorf("%w: %w", what, err)
}
