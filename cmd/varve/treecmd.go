package main

import (
	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) tableTreeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree TABLE",
		Short: "List a table's tree of key ranges, and what lies on it",
		Long: "Lists the nodes of the table's tree of key ranges (varve.tree.split-bytes) with the files,\n" +
			"or parts of them, that lie on each, and their rows, dead ones too. A node with children is\n" +
			"divided: what lies on it is brought down. Which keys part the nodes is not shown. A table that\n" +
			"was never split is one node.",
		Example: "  varve table tree shop.orders\n  varve table tree shop.orders --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				if _, err := s.Table(cmd.Context(), args[0]); err != nil {
					return err
				}
				nodes, err := a.treeNodes(cmd, s, args[0])
				if err != nil {
					return err
				}
				out := a.list("node", "parent", "depth", "children", "files", "rows", "bytes", "jobs")
				for _, n := range nodes {
					if err := out.row(n.Node, known(n.Parent), n.Depth, n.Children, n.Files, n.Rows, byteSize(n.Bytes), n.Jobs); err != nil {
						return err
					}
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

func (a *app) treeNodes(cmd *cobra.Command, s *session, table string) ([]topology.TreeNode, error) {
	if s.node != nil {
		return s.node.Tree(cmd.Context(), table)
	}
	return topology.RequestTree(cmd.Context(), a.data, table)
}
