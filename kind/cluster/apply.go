package cluster

import (
	"context"
	"fmt"
	"io"
)

// Apply makes the cluster have the objects of a YAML stream, by server-side apply. It uses
// the kubectl of the control plane's node, so that none is needed on this host.
func (c *Cluster) Apply(ctx context.Context, manifest io.Reader) error {
	_, err := onNodeIn(ctx, manifest, c.ControlPlane(), "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf",
		"apply", "--server-side", "--force-conflicts", "--field-manager=ccm-from-scratch", "--filename=-")
	if err != nil {
		return fmt.Errorf("applying a manifest: %w", err)
	}
	return nil
}
