package restclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
)

// DefaultSigningName is what Iceberg's clients sign for when no name is given.
const DefaultSigningName = "execute-api"

// signer signs requests by AWS Signature Version 4, as the REST endpoints of AWS
// Glue ("glue") and of S3 Tables ("s3tables") ask for, and as rest.sigv4-enabled
// has Iceberg's other clients do. Credentials come from the environment, the
// shared configuration or the machine's role.
type signer struct {
	region, name string
	v4           *v4.Signer

	mu    sync.Mutex
	creds aws.CredentialsProvider
}

func newSigner(opt *Options) (*signer, error) {
	if opt.SigningRegion == "" && opt.SigningName == "" {
		return nil, nil
	}
	if opt.Token != "" || opt.Credential != "" {
		return nil, fmt.Errorf("%w: requests are signed, or carry a token; leave the signing name and region out, or the token and credential", ErrOptions)
	}
	name := opt.SigningName
	if name == "" {
		name = DefaultSigningName
	}
	if !validHeader("x", name) || !validHeader("x", opt.SigningRegion) {
		return nil, fmt.Errorf("%w: the signing name or region holds characters that cannot be sent", ErrOptions)
	}
	s := &signer{region: opt.SigningRegion, name: name, v4: v4.NewSigner()}
	if s.region == "" { // said before anything is sent; the environment and files tell it
		if _, err := s.provider(context.Background()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// provider finds the credentials and the region; what was found stays.
func (s *signer) provider(ctx context.Context) (aws.CredentialsProvider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.creds != nil {
		return s.creds, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: read the AWS configuration: %s", ErrOptions, clean(err.Error()))
	}
	if s.region == "" {
		s.region = cfg.Region
	}
	if s.region == "" {
		return nil, fmt.Errorf("%w: requests are to be signed for %s, and no region is known; give signing_region, or set AWS_REGION", ErrOptions, s.name)
	}
	s.creds = cfg.Credentials
	return s.creds, nil
}

// sign signs a request that is otherwise complete.
func (s *signer) sign(ctx context.Context, req *http.Request, body []byte) error {
	from, err := s.provider(ctx)
	if err != nil {
		return err
	}
	creds, err := from.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("%w: no AWS credentials to sign with: %s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run under a role", ErrDenied, clean(err.Error()))
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if err := s.v4.SignHTTP(ctx, creds, req, hash, s.name, s.region, time.Now().UTC()); err != nil {
		return fmt.Errorf("sign a request: %w", err)
	}
	return nil
}

// renew has the next request ask for credentials anew; false: nothing is kept.
func (s *signer) renew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cache, ok := s.creds.(*aws.CredentialsCache)
	if ok {
		cache.Invalidate()
	}
	return ok
}
