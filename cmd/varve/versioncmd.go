package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release; the linker sets it: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit, Go and the main libraries",
		Example: "  varve version\n  varve version --output json",
		Args:    cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			return a.show(versionFacts())
		},
	}
}

func versionFacts() object {
	commit, at := "unknown", "unknown"
	libraries := &rowset{cols: []string{"library", "version"}}
	if info, ok := debug.ReadBuildInfo(); ok {
		dirty := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.time":
				at = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-modified"
			}
		}
		if commit != "unknown" {
			commit += dirty
		}
		named := map[string]bool{
			"github.com/apache/iceberg-go": true, "github.com/twmb/franz-go": true, "github.com/cockroachdb/pebble/v2": true,
			"github.com/RoaringBitmap/roaring/v2": true, "github.com/parquet-go/parquet-go": true, "github.com/spf13/cobra": true,
		}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			if named[d.Path] {
				libraries.rows = append(libraries.rows, []any{d.Path, d.Version})
			}
		}
	}
	return object{
		{"version", version}, {"commit", commit}, {"commit_time", at}, {"go", runtime.Version()},
		{"platform", runtime.GOOS + "/" + runtime.GOARCH}, {"libraries", libraries},
	}
}
