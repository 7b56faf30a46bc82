package environment

import (
	"context"
	"fmt"
	"net/url"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

// proxyPort is the port of the proxy in its container.
const proxyPort = "3128"

// outsideContainer is the name of the container that is outside of the cluster.
func outsideContainer(cluster string) string { return cluster + "-outside" }

// outside starts a container on the cluster's network that does not belong to the cluster. Its proxy leads this host there: on Docker
// Desktop, addresses of the network cannot be reached from the host. The container uses the probe's image, as pods of the nodes do.
func (o Options) outside(ctx context.Context, e *Environment) error {
	state, err := containerState(ctx, outsideContainer(e.Name))
	if err != nil {
		return err
	}
	if state != absent {
		if _, err := docker(ctx, "start", outsideContainer(e.Name)); err != nil { // one that runs keeps running
			return err
		}
		return e.openOutside(ctx)
	}
	if err := probeProgram.load(ctx, o.ProbeArchive); err != nil {
		return err
	}
	if _, err := docker(ctx, "run", "--detach", "--name", outsideContainer(e.Name), "--hostname", "outside",
		"--label", cluster.LabelCluster+"="+e.Name, "--net", e.Name, "--ip", e.Outside().String(), "--cap-drop=ALL",
		"--publish=127.0.0.1::"+proxyPort, probeProgram.image, "-proxy=:"+proxyPort); err != nil {
		return err
	}
	if err := e.LoadImage(ctx, o.ProbeArchive); err != nil {
		return err
	}
	return e.openOutside(ctx)
}

// openOutside routes the cloud's public addresses in the container that is outside, and finds the container.
func (e *Environment) openOutside(ctx context.Context) error {
	// The container's own image has no program for routes, that of the nodes has. Routes are gone when a container stops.
	if _, err := docker(ctx, "run", "--rm", "--net=container:"+outsideContainer(e.Name), "--user=0", "--cap-drop=ALL",
		"--cap-add=NET_ADMIN",
		"--entrypoint=ip", e.Image, "route", "replace", cluster.PublicIPv4.String(), "via", e.Router().String()); err != nil {
		return fmt.Errorf("routing the cloud's public addresses: %w", err)
	}
	return e.connectOutside(ctx)
}

// connectOutside finds the container that is outside.
func (e *Environment) connectOutside(ctx context.Context) error {
	address, err := published(ctx, outsideContainer(e.Name), proxyPort)
	if err != nil {
		return fmt.Errorf("the cluster has no outside: %w", err)
	}
	e.OutsideProxy, e.OutsideAddress = &url.URL{Scheme: "http", Host: address.String()}, e.Outside()
	return nil
}
