package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{LogDir: "/tmp/kb/logs"})
	fmt.Println(time.Since(t), err)
	if err != nil {
		os.Exit(1)
	}
	fmt.Println("export KUBECONFIG=" + c.Kubeconfig)
	<-ctx.Done()
	t = time.Now()
	fmt.Println(c.Stop(), time.Since(t))
}
