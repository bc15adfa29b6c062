package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// streams are the process's ends, replaced in tests.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env []string // KEY=value
}

// app is what every command shares: streams, the flags of the root command,
// and after its start the effective configuration and logger.
type app struct {
	streams
	flush     func() error // of what was written to out
	output    string
	quiet     bool
	logLevel  string
	logFormat string
	file      string // --config

	// Flags of the deployment; the file gives their values too.
	data            string
	brokers         []string
	warehouse       string
	deployment      string
	security        topology.Security
	registryOptions topology.RegistryOptions
	registry        source.SchemaSource // nil: none named
	outside         outsideFlags

	dry bool // run says what is wrong with its settings, and starts nothing

	kafka   topology.ClientOptions // of security
	cfg     *fileConfig            // never nil once a command runs
	origins map[string]string      // flag name → where its value came from
	log     *slog.Logger
	mode    outputMode
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, s streams, args []string) int {
	buffered := bufio.NewWriterSize(s.out, 64<<10)
	s.out = buffered
	a := &app{streams: s, flush: buffered.Flush}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if flushErr := a.flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("write the result: %w", flushErr))
	}
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	if code == exitStopped && errors.Is(err, context.Canceled) {
		err = errors.New("stopped before the end; what was done stays, and the next start goes on from it")
	}
	fmt.Fprintf(s.err, "varve: %s\n", shortened(err.Error()))
	return code
}

const rootExample = `  # a first look: a demo table, its snapshots, and how to open it elsewhere
  varve demo

  # change events of a file into a table, then its rows
  varve load --data ./varve-data --table shop.orders --format debezium-json --key order_id events.jsonl
  varve scan shop.orders --limit 10

  # a node on the embedded broker, or on a cluster
  varve run --data ./varve-data
  varve run --config varve.yaml`

const rootLong = `varve keeps Apache Iceberg tables true to streams of upserts and deletes.

Each flag can also be set in the environment as VARVE_ and its name in capitals
(VARVE_DATA, VARVE_LOG_LEVEL, …), and those of a deployment in a YAML file named
by --config. Flags win over the environment, the environment over the file.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 compared and
differs, 4 stopped before the end.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "varve",
		Short:             "Iceberg tables kept true to streams of upserts and deletes",
		Long:              rootLong,
		Example:           rootExample,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              knownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.StringVar(&a.output, "output", "table", "form of a result: table, json, jsonl or csv")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no notes on stderr, only warnings and errors")
	f.StringVar(&a.logLevel, "log-level", "", "least level that is logged: debug, info, warn or error (default info for run and serve, else warn)")
	f.StringVar(&a.logFormat, "log-format", "text", "form of log lines: text or json")
	f.StringVar(&a.file, "config", "", "YAML `file` with the deployment's configuration")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see \"%s --help\"", err, cmd.CommandPath())
	})
	root.AddCommand(
		a.versionCommand(), a.completionCommand(root), a.configCommand(),
		a.demoCommand(), a.runCommand(), a.loadCommand(), a.produceCommand(), a.planCommand(), a.deleteCommand(), a.tableCommand(), a.statusCommand(), a.dlqCommand(), a.transactionCommand(),
		a.inspectCommand(), a.scanCommand(), a.snapshotsCommand(), a.filesCommand(), a.catalogCommand(), a.checkpointCommand(), a.replayCommand(), a.verifyCommand(), a.explainCommand(),
		a.compactCommand(), a.jobsCommand(), a.expireCommand(), a.gcCommand(), a.rollbackCommand(),
		a.benchCommand(), a.benchNodeCommand(),
	)
	wrapArgs(root)
	return root
}

// wrapArgs makes wrong arguments wrong usage.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
}

// group is a command that only holds others.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Example: example, Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g.AddCommand(commands...)
	return g
}

// knownCommand is the Args of commands that only hold others: what is left
// over is no command of theirs.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), didYouMean(args[0], names))
}

// dataFlags adds the flags that say where a deployment is.
func (a *app) dataFlags(f *pflag.FlagSet) {
	f.StringVar(&a.data, "data", "./varve-data", "`folder` of local state, embedded broker and embedded lake")
	f.StringVar(&a.warehouse, "warehouse", "", "lake as a path or `URL` (default: the data folder's own, DATA/lake)")
	a.registryFlags(f)
	a.kafkaFlags(f)
	a.outside.add(f)
}

// brokerFlags adds the flags that say how to reach a deployment's log.
func (a *app) brokerFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.brokers, "brokers", nil, "Kafka brokers as `host:port,...` (default: the embedded broker of the data folder)")
	f.StringVar(&a.deployment, "deployment", "varve", "name of the deployment, the prefix of its topics")
	showKafkaFlags(f, true)
}

// prepare reads environment and file into the flags that the command line
// left alone, and sets up output and logs.
func (a *app) prepare(cmd *cobra.Command) error {
	if err := a.bind(cmd); err != nil {
		return err
	}
	mode, err := parseOutput(a.output)
	if err != nil {
		return err
	}
	a.mode = mode
	level := slog.LevelWarn
	if cmd.Name() == "run" || cmd.Name() == "serve" {
		level = slog.LevelInfo
	}
	if a.logLevel != "" {
		if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
			return usagef("--log-level %q: use debug, info, warn or error", a.logLevel)
		}
	}
	if a.quiet {
		level = max(level, slog.LevelWarn)
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: shortenedAttr}
	switch a.logFormat {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.err, options))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.err, options))
	default:
		return usagef("--log-format %q: use text or json", a.logFormat)
	}
	a.warnEnvironment(cmd.Root())
	if err := a.openRegistry(); err != nil {
		return err
	}
	a.rememberSecurity(cmd.Flags())
	return a.secure()
}

// lookupEnv is os.LookupEnv over the app's own environment: the last wins.
func (a *app) lookupEnv(key string) (string, bool) {
	for _, kv := range slices.Backward(a.env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}
