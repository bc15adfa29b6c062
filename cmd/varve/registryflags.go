package main

import (
	"github.com/spf13/pflag"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// Secrets of the schema registry that stand in the environment.
const (
	registryPasswordEnv = "VARVE_SCHEMA_REGISTRY_PASSWORD"
	registryTokenEnv    = "VARVE_SCHEMA_REGISTRY_TOKEN"
)

// registryConfig is the file's schema_registry section.
type registryConfig struct {
	URLs         []string `yaml:"urls"`
	CA           string   `yaml:"ca"`
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password_file"`
	TokenFile    string   `yaml:"token_file"`
}

func (c *registryConfig) flagValues(out map[string][]string) {
	if len(c.URLs) > 0 {
		out["schema-registry"] = c.URLs
	}
	for name, v := range map[string]string{"ca": c.CA, "cert": c.Cert, "key": c.Key, "user": c.User, "password-file": c.PasswordFile, "token-file": c.TokenFile} {
		if v != "" {
			out["schema-registry-"+name] = []string{v}
		}
	}
}

// registryFlags adds the flags that say where writers' schemas are.
func (a *app) registryFlags(f *pflag.FlagSet) {
	o := &a.registryOptions
	f.StringSliceVar(&o.URLs, "schema-registry", nil, "`URLs` of the schema registry that has the events' schemas")
	f.StringVar(&o.CAFile, "schema-registry-ca", "", "PEM `file` of its certificate authorities (default: the system's)")
	f.StringVar(&o.CertFile, "schema-registry-cert", "", "PEM `file` of this client's certificate")
	f.StringVar(&o.KeyFile, "schema-registry-key", "", "PEM `file` of its key")
	f.StringVar(&o.User, "schema-registry-user", "", "`user` to log in as")
	f.StringVar(&o.PasswordFile, "schema-registry-password-file", "", "`file` with its password (or the password in "+registryPasswordEnv+")")
	f.StringVar(&o.TokenFile, "schema-registry-token-file", "", "`file` with a bearer token (or the token in "+registryTokenEnv+")")
}

// openRegistry makes the client of the flags; nil without a URL.
func (a *app) openRegistry() error {
	o := a.registryOptions
	if len(o.URLs) == 0 {
		return nil
	}
	if o.User != "" && o.PasswordFile == "" {
		o.Password, _ = a.lookupEnv(registryPasswordEnv)
	}
	if o.User == "" && o.TokenFile == "" {
		o.Token, _ = a.lookupEnv(registryTokenEnv)
	}
	r, err := topology.NewRegistry(o)
	if err != nil {
		return asUsage(err)
	}
	a.registry = r
	return nil
}

// headersOf are an event's headers as a decoder takes them.
func headersOf(e *topology.SourceEvent) []source.Header {
	var out []source.Header
	for _, h := range e.Headers {
		out = append(out, source.Header{Key: h.Key, Value: h.Value})
	}
	return out
}
