package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kotel"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TraceOptions say where OpenTelemetry traces go.
type TraceOptions struct {
	// Endpoint is the collector's address for OTLP over HTTP, as
	// http://127.0.0.1:4318. Headers and certificates come from the variables
	// OTEL_EXPORTER_OTLP_* that every OpenTelemetry program knows.
	Endpoint string
	// Records is the share of records that are followed through the Kafka
	// clients, 0 to 1. Default: none. Publishing and jobs are always traced.
	Records float64
	// Deployment is shown as the namespace of the service.
	Deployment string
	Logger     *slog.Logger
}

// Traces sends spans to a collector. A nil one does nothing. Spans name tables,
// topics, partitions and offsets, and never keys or values. Nothing is added to
// the records that are written: the log has no trace of a trace.
type Traces struct {
	providers []*sdktrace.TracerProvider
	tracer    trace.Tracer
	hooks     []kgo.Hook
}

// OpenTraces starts sending. A collector that is away is no error: spans that it
// does not take in time are dropped, with a warning.
func OpenTraces(ctx context.Context, o TraceOptions) (*Traces, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: traces: %q is no address of a collector; it is written http://host:4318", ErrConfig, o.Endpoint)
	}
	if !(o.Records >= 0 && o.Records <= 1) {
		return nil, fmt.Errorf("%w: traces: a share of records is between 0 and 1, not %v", ErrConfig, o.Records)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := slog.New(quieter{o.Logger.Handler(), repeats})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces are not taken by their collector", "error", err)
	}))
	t := &Traces{}
	res := resource.NewSchemaless(attribute.String("service.name", "varve"), attribute.String("service.namespace", o.Deployment))
	provider := func(s sdktrace.Sampler) (*sdktrace.TracerProvider, error) {
		to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint), otlptracehttp.WithTimeout(5*time.Second))
		if err != nil {
			return nil, fmt.Errorf("%w: traces: %w", ErrConfig, err)
		}
		p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(to), sdktrace.WithResource(res), sdktrace.WithSampler(s))
		t.providers = append(t.providers, p)
		return p, nil
	}
	own, err := provider(sdktrace.AlwaysSample())
	if err != nil {
		return nil, err
	}
	t.tracer = own.Tracer("github.com/varve-io/varve")
	if o.Records == 0 {
		return t, nil
	}
	records, err := provider(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Records)))
	if err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	k := kotel.NewTracer(kotel.TracerProvider(records), kotel.ClientID(DefaultClientID), kotel.TracerPropagator(readOnly{}),
		kotel.KeyFormatter(func(*kgo.Record) (string, error) { return "", errNoKeys }))
	t.hooks = []kgo.Hook{k}
	return t, nil
}

// errNoKeys keeps record keys out of spans: they may be personal.
var errNoKeys = errors.New("keys are not traced")

// readOnly takes the trace of a record that its producer put there, and puts none
// into the records that varve writes.
type readOnly struct{ propagation.TraceContext }

func (readOnly) Inject(context.Context, propagation.TextMapCarrier) {}

// Close sends what is left.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, p := range t.providers {
		errs = append(errs, p.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// span begins one; its end takes what became of it.
func (t *Traces) span(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, err.Error())
		}
		s.End()
	}
}
