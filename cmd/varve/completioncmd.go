package main

import "github.com/spf13/cobra"

func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for your shell",
		Example: "  varve completion bash > /etc/bash_completion.d/varve\n" +
			"  varve completion zsh > \"${fpath[1]}/_varve\"\n" +
			"  varve completion fish > ~/.config/fish/completions/varve.fish",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.out)
		},
	}
}
