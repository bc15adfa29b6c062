package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/restcatalog"
)

const (
	// catalogOff is the value of --catalog-listen for no catalog.
	catalogOff = "off"
	// catalogTokenEnv holds the catalog's token itself.
	catalogTokenEnv = "VARVE_CATALOG_TOKEN"
	// maxTokenBytes bounds a token.
	maxTokenBytes = 4 << 10
)

// catalogFlags say how tables are served to other engines.
type catalogFlags struct {
	listen, tokenFile string
}

func (c *catalogFlags) add(f *pflag.FlagSet) {
	f.StringVar(&c.listen, "catalog-listen", "", "`address` of the REST catalog, or off (default "+restcatalog.DefaultAddress+", or a free port where that is taken); beyond this machine it needs a token")
	f.StringVar(&c.tokenFile, "catalog-token-file", "", "`file` with the bearer token that clients of the catalog must bring (or the token in "+catalogTokenEnv+")")
}

// catalogOptions are nil when no catalog is wanted.
func (a *app) catalogOptions(c *catalogFlags) (*topology.CatalogOptions, error) {
	token, err := a.token("--catalog-token-file", c.tokenFile, catalogTokenEnv)
	if err != nil {
		return nil, err
	}
	if c.listen == catalogOff {
		return nil, nil
	}
	address := c.listen
	if address == "" {
		address = restcatalog.DefaultAddress
	}
	if err := restcatalog.CheckAddress(address, token); errors.Is(err, restcatalog.ErrOpen) {
		return nil, usagef("%w; give one with --catalog-token-file or in %s, or listen on 127.0.0.1", err, catalogTokenEnv)
	} else if err != nil {
		return nil, usagef("--catalog-listen: %w", err)
	}
	return &topology.CatalogOptions{Address: c.listen, Token: token}, nil
}

// token is the token of the file that a flag names, else of the environment,
// else none.
func (a *app) token(flag, path, env string) (string, error) {
	if path == "" {
		token, _ := a.lookupEnv(env)
		if len(token) > maxTokenBytes || strings.ContainsAny(token, " \t\r\n") {
			return "", usagef("%s must hold one token, a single word of at most %d bytes", env, maxTokenBytes)
		}
		return token, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", usagef("%s: %w", flag, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", usagef("%s: %w", flag, err)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 || len(b) > maxTokenBytes || bytes.ContainsAny(b, " \t\r\n") {
		return "", usagef("%s: %s must hold one token, a single word of at most %d bytes", flag, path, maxTokenBytes)
	}
	return string(b), nil
}

func (a *app) catalogCommand() *cobra.Command {
	var c catalogFlags
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Serve a lake's tables to other engines, without a node",
		Long: "Serves the tables of a lake as a read-only Iceberg REST catalog, as \"varve run\" does for\n" +
			"its own, until it is told to stop. It needs no broker and reads nothing but the lake, so\n" +
			"tables go by the names of their folders: one that was made again under the name of a\n" +
			"dropped one has its id behind the name.",
		Example: "  varve catalog serve --data ./varve-data\n  varve catalog serve --warehouse s3://lake/varve?region=eu-west-1 --catalog-listen 0.0.0.0:8181 --catalog-token-file token.txt",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveCatalog(cmd.Context(), &c) },
	}
	a.dataFlags(serve.Flags())
	c.add(serve.Flags())
	return group("catalog", "The Iceberg REST catalog over a lake", "  varve catalog serve --data ./varve-data", serve)
}

func (a *app) serveCatalog(ctx context.Context, c *catalogFlags) error {
	if c.listen == catalogOff {
		return usagef("--catalog-listen off leaves nothing to do")
	}
	o, err := a.catalogOptions(c)
	if err != nil {
		return err
	}
	l, err := a.openLake(ctx)
	if err != nil {
		return err
	}
	address := o.Address
	if address == "" {
		address = restcatalog.DefaultAddress
	}
	s, err := restcatalog.Listen(l.store, address, o.Address == "", restcatalog.Options{
		Token: o.Token, TableConfig: restcatalog.StoreConfig(a.warehouse), Logger: a.log,
	})
	if err != nil {
		return err
	}
	err = a.show(object{{"catalog", s.URL()}, {"warehouse", l.store.Location("")}})
	if err == nil {
		err = a.flush()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("print where the catalog listens: %w", err), s.Close())
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return s.Close()
}
