package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newSnapshotCommand returns the commands that save a running cloud, and load a snapshot into one.
func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "Save all that a running cloud has to a file, or load such a file into it"}
	control := cmd.PersistentFlags().String("control", "127.0.0.1:4243", "address of the control API, `host:port`")
	add := func(use, short, done string, do func(context.Context, *remote.Client, string) error) {
		run := func(cmd *cobra.Command, args []string) error {
			url, err := controlURL(*control)
			if err == nil {
				err = do(cmd.Context(), remote.New(url), args[0])
			}
			if err != nil {
				return fmt.Errorf("snapshot: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), done, args[0])
			return err
		}
		cmd.AddCommand(&cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: run})
	}
	add("save FILE", "Save all that the cloud has, with its secrets, to a file that only its owner may read", "saved", saveSnapshot)
	add("load FILE", "Replace all that the cloud has by a file of snapshot save", "loaded", loadSnapshot)
	return cmd
}

// saveSnapshot writes the file as a whole: after an error, the old one is unchanged.
func saveSnapshot(ctx context.Context, cloud *remote.Client, path string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := cloud.Save(ctx, file); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func loadSnapshot(ctx context.Context, cloud *remote.Client, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return cloud.Restore(ctx, file)
}
