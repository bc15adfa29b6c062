package sqlcat

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

const (
	// DefaultName is the catalog's name where none is given; PyIceberg's too.
	DefaultName = "default"
	// DefaultTimeout bounds one statement.
	DefaultTimeout = 30 * time.Second

	maxConnections = 4
	idleTime       = 5 * time.Minute
	appName        = "varve"
)

// Options say where a catalog is.
type Options struct {
	// URI is postgres://user@host:port/database?options, without a password.
	URI string
	// Name is what the catalog is called in its tables. Default: DefaultName.
	Name string
	// User and Password, if given; the driver's own environment and files else.
	User, Password string
	// Timeout of one statement. Default: DefaultTimeout.
	Timeout time.Duration
	// Store holds the tables' files.
	Store objstore.Store
}

// IsURI says whether an address is one of this package's.
func IsURI(uri string) bool {
	return strings.HasPrefix(uri, "postgres://") || strings.HasPrefix(uri, "postgresql://")
}

// Catalog is a catalog in a database. It may be used concurrently.
type Catalog struct {
	opt  Options
	uri  string
	rows rows
}

// CheckOptions says what of the options cannot work.
func CheckOptions(opt Options) error {
	_, err := connector(&opt)
	return err
}

func connector(opt *Options) (*pq.Connector, error) {
	u, err := url.Parse(opt.URI)
	if err != nil || !IsURI(opt.URI) || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, fmt.Errorf("%w: the address of a catalog in PostgreSQL is postgres://user@host:port/database", restclient.ErrOptions)
	}
	if _, has := u.User.Password(); has || u.Query().Has("password") {
		return nil, fmt.Errorf("%w: the address holds a password; give it as the catalog's credential (user:password), or in PGPASSWORD", restclient.ErrOptions)
	}
	user := opt.User
	if user == "" {
		user = u.User.Username()
	}
	switch {
	case user != "" && opt.Password != "":
		u.User = url.UserPassword(user, opt.Password)
	case user != "":
		u.User = url.User(user)
	}
	q := u.Query()
	if !q.Has("application_name") {
		q.Set("application_name", appName)
	}
	u.RawQuery = q.Encode()
	c, err := pq.NewConnector(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: the catalog's address: an option of it is not understood", restclient.ErrOptions)
	}
	return c, nil
}

// Open reaches a catalog and makes its tables if they are not there.
func Open(ctx context.Context, opt Options) (*Catalog, error) {
	if opt.Timeout == 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.Name == "" {
		opt.Name = DefaultName
	}
	c, err := connector(&opt)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(maxConnections)
	db.SetConnMaxIdleTime(idleTime)
	out := &Catalog{opt: opt, uri: opt.URI, rows: rows{db: db, name: opt.Name}}
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	if err := out.rows.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the catalog at %s: %w", opt.URI, err), db.Close())
	}
	return out, nil
}

// Close ends the connections.
func (c *Catalog) Close() error { return c.rows.db.Close() }

// URI is the catalog's address; it holds no secret.
func (c *Catalog) URI() string { return c.uri }

// CheckCommits: it takes them.
func (c *Catalog) CheckCommits() error { return nil }

func (c *Catalog) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opt.Timeout)
}

// CreateNamespace makes a namespace and those above it. nil: it is there.
func (c *Catalog) CreateNamespace(ctx context.Context, namespace []string) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	for n := 1; n <= len(namespace); n++ {
		name := strings.Join(namespace[:n], ".")
		if err := c.rows.makeNamespace(ctx, name); err != nil {
			return fmt.Errorf("make the namespace %s: %w", name, err)
		}
	}
	return nil
}

// Load is a table as it is now; ErrNotFound when there is none.
func (c *Catalog) Load(ctx context.Context, id restcat.Identifier) (*restclient.Table, error) {
	t, err := c.load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load the table %s: %w", id, err)
	}
	return t, nil
}

func (c *Catalog) load(ctx context.Context, id restcat.Identifier) (*restclient.Table, error) {
	asked, cancel := c.begin(ctx)
	at, err := c.rows.at(asked, strings.Join(id.Namespace, "."), id.Name)
	cancel()
	if err != nil {
		return nil, err
	}
	key, ok := c.opt.Store.Key(at)
	if !ok {
		return nil, fmt.Errorf("%w: its metadata is at %s, outside of the warehouse %s", restclient.ErrNonsense, at, c.opt.Store.Location(""))
	}
	text, err := c.opt.Store.ReadAll(ctx, key, restclient.MaxTableBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	return &restclient.Table{MetadataLocation: at, Metadata: text}, nil
}

// Commit takes a commit whole or not at all. ErrConflict: the table is not what it
// was made for. ErrUnknown: it may have been taken. ErrNotFound: there is no table.
func (c *Catalog) Commit(ctx context.Context, r *restcat.CommitTable) (*restclient.Table, error) {
	t, err := c.commit(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("commit to the table %s: %w", r.Identifier, err)
	}
	return t, nil
}

func (c *Catalog) commit(ctx context.Context, r *restcat.CommitTable) (*restclient.Table, error) {
	old, err := c.load(ctx, r.Identifier)
	if err != nil && !errors.Is(err, restclient.ErrNotFound) {
		return nil, err
	}
	m := &iceberg.Metadata{LastPartitionID: 999}
	var base *iceberg.Metadata
	at := ""
	if old != nil {
		if base, err = iceberg.ParseMetadata(old.Metadata); err != nil {
			return nil, fmt.Errorf("%s: %w", old.MetadataLocation, err)
		}
		m, at = base.Clone(), old.MetadataLocation
	}
	if r.Base != "" && r.Base != at {
		return nil, fmt.Errorf("%w: its metadata is at %s, and the commit was made for %s", restclient.ErrConflict, at, r.Base)
	}
	switch err := restcat.Require(base, r.Requirements); {
	case errors.Is(err, restcat.ErrNoTable):
		return nil, restclient.ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	if err := restcat.Apply(m, r.Updates); err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	var dropped []iceberg.MetadataLogEntry
	if base == nil || m.LastUpdatedMs == base.LastUpdatedMs {
		m.LastUpdatedMs = max(time.Now().UnixMilli(), m.LastUpdatedMs+1) // S2
	}
	if base != nil {
		dropped = m.LogMetadata(at, base.LastUpdatedMs, iceberg.MetadataLogLimit)
	}
	text, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	next := m.Location + "/metadata/" + metadataName(at)
	key, ok := c.opt.Store.Key(next)
	if !ok {
		return nil, fmt.Errorf("%w: the table's location %s is outside of the warehouse %s", restclient.ErrOptions, m.Location, c.opt.Store.Location(""))
	}
	if err := c.opt.Store.CreateExclusive(ctx, key, text); err != nil {
		return nil, fmt.Errorf("write %s: %w", next, err)
	}
	if err := c.move(ctx, r.Identifier, at, next); err != nil {
		if !errors.Is(err, restclient.ErrUnknown) { // nobody knows of the file
			err = errors.Join(err, c.opt.Store.Delete(ctx, key))
		}
		return nil, err
	}
	c.forget(ctx, m, dropped)
	return &restclient.Table{MetadataLocation: next, Metadata: text}, nil
}

// move sets where the newest metadata lies. The driver may send a statement twice,
// over a new connection: then it finds done what it did.
func (c *Catalog) move(ctx context.Context, id restcat.Identifier, old, next string) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	namespace := strings.Join(id.Namespace, ".")
	err := c.rows.move(ctx, namespace, id.Name, old, next)
	if err == nil || errors.Is(err, restclient.ErrUnknown) {
		return err
	}
	switch at, other := c.rows.at(ctx, namespace, id.Name); {
	case other == nil && at == next:
		return nil
	case other != nil && !errors.Is(other, restclient.ErrNotFound):
		return fmt.Errorf("%w: %w: %w", restclient.ErrUnknown, err, other)
	}
	return err
}

// forget deletes metadata that fell out of the metadata log, as the table's
// property says that writers do; a table with a commit a second would else hold
// as many files. What is not deleted does no harm.
func (c *Catalog) forget(ctx context.Context, m *iceberg.Metadata, dropped []iceberg.MetadataLogEntry) {
	if m.Property("write.metadata.delete-after-commit.enabled") == "false" {
		return
	}
	for i := range dropped {
		if key, ok := c.opt.Store.Key(dropped[i].File); ok && strings.HasPrefix(dropped[i].File, m.Location+"/metadata/") {
			_ = c.opt.Store.Delete(ctx, key) // it stays: see above
		}
	}
}

// metadataName is the name of the file that follows the one at old: its number
// plus one, and bytes that nobody else has.
func metadataName(old string) string {
	version := 0
	if old != "" {
		number, _, _ := strings.Cut(path.Base(old), "-")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			version = n + 1
		}
	}
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%05d-%s-%s-%s-%s-%s.metadata.json", version, h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
