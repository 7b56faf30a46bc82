package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newSnapshotCommand returns the commands that save a running cloud, and load a snapshot into one.
func newSnapshotCommand() *cobra.Command {
	cmd := newGroup("snapshot", "Save all that a running cloud has to a file, or load such a file into it")
	add := func(use, short, done string, do func(context.Context, *remote.Client, string) error) {
		run := func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			if err := do(cmd.Context(), cloud, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), done, args[0])
			return err
		}
		cmd.AddCommand(newClientCommand(use, short, arguments(1, 1), run))
	}
	add("save FILE", "Save all that the cloud has, with its secrets, to a file that only its owner may read", "saved", saveSnapshot)
	add("load FILE", "Replace all that the cloud has by a file of snapshot save", "loaded", loadSnapshot)
	return cmd
}

func saveSnapshot(ctx context.Context, cloud *remote.Client, path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s: is a directory; name a file in it", path)
	}
	return replaceFile(path, func(w io.Writer) error { return cloud.Save(ctx, w) })
}

func loadSnapshot(ctx context.Context, cloud *remote.Client, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s: is a directory; name a file of fakecloud snapshot save", path)
	}
	err = cloud.Restore(ctx, file)
	if answer, ok := errors.AsType[*remote.Error](err); ok {
		answer.Message = strings.Replace(answer.Message, "snapshot: ", path+": ", 1)
	}
	return err
}
