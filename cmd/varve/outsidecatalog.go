package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/statestore/sqlcat"
	"github.com/varve-io/varve/topology"
)

// outsideFlags name the catalog that tables are published to. Only its address
// is shown in help: the rest stands in the configuration's example.
type outsideFlags struct {
	kind, uri, warehouse, prefix  string
	token, credential             string
	tokenURI, scope, certificates string
	signingRegion, signingName    string
	headers                       []string
}

// secretFlags are never shown.
var secretFlags = map[string]bool{"catalog-access-token": true, "catalog-credential": true, "catalog-header": true}

func (o *outsideFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.uri, "catalog-uri", "", "`URL` of the Iceberg REST catalog, or postgres:// of the SQL one, that tables are published to; \"varve config example\" tells its other settings (default: the tables' own folders)")
	hidden := func(p *string, name, usage string) {
		f.StringVar(p, name, "", usage)
		f.Lookup(name).Hidden = true
	}
	hidden(&o.kind, "catalog-type", "embedded, rest or sql")
	hidden(&o.warehouse, "catalog-warehouse", "what the catalog calls its set of tables")
	hidden(&o.prefix, "catalog-prefix", "segment of the catalog's paths")
	hidden(&o.token, "catalog-access-token", "bearer token for the catalog")
	hidden(&o.credential, "catalog-credential", "id:secret of an OAuth2 client, or user:password of a SQL catalog")
	hidden(&o.tokenURI, "catalog-token-uri", "where tokens for the credential are asked")
	hidden(&o.scope, "catalog-scope", "scope of those tokens")
	hidden(&o.signingRegion, "catalog-signing-region", "AWS region that requests are signed for")
	hidden(&o.signingName, "catalog-signing-name", "AWS service that requests are signed for: glue, s3tables")
	hidden(&o.certificates, "catalog-ca-file", "certificates that are trusted besides the system's")
	f.StringArrayVar(&o.headers, "catalog-header", nil, "name=value sent with every request")
	f.Lookup("catalog-header").Hidden = true
}

// values is what the file says about the flags.
func (c *catalogConfig) values(out map[string][]string) {
	for name, v := range map[string]string{
		"catalog-type": c.Type, "catalog-uri": c.URI, "catalog-warehouse": c.Warehouse, "catalog-prefix": c.Prefix,
		"catalog-access-token": c.Token, "catalog-credential": c.Credential, "catalog-token-uri": c.TokenURI,
		"catalog-scope": c.Scope, "catalog-ca-file": c.CAFile, "catalog-signing-region": c.SigningRegion, "catalog-signing-name": c.SigningName,
	} {
		if v != "" {
			out[name] = []string{v}
		}
	}
	for k, v := range c.Headers {
		out["catalog-header"] = append(out["catalog-header"], k+"="+v)
	}
}

func (c *catalogConfig) check() error {
	switch c.Type {
	case "", "embedded", "rest", "sql":
	case "glue":
		return errors.New("AWS Glue is a catalog of type rest: uri https://glue.REGION.amazonaws.com/iceberg, warehouse the account's number, signing_name glue")
	default:
		return fmt.Errorf("catalog type %q is not there; use embedded, rest or sql", c.Type)
	}
	sql := sqlcat.IsURI(c.URI)
	switch {
	case c.Type == "rest" && (c.URI == "" || sql):
		return errors.New("a catalog of type rest needs its uri, http:// or https://")
	case c.Type == "sql" && !sql:
		return errors.New("a catalog of type sql is in a PostgreSQL database: its uri is postgres://user@host:port/database")
	case c.Type == "embedded" && c.URI != "":
		return errors.New("the embedded catalog has no uri; use type rest or sql")
	}
	if c.Token != "" && c.Credential != "" {
		return errors.New("give the catalog a token or a credential, not both")
	}
	if signed := c.SigningRegion != "" || c.SigningName != ""; signed && (c.Token != "" || c.Credential != "" || c.URI == "" || sql) {
		return errors.New("requests are signed for a REST catalog alone, and carry no token or credential then")
	}
	if sql {
		return sqlcat.CheckOptions(sqlcat.Options{URI: c.URI})
	}
	return nil
}

// remoteOptions is the catalog that tables are published to: as flags,
// environment and file say, else as the data folder remembers. nil: the tables'
// own folders.
func (a *app) remoteOptions(old *nodeFacts) (*restclient.Options, error) {
	f := &a.outside
	c := catalogConfig{Type: f.kind, URI: f.uri, Token: f.token, Credential: f.credential, SigningRegion: f.signingRegion, SigningName: f.signingName}
	if f.kind == "" && f.uri == "" && old != nil && old.Remote != nil {
		c.URI = old.Remote.URI
		if f.warehouse == "" {
			f.warehouse = old.Remote.Warehouse
		}
		if f.prefix == "" {
			f.prefix = old.Remote.Prefix
		}
		if c.SigningRegion == "" && c.SigningName == "" {
			c.SigningRegion, c.SigningName = old.Remote.SigningRegion, old.Remote.SigningName
		}
	}
	if err := c.check(); err != nil {
		return nil, asUsage(err)
	}
	if c.URI == "" {
		return nil, nil
	}
	o := &restclient.Options{
		URI: c.URI, Warehouse: f.warehouse, Prefix: f.prefix, Token: f.token, Credential: f.credential,
		TokenURI: f.tokenURI, Scope: f.scope, SigningRegion: c.SigningRegion, SigningName: c.SigningName,
		CAFile: f.certificates, Headers: map[string]string{},
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, usagef("a header for the catalog is not written as name=value")
		}
		o.Headers[strings.TrimSpace(name)] = value
	}
	return o, nil
}

// openRemote reaches the catalog for reading.
func (a *app) openRemote(ctx context.Context, o *restclient.Options, store objstore.Store) (topology.OutsideCatalog, error) {
	c, err := topology.OpenOutside(ctx, o, store)
	if err != nil && !errors.Is(err, restclient.ErrAway) {
		err = asUsage(err)
	}
	return c, err
}

// loadRemote loads the table that the catalog has now.
func (l *lake) loadRemote(ctx context.Context, name string) (*lakeTable, error) {
	found, err := l.remote.Load(ctx, restcat.IdentifierOf(name))
	if errors.Is(err, restclient.ErrNotFound) {
		return nil, usagef("the catalog at %s has no table %s; \"varve status\" tells whether it waits to be published", l.remote.URI(), name)
	}
	if err != nil {
		return nil, err
	}
	t := &lakeTable{name: name, location: found.MetadataLocation, json: found.Metadata}
	if t.meta, err = iceberg.ParseMetadata(t.json); err != nil {
		return nil, fmt.Errorf("table %s: %s: %w", name, t.location, err)
	}
	return t, nil
}
