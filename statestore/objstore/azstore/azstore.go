package azstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"gocloud.dev/blob/azureblob"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/cloud"
)

func init() { objstore.Register("azblob", open) }

func open(ctx context.Context, u *url.URL, location string) (objstore.Store, error) {
	container, prefix, err := cloud.Place(u)
	if err != nil {
		return nil, err
	}
	service := azureblob.NewDefaultServiceURLOptions()
	if v := u.Query().Get("storage_account"); v != "" {
		service.AccountName = v
	}
	if v := u.Query().Get("domain"); v != "" {
		service.StorageDomain = v
	}
	if service.AccountName == "" {
		return nil, errors.New("objstore: the azblob URL names no account; add ?storage_account=… or set AZURE_STORAGE_ACCOUNT")
	}
	opener := azureblob.URLOpener{MakeClient: azureblob.NewDefaultClient, ServiceURLOptions: *service}
	bucket, err := opener.OpenBucketURL(ctx, &url.URL{Scheme: "azblob", Host: container, RawQuery: u.RawQuery})
	if err != nil {
		return nil, fmt.Errorf("objstore: open azblob://%s: %w", cloud.Under(container, prefix), err)
	}
	blobDomain := service.StorageDomain
	if blobDomain == "" {
		blobDomain = "blob.core.windows.net"
	}
	blobPlace := cloud.Under(fmt.Sprintf("://%s@%s.%s", container, service.AccountName, blobDomain), prefix)
	place := cloud.Under(fmt.Sprintf("://%s@%s.%s", container, service.AccountName, strings.Replace(blobDomain, "blob.", "dfs.", 1)), prefix)
	c := cloud.Config{
		Bucket:   bucket,
		Prefix:   prefix,
		Location: "abfss" + place,
		Aliases:  []string{"abfss" + place, "abfs" + place, "wasbs" + blobPlace, "wasb" + blobPlace},
		NotFound: notFound,
	}
	if location != "" {
		c.Location = location
	}
	return cloud.New(c)
}

// notFound is about the object only. gocloud's code also covers a missing
// container and a host name that does not resolve.
func notFound(err error) bool { return bloberror.HasCode(err, bloberror.BlobNotFound) }
