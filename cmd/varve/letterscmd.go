package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

var errEnoughLetters = errors.New("enough letters")

func (a *app) lettersCommand() *cobra.Command {
	var limit int64
	cmd := &cobra.Command{
		Use:   "letters TABLE",
		Short: "List the events that a table could not take, and why",
		Long: "Lists the dead letters of the table's source topic (topic <topic>.dlq): where each\n" +
			"event was, and the reason. Reasons name columns, never values; the event itself is the\n" +
			"letter's key and value, for a Kafka consumer. Tables that share a source topic share\n" +
			"its dead letters.",
		Example: "  varve letters shop.orders\n  varve letters shop.orders --limit 5 --output jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 || limit == 0 && a.given("limit") {
				return usagef("--limit %d: a limit is 1 or more", limit)
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				out := a.list("letter", "time", "topic", "partition", "offset", "code", "reason")
				left := limit
				err = s.DeadLetters(cmd.Context(), t.Definition.SourceTopic, func(l *topology.Letter) error {
					if err := out.row(l.Offset, millis(l.TimeMs), l.Topic, int64(l.Partition), l.SourceOffset, l.Code, l.Reason); err != nil {
						return err
					}
					if left--; left == 0 {
						return errEnoughLetters
					}
					return nil
				})
				if err != nil && !errors.Is(err, errEnoughLetters) {
					return err
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().Int64Var(&limit, "limit", 0, "at most so many `letters` (default: all)")
	return cmd
}
