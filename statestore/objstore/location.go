package objstore

import (
	"fmt"
	"strings"
)

// Locations maps the keys of a store to Iceberg locations and back; a Store
// embeds it. Locations are plain text on both sides: nothing is escaped or
// unescaped, because readers compare them letter by letter (W1).
type Locations struct {
	base    string
	aliases []string
}

// NewLocations maps under base, a location without query, fragment and
// trailing slash. Aliases are other spellings of base that Key accepts, for
// example s3a:// beside s3://.
func NewLocations(base string, aliases ...string) (Locations, error) {
	scheme, rest, ok := strings.Cut(base, "://")
	rest = strings.TrimRight(rest, "/")
	if !ok || scheme == "" || rest == "" && scheme != "file" {
		return Locations{}, fmt.Errorf("objstore: location %q names no place; write it as file:///folder, s3://bucket/prefix, …", base)
	}
	base = scheme + "://" + rest
	for i := 0; i < len(base); i++ {
		switch c := base[i]; {
		case c < ' ', c == 0x7f, c == '?', c == '#', c == '%':
			return Locations{}, fmt.Errorf("objstore: location %q holds %q, which readers of a table take for more than a name (W1); choose another folder, or map it with WithLocation", base, c)
		}
	}
	l := Locations{base: base}
	for _, a := range aliases {
		l.aliases = append(l.aliases, strings.TrimRight(a, "/"))
	}
	return l, nil
}

// Location is the location of key; of the store itself when key is empty.
func (l Locations) Location(key string) string {
	if key == "" {
		return l.base
	}
	return l.base + "/" + key
}

// Key is the inverse of Location, for every spelling of the base.
func (l Locations) Key(location string) (string, bool) {
	if key, ok := cutBase(location, l.base); ok {
		return key, true
	}
	for _, a := range l.aliases {
		if key, ok := cutBase(location, a); ok {
			return key, true
		}
	}
	return "", false
}

func cutBase(location, base string) (string, bool) {
	rest, ok := strings.CutPrefix(location, base)
	if !ok {
		return "", false
	}
	key, ok := strings.CutPrefix(rest, "/")
	if !ok || CheckReadKey(key) != nil {
		return "", false
	}
	return key, true
}
