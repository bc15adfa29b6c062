package objstore

import (
	"fmt"
	"strings"
)

const (
	// maxKeyLength is S3's limit in bytes.
	maxKeyLength = 1024
	// maxNameLength is the limit of common file systems for one name in bytes.
	maxNameLength = 255

	// tempPrefix begins the names of temporary files of local stores, and of
	// nothing else.
	tempPrefix = ".varve-tmp-"
)

// CheckKey tells whether key may be written: W1's alphabet, no empty, "." or
// ".." part, no name of a temporary file. The error is ErrBadKey.
func CheckKey(key string) error {
	if err := CheckReadKey(key); err != nil {
		return err
	}
	for i := 0; i < len(key); i++ {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '=', c == '-', c == '/':
		default:
			return fmt.Errorf("%w %q: byte %d is not one of A-Z a-z 0-9 . _ = - /", ErrBadKey, key, i)
		}
	}
	return nil
}

// CheckReadKey tells whether key may be read or deleted: it stays inside the
// store and names one object. Files of other engines may hold characters that
// CheckKey refuses.
func CheckReadKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrBadKey)
	}
	if len(key) > maxKeyLength {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrBadKey, len(key), maxKeyLength)
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "":
			return fmt.Errorf("%w %q: it begins or ends with a slash, or has two in a row", ErrBadKey, key)
		case part == ".", part == "..":
			return fmt.Errorf("%w %q: a part is %q", ErrBadKey, key, part)
		case len(part) > maxNameLength:
			return fmt.Errorf("%w: a part has %d bytes, at most %d are allowed", ErrBadKey, len(part), maxNameLength)
		case strings.HasPrefix(part, tempPrefix):
			return fmt.Errorf("%w %q: names that begin with %s are temporary files", ErrBadKey, key, tempPrefix)
		}
	}
	for i := 0; i < len(key); i++ {
		if key[i] < ' ' || key[i] == 0x7f {
			return fmt.Errorf("%w %q: byte %d is a control character", ErrBadKey, key, i)
		}
	}
	return nil
}

// CheckPrefix tells whether List takes prefix: what stands before its last
// slash is a key that may be read, or nothing.
func CheckPrefix(prefix string) error {
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		return CheckReadKey(prefix[:i])
	}
	return nil
}
