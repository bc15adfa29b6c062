package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob/s3blob"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/cloud"
)

func init() { objstore.Register("s3", open) }

// settings are the parameters that are not those of gocloud's AWS package.
type settings struct {
	conditional          bool
	pathStyle            bool
	accelerate           bool
	encryption, kmsKeyID string
	maxAttempts          int
	maxBackoff           time.Duration
	stall                time.Duration
}

func open(ctx context.Context, u *url.URL, location string) (objstore.Store, error) {
	bucketName, prefix, err := cloud.Place(u)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	custom := q.Has("endpoint")
	set, err := takeSettings(q, custom)
	if err != nil {
		return nil, err
	}
	if custom {
		endpoint, err := url.Parse(q.Get("endpoint"))
		if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.User != nil {
			return nil, errors.New("objstore: s3 parameter endpoint: write it as http://host:port or https://host, without credentials")
		}
		setDefault(q, "hostname_immutable", "true")
		if os.Getenv("AWS_REGION") == "" && os.Getenv("AWS_DEFAULT_REGION") == "" {
			setDefault(q, "region", "us-east-1")
		}
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("objstore: open s3://%s: %w", cloud.Under(bucketName, prefix), err)
	}
	set.connect(&cfg)
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle, o.UseAccelerate = set.pathStyle, set.accelerate
	})
	bucket, err := s3blob.OpenBucket(ctx, client, bucketName, &s3blob.Options{
		EncryptionType: types.ServerSideEncryption(set.encryption), KMSEncryptionID: set.kmsKeyID,
		RequestChecksumCalculation: cfg.RequestChecksumCalculation,
	})
	if err != nil {
		return nil, fmt.Errorf("objstore: open s3://%s: %w", cloud.Under(bucketName, prefix), err)
	}
	place := cloud.Under("://"+bucketName, prefix)
	e := explainer{bucket: bucketName, endpoint: u.Query().Get("endpoint"), attempts: set.maxAttempts}
	c := cloud.Config{
		Bucket:         bucket,
		Prefix:         prefix,
		Location:       "s3" + place,
		Aliases:        []string{"s3" + place, "s3a" + place, "s3n" + place},
		NotFound:       notFound,
		Explain:        e.explain,
		StatThenCreate: !set.conditional,
	}
	if location != "" {
		c.Location = location
	}
	store, err := cloud.New(c)
	if err == nil && cfg.Region == "" {
		return nil, fmt.Errorf("%w: open %s: no region is known; add region=… to the URL, or set AWS_REGION", objstore.ErrSetup, c.Location)
	}
	return store, err
}

// takeSettings takes our parameters out of q and leaves the others.
func takeSettings(q url.Values, custom bool) (settings, error) {
	// A bucket's own host name needs DNS entries that few stores of other
	// makers have.
	set := settings{conditional: true, pathStyle: custom, maxAttempts: DefaultMaxAttempts, maxBackoff: DefaultMaxBackoff, stall: DefaultStallTimeout}
	take := func(name string) string {
		v := q.Get(name)
		q.Del(name)
		return v
	}
	for name, to := range map[string]*bool{"conditional_writes": &set.conditional, "use_path_style": &set.pathStyle, "accelerate": &set.accelerate} {
		if v := take(name); v != "" {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return set, fmt.Errorf("objstore: s3 parameter %s=%q: write true or false", name, v)
			}
			*to = b
		}
	}
	for name, to := range map[string]*time.Duration{"max_backoff": &set.maxBackoff, "stall_timeout": &set.stall} {
		if v := take(name); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil || d <= 0 {
				return set, fmt.Errorf("objstore: s3 parameter %s=%q: write a duration as 500ms or 30s", name, v)
			}
			*to = d
		}
	}
	if v := take("max_attempts"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			return set, fmt.Errorf("objstore: s3 parameter max_attempts=%q: write a number from 1 to 100", v)
		}
		set.maxAttempts = n
	}
	set.kmsKeyID = take("kmskeyid")
	if set.encryption = take("ssetype"); set.encryption != "" {
		known := types.ServerSideEncryption("").Values()
		i := slices.IndexFunc(known, func(v types.ServerSideEncryption) bool { return strings.EqualFold(string(v), set.encryption) })
		if i < 0 {
			return set, fmt.Errorf("objstore: s3 parameter ssetype=%q: it is one of %v", set.encryption, known)
		}
		set.encryption = string(known[i])
	}
	return set, nil
}

func setDefault(q url.Values, name, value string) {
	if !q.Has(name) {
		q.Set(name, value)
	}
}

// connect makes the store's own way of connecting and of trying again.
func (set *settings) connect(cfg *aws.Config) {
	cfg.HTTPClient = transport(cfg.HTTPClient, set.stall)
	cfg.Logger = logging.Nop{} // it writes to stderr, past every log level
	cache, _ := cfg.Credentials.(*aws.CredentialsCache)
	anonymous := cfg.Credentials == nil || aws.IsCredentialsProvider(cfg.Credentials, (*aws.AnonymousCredentials)(nil))
	if !anonymous {
		cfg.Credentials = markedCredentials{cfg.Credentials}
	}
	attempts, backoff := set.maxAttempts, set.maxBackoff
	// Services ask for a retryer of their own.
	cfg.Retryer = func() aws.Retryer { return newRetryer(attempts, backoff, cache) }
}
