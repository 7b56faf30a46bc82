// Command nodeimage builds what a host without access to a container registry cannot get. It prints the name of an image
// for kind's nodes, which it has handed to Docker, or the folder of a Kubernetes control plane's programs. It also builds
// the image of the pods of Kubernetes' own specs (scripts/conformance.sh):
//
//	scripts/gorun.sh kind/nodeimage image        or: GOWORK=off go -C kind/nodeimage run . image
//	scripts/gorun.sh kind/nodeimage kubernetes
//	scripts/gorun.sh kind/nodeimage agnhost NAME
//
// What takes minutes is done once and kept in the user's cache; progress is shown on standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/image"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/kubernetes"
)

func main() {
	syscall.Umask(0o022) // everyone may read what is built
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node image:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	progress := &job.Progress{Out: os.Stderr}
	root := &cobra.Command{
		Use: "nodeimage", Short: "Build what cannot be pulled: an image for kind's nodes, a control plane's programs",
		SilenceUsage: true, SilenceErrors: true,
	}
	var mirror string
	node := &cobra.Command{
		Use: "image", Short: "Print the name of an image for kind's nodes, built once and handed to Docker", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := checkout(cmd.Context())
			if err != nil {
				return err
			}
			name, err := image.EnsureNode(cmd.Context(), image.Options{Root: at, Mirror: mirror, Progress: progress})
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return err
		},
	}
	node.Flags().StringVar(&mirror, "mirror", os.Getenv("NODE_IMAGE_MIRROR"),
		"`URL` of a Debian mirror (default NODE_IMAGE_MIRROR, else debootstrap's own)")
	plane := &cobra.Command{
		Use: "kubernetes", Short: "Print the folder with etcd, kube-apiserver, kube-controller-manager and kubectl", Args: cobra.NoArgs,
		Long: "Print the folder with etcd, kube-apiserver, kube-controller-manager and kubectl of one pinned release. They are\n" +
			"downloaded once, or built from source where their publishers cannot be reached. " + kubernetes.EnvAssets + ", if set,\n" +
			"names a folder with programs to use instead.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := checkout(cmd.Context())
			if err != nil {
				return err
			}
			programs, err := kubernetes.Ensure(cmd.Context(), kubernetes.Options{Root: at, Progress: progress})
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), programs.Dir)
			}
			return err
		},
	}
	agnhost := &cobra.Command{
		Use: "agnhost NAME", Short: "Build the image that Kubernetes' own specs run, and hand it to Docker under a name that they know",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := checkout(cmd.Context())
			if err != nil {
				return err
			}
			return image.EnsureAgnhost(cmd.Context(), args[0], image.Options{Root: at, Mirror: mirror, Progress: progress})
		},
	}
	agnhost.Flags().AddFlag(node.Flags().Lookup("mirror"))
	root.AddCommand(node, plane, agnhost)
	return root
}

// checkout returns the folder of the repository, which the working directory is in.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	module := strings.TrimSpace(string(out))
	root := filepath.Dir(module)
	if filepath.Base(root) == "nodeimage" {
		root = filepath.Dir(filepath.Dir(root))
	}
	if _, bad := os.Stat(filepath.Join(root, "kind", "nodeimage", "go.mod")); err != nil || bad != nil {
		return "", errors.Join(errors.New("run this in a folder of the checkout"), err, bad)
	}
	return root, nil
}
