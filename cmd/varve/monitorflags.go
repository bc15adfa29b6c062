package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/restcatalog"
)

// adminTokenEnv holds the monitors' token itself.
const adminTokenEnv = "VARVE_ADMIN_TOKEN"

// monitorFlags say where a node can be watched.
type monitorFlags struct {
	listen, tokenFile string
	pprof             bool
}

func (m *monitorFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.listen, "admin-listen", "", "`address` of /metrics, /healthz, /readyz and /status (default: a free port of this machine, which is printed); beyond this machine it needs a token")
	f.StringVar(&m.tokenFile, "admin-token-file", "", "`file` with the bearer token for /metrics and /status there (or the token in "+adminTokenEnv+"); probes need none")
	f.BoolVar(&m.pprof, "pprof", false, "serve Go's profiles under /debug/pprof/ beside the metrics")
}

func (a *app) monitorOptions(m *monitorFlags) (o topology.MonitorOptions, err error) {
	o.Address, o.Profiles = m.listen, m.pprof
	if o.Token, err = a.token("--admin-token-file", m.tokenFile, adminTokenEnv); err != nil || o.Address == "" {
		return o, err
	}
	if err := restcatalog.CheckAddress(o.Address, o.Token); errors.Is(err, restcatalog.ErrOpen) {
		return o, usagef("--admin-listen: %s is reached from other machines; give a token with --admin-token-file or in %s, or listen on 127.0.0.1", o.Address, adminTokenEnv)
	} else if err != nil {
		return o, usagef("--admin-listen: %w", err)
	}
	return o, nil
}
