package restcat

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// Separator parts the levels of a namespace in a path or query, as it stands
// there: an escaped unit separator. A server may name another one (see
// PropertySeparator).
const Separator = "%1F"

// Properties of a Config.
const (
	PropertyPrefix    = "prefix"
	PropertyURI       = "uri"
	PropertySeparator = "namespace-separator" // escaped as it stands in paths
	PropertyWarehouse = "warehouse"
)

// Types of errors, as servers name them.
const (
	NoSuchNamespace    = "NoSuchNamespaceException"
	NoSuchTable        = "NoSuchTableException"
	AlreadyExists      = "AlreadyExistsException"
	CommitFailed       = "CommitFailedException"
	CommitStateUnknown = "CommitStateUnknownException"
	BadRequest         = "BadRequestException"
	NotAuthorized      = "NotAuthorizedException"
	Forbidden          = "ForbiddenException"
	Unsupported        = "UnsupportedOperationException"
)

// Config is the answer to GET v1/config. Endpoints are "METHOD /v1/{prefix}/…"
// as the specification writes them; a server that names none serves the ones of
// the specification's first version.
type Config struct {
	Defaults  map[string]string `json:"defaults"`
	Overrides map[string]string `json:"overrides"`
	Endpoints []string          `json:"endpoints,omitempty"`
}

// Endpoints that varve asks for, as Config names them.
const (
	EndpointLoadTable       = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"
	EndpointCommitTable     = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"
	EndpointCreateNamespace = "POST /v1/{prefix}/namespaces"
)

// Serves says whether a server has an endpoint.
func (c *Config) Serves(endpoint string) bool {
	if len(c.Endpoints) == 0 {
		return true
	}
	for _, e := range c.Endpoints {
		if e == endpoint {
			return true
		}
	}
	return false
}

// Error is the body of every answer that is none of success.
type Error struct {
	Error ErrorModel `json:"error"`
}

// ErrorModel says what went wrong. Message is for people.
type ErrorModel struct {
	Message string   `json:"message"`
	Type    string   `json:"type"`
	Code    int      `json:"code"`
	Stack   []string `json:"stack,omitempty"`
}

// Identifier names a table.
type Identifier struct {
	Namespace []string `json:"namespace"`
	Name      string   `json:"name"`
}

// IdentifierOf is a table's place in a catalog: the dots of its name part the
// levels of its namespace.
func IdentifierOf(table string) Identifier {
	ns, name := schemas.SplitName(table)
	return Identifier{Namespace: strings.Split(ns, "."), Name: name}
}

// TableName is the inverse of IdentifierOf, where the identifier is one of ours.
func (id Identifier) TableName() string {
	ns := strings.Join(id.Namespace, ".")
	if ns == "default" {
		return id.Name
	}
	return ns + "." + id.Name
}

// String is the identifier for people.
func (id Identifier) String() string {
	return strings.Join(append(append([]string{}, id.Namespace...), id.Name), ".")
}

// NamespacePath is a namespace as one segment of a path.
func NamespacePath(namespace []string, separator string) string {
	parts := make([]string, len(namespace))
	for i, p := range namespace {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, separator)
}

// ParseNamespace is the inverse of NamespacePath for a segment that was
// unescaped already; separator is unescaped too ("\x1f").
func ParseNamespace(segment, separator string) []string {
	return strings.Split(segment, separator)
}

// Namespace is a namespace with its properties: the request that makes one and
// the answers that show one.
type Namespace struct {
	Namespace  []string          `json:"namespace"`
	Properties map[string]string `json:"properties"`
}

// Namespaces and Tables list names; a token says that there are more.
type (
	Namespaces struct {
		Namespaces    [][]string `json:"namespaces"`
		NextPageToken *string    `json:"next-page-token,omitempty"`
	}
	Tables struct {
		Identifiers   []Identifier `json:"identifiers"`
		NextPageToken *string      `json:"next-page-token,omitempty"`
	}
)

// Table is the answer that shows a table: loaded, made or committed. A table
// that was only staged has no MetadataLocation.
type Table struct {
	MetadataLocation string            `json:"metadata-location,omitempty"`
	Metadata         json.RawMessage   `json:"metadata"`
	Config           map[string]string `json:"config,omitempty"`
}

// CreateTable makes a table, or with Stage only says what it would be.
type CreateTable struct {
	Name       string            `json:"name"`
	Location   string            `json:"location,omitempty"`
	Schema     json.RawMessage   `json:"schema"`
	Spec       json.RawMessage   `json:"partition-spec,omitempty"`
	Order      json.RawMessage   `json:"write-order,omitempty"`
	Stage      bool              `json:"stage-create"`
	Properties map[string]string `json:"properties,omitempty"`
}

// CommitTable is one commit: all of its updates if all requirements hold, else
// none of them.
type CommitTable struct {
	Identifier   Identifier    `json:"identifier"`
	Requirements []Requirement `json:"requirements"`
	Updates      []Update      `json:"updates"`
	// Base, if given, is where the metadata lies that the commit was made for, and no
	// other may be the newest. The protocol has no place for it: catalogs that are no
	// servers hold to it, for they swap that place themselves.
	Base string `json:"-"`
}
