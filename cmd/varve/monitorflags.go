package main

import (
	"context"
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
	traces            string
	traceRecords      float64
}

func (m *monitorFlags) add(f *pflag.FlagSet) {
	f.StringVar(&m.listen, "admin-listen", "", "`address` of /metrics, /healthz, /readyz and /status (default: a free port of this machine, which is printed); beyond this machine it needs a token")
	f.StringVar(&m.tokenFile, "admin-token-file", "", "`file` with the bearer token for /metrics and /status there (or the token in "+adminTokenEnv+"); probes need none")
	f.BoolVar(&m.pprof, "pprof", false, "serve Go's profiles under /debug/pprof/ beside the metrics")
	f.StringVar(&m.traces, "traces", "", "send OpenTelemetry traces of publishing and of jobs to a collector's `URL` (OTLP over HTTP, as http://127.0.0.1:4318; default: none)")
	f.Float64Var(&m.traceRecords, "trace-records", 0, "`share` of Kafka records that are traced too, 0 to 1")
}

// openTraces starts what --traces asks for, nil: nothing.
func (a *app) openTraces(ctx context.Context, m *monitorFlags, deployment string) (*topology.Traces, error) {
	if m.traces == "" {
		if m.traceRecords != 0 {
			return nil, usagef("--trace-records needs --traces, the collector's address")
		}
		return nil, nil
	}
	return topology.OpenTraces(ctx, topology.TraceOptions{Endpoint: m.traces, Records: m.traceRecords, Deployment: deployment, Logger: a.log})
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
