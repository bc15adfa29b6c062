package schemas

import (
	"strings"
	"testing"
)

// A type that a record brings is one that the parser would have made, or none.
func TestTypeValid(t *testing.T) {
	for typ, want := range map[Type]bool{
		Of(Boolean): true, Of(Binary): true, Of(UUID): true, {}: false, Of(Binary + 1): false, Of(255): false,
		DecimalOf(1, 0): true, DecimalOf(38, 38): true, DecimalOf(39, 0): false, DecimalOf(0, 0): false, DecimalOf(5, 6): false,
		{Kind: Decimal, Precision: 60, Scale: 90}:          false,
		{Kind: Decimal, Precision: 5, Scale: 2, Length: 1}: false,
		FixedOf(1): true, FixedOf(MaxFixed): true, FixedOf(MaxFixed + 1): false, FixedOf(0): false, FixedOf(-1): false,
		{Kind: Fixed, Length: 4, Precision: 1}: false, {Kind: Long, Scale: 1}: false, {Kind: String, Length: 7}: false,
	} {
		if got := typ.Valid(); got != want {
			t.Errorf("%s %+v: valid is %v, want %v", typ, typ, got, want)
		}
		if parsed, err := ParseType(typ.String()); want && (err != nil || parsed != typ) {
			t.Errorf("%s parses as %s, %v", typ, parsed, err)
		}
		s := Schema{Fields: []Field{{ID: 1, Name: "c", Type: typ}}}
		if err := s.Validate(); (err == nil) != want {
			t.Errorf("a column of %s: %v", typ, err)
		}
	}
}

// What format version 3 has and varve does not store is said by its name, also
// inside of a nested type.
func TestTypesNotStored(t *testing.T) {
	for _, name := range []string{"geometry", "geometry(srid:4326)", "geography", "geography(srid:4326, spherical)", "variant", "unknown"} {
		for _, text := range []string{`"` + name + `"`, `{"type":"list","element-id":3,"element":"` + name + `","element-required":false}`} {
			if typ, err := ParseTypeJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "is not a type that varve stores") {
				t.Errorf("%s: %s, %v", text, typ, err)
			}
		}
	}
}
