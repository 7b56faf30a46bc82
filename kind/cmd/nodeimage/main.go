// Command nodeimage makes sure that Docker has an image for kind's nodes, and
// prints its name: kind's own where it can be pulled, else one that is built
// from the Go module proxy and Debian's packages (once; minutes).
//
//	go run ./kind/cmd/nodeimage
//	NODE_IMAGE=build go run ./kind/cmd/nodeimage
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage"
)

func main() {
	var o nodeimage.Options
	mode := flag.String("image", cmp.Or(os.Getenv("NODE_IMAGE"), string(nodeimage.Auto)),
		"auto, pull, build, or the `name` of an image; the default is NODE_IMAGE")
	flag.StringVar(&o.Mirror, "mirror", os.Getenv("NODE_IMAGE_MIRROR"), "`URL` of a Debian mirror; the default is NODE_IMAGE_MIRROR, else debootstrap's own")
	flag.StringVar(&o.CacheDir, "cache-dir", "", "`folder` that keeps built images (default: the user's cache)")
	flag.Parse()
	o.Mode, o.Progress = nodeimage.Mode(*mode), os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name, err := nodeimage.Ensure(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodeimage:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}
