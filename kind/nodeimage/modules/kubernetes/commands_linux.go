package main

import (
	"context"

	"k8s.io/component-base/cli"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The programs of a node run on Linux only. The embedded control plane does not
// need them, also on macOS.
func init() {
	commands["kube-proxy"] = func() int { return cli.Run(kubeproxy.NewProxyCommand()) }
	commands["kubelet"] = func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }
	commands["kubeadm"] = func() int {
		kubectlutil.CheckErr(kubeadm.Run())
		return 0
	}
}
