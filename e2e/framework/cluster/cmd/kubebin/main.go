// Command kubebin makes the programs of the control plane that e2e uses, or
// finds them made, and prints the folder that holds them.
//
//	go run ./e2e/framework/cluster/cmd/kubebin
//	PATH=$(go run ./e2e/framework/cluster/cmd/kubebin):$PATH kubectl version
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster/kubebin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubebin:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	options := kubebin.Options{Progress: os.Stderr, Live: term.IsTerminal(int(os.Stderr.Fd()))}
	var source, platform string
	var version, check, prune bool
	cmd := &cobra.Command{
		Use:   "kubebin",
		Short: "Make the programs of the Kubernetes release that this repository is tested with",
		Long: `Make etcd, kube-apiserver, kube-controller-manager, kubectl (and on Linux
kubelet, kube-proxy, kubeadm) of one pinned release and print the folder that
holds them. They are built from source through the Go module proxy, once, into
the user's cache; the first time takes minutes. ` + kubebin.EnvAssets + `, if set, names
a folder with programs to use instead.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.Source, err = kubebin.FindSource(source); err != nil {
				return err
			}
			if platform != "" {
				var ok bool
				if options.Platform.OS, options.Platform.Arch, ok = strings.Cut(platform, "/"); !ok {
					return fmt.Errorf("--platform %q: want os/arch, as linux/arm64", platform)
				}
			}
			out := cmd.OutOrStdout()
			if version {
				_, err = fmt.Fprintln(out, options.Source.Kubernetes)
				return err
			}
			if prune {
				deleted, err := kubebin.Prune(cmd.Context(), options)
				for _, path := range deleted {
					fmt.Fprintln(out, "deleted", path)
				}
				return err
			}
			get := kubebin.Ensure
			if check {
				get = kubebin.Cached
			}
			assets, err := get(cmd.Context(), options)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out, assets.Dir)
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&version, "print-version", false, "print the release of Kubernetes and do nothing else")
	flags.BoolVar(&check, "check", false, "fail instead of building or downloading")
	flags.BoolVar(&prune, "prune", false, "delete older builds from the cache and do nothing else")
	flags.BoolVar(&options.Download, "download", false, "download programs instead of building them (needs github.com and dl.k8s.io)")
	flags.StringVar(&options.CacheDir, "cache-dir", "", "folder to keep programs in (default: ccm-from-scratch/kubernetes in the user's cache)")
	flags.StringVar(&platform, "platform", "", "os/arch to build for (default: this machine's)")
	flags.StringVar(&source, "source", ".", "a folder inside the repository's checkout")
	return cmd
}
