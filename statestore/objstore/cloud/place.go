package cloud

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Place reads bucket and prefix of a store's URL, scheme://bucket/prefix.
// Drivers use it; credentials in the URL are refused, since URLs are logged.
func Place(u *url.URL) (bucket, prefix string, err error) {
	switch {
	case u.User != nil:
		return "", "", fmt.Errorf("objstore: the %s URL holds credentials; give them in the environment instead", u.Scheme)
	case u.Host == "":
		return "", "", fmt.Errorf("objstore: the %s URL names no bucket; write it as %s://bucket/prefix", u.Scheme, u.Scheme)
	case u.Fragment != "":
		return "", "", errors.New("objstore: a store's URL has no fragment (#)")
	}
	return u.Host, strings.Trim(u.Path, "/"), nil
}

// Under is the location of prefix under base.
func Under(base, prefix string) string {
	if prefix == "" {
		return base
	}
	return base + "/" + prefix
}
