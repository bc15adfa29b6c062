package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"gocloud.dev/blob/s3blob"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/cloud"
)

func init() { objstore.Register("s3", open) }

func open(ctx context.Context, u *url.URL, location string) (objstore.Store, error) {
	bucketName, prefix, err := cloud.Place(u)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	conditional := true
	if v := q.Get("conditional_writes"); v != "" {
		if conditional, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("objstore: s3 parameter conditional_writes=%q: write true or false", v)
		}
		q.Del("conditional_writes")
	}
	if q.Has("endpoint") {
		// A bucket's own host name needs DNS entries that few of these have.
		setDefault(q, "use_path_style", "true")
		setDefault(q, "hostname_immutable", "true")
		if os.Getenv("AWS_REGION") == "" && os.Getenv("AWS_DEFAULT_REGION") == "" {
			setDefault(q, "region", "us-east-1")
		}
	}
	bucket, err := new(s3blob.URLOpener).OpenBucketURL(ctx, &url.URL{Scheme: "s3", Host: bucketName, RawQuery: q.Encode()})
	if err != nil {
		return nil, fmt.Errorf("objstore: open s3://%s: %w", cloud.Under(bucketName, prefix), err)
	}
	place := cloud.Under("://"+bucketName, prefix)
	c := cloud.Config{
		Bucket:         bucket,
		Prefix:         prefix,
		Location:       "s3" + place,
		Aliases:        []string{"s3" + place, "s3a" + place, "s3n" + place},
		NotFound:       notFound,
		StatThenCreate: !conditional,
	}
	if location != "" {
		c.Location = location
	}
	return cloud.New(c)
}

func setDefault(q url.Values, name, value string) {
	if !q.Has(name) {
		q.Set(name, value)
	}
}

// notFound is about the object only: a bucket that is not there, or lies in
// another region, is an error and not an absence. (A HEAD answer has no body;
// there a missing bucket cannot be told from a missing object.)
func notFound(err error) bool {
	var e interface{ ErrorCode() string }
	if !errors.As(err, &e) {
		return false
	}
	return e.ErrorCode() == "NoSuchKey" || e.ErrorCode() == "NotFound"
}
