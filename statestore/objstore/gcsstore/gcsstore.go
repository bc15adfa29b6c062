package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/cloud"
)

func init() { objstore.Register("gs", open) }

func open(ctx context.Context, u *url.URL, location string) (objstore.Store, error) {
	bucketName, prefix, err := cloud.Place(u)
	if err != nil {
		return nil, err
	}
	anonymous := os.Getenv("STORAGE_EMULATOR_HOST") != ""
	for name, values := range u.Query() {
		if name != "anonymous" {
			return nil, fmt.Errorf("objstore: unknown gs parameter %q; the only one is anonymous", name)
		}
		if anonymous, err = strconv.ParseBool(values[0]); err != nil {
			return nil, fmt.Errorf("objstore: gs parameter anonymous=%q: write true or false", values[0])
		}
	}
	place := "gs://" + cloud.Under(bucketName, prefix)
	client, err := httpClient(ctx, anonymous)
	if err != nil {
		return nil, fmt.Errorf("objstore: open %s: %w; set GOOGLE_APPLICATION_CREDENTIALS, or anonymous=true for a public bucket", place, err)
	}
	bucket, err := gcsblob.OpenBucket(ctx, client, bucketName, nil)
	if err != nil {
		return nil, fmt.Errorf("objstore: open %s: %w", place, err)
	}
	c := cloud.Config{Bucket: bucket, Prefix: prefix, Location: place, Aliases: []string{place}, NotFound: notFound}
	if location != "" {
		c.Location = location
	}
	return cloud.New(c)
}

func httpClient(ctx context.Context, anonymous bool) (*gcp.HTTPClient, error) {
	if anonymous {
		return gcp.NewAnonymousHTTPClient(gcp.DefaultTransport()), nil
	}
	credentials, err := gcp.DefaultCredentials(ctx)
	if err != nil {
		return nil, err
	}
	return gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(credentials))
}

// notFound is about the object only. gocloud's code also covers a missing
// permission.
func notFound(err error) bool { return errors.Is(err, storage.ErrObjectNotExist) }
