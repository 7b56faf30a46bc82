// Package testcontainers runs the simulated cloud in a container that ends with the test:
//
//	cloud, err := testcontainers.Run(ctx, "ghcr.io/ccm-from-scratch/fakecloud:v0.1.0")
//	defer tc.TerminateContainer(cloud)
//	client := hcloud.NewClient(hcloud.WithEndpoint(cloud.APIEndpoint), hcloud.WithToken(cloud.Token))
//
// Until the first release, make image builds the image fakecloud:dev.
package testcontainers

import (
	"context"
	"fmt"

	tc "github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Token is the token of the containers' default project. It has 64 characters, because some clients check that.
const Token = "fakecloudfakecloudfakecloudfakecloudfakecloudfakecloudfakecloud0"

const apiPort, controlPort = "4242/tcp", "4243/tcp"

// Container is a running cloud.
type Container struct {
	*tc.DockerContainer
	// APIEndpoint is HCLOUD_ENDPOINT, and Token HCLOUD_TOKEN.
	APIEndpoint, Token string
	// ControlURL is the URL of the control API, such as for package fakecloud/remote.
	ControlURL string
}

// Run starts an image of fakecloud and returns when it is ready, with both of its ports on free ports of the host. The variables of
// tc.WithEnv are the program's flags, such as FAKECLOUD_RATE_LIMIT. Like tc.Run, it may return a container and an error:
// tc.TerminateContainer takes both.
func Run(ctx context.Context, image string, opts ...tc.ContainerCustomizer) (*Container, error) {
	opts = append([]tc.ContainerCustomizer{
		tc.WithExposedPorts(apiPort, controlPort),
		tc.WithEnv(map[string]string{"FAKECLOUD_CONTROL": ":4243", "FAKECLOUD_TOKEN": Token}),
		tc.WithWaitStrategy(wait.ForExec([]string{"/fakecloud", "health"})),
	}, opts...)
	container, err := tc.Run(ctx, image, opts...)
	if container == nil {
		return nil, fmt.Errorf("fakecloud: %w", err)
	}
	c := &Container{DockerContainer: container, Token: Token}
	if err == nil {
		c.APIEndpoint, err = container.PortEndpoint(ctx, apiPort, "http")
		c.APIEndpoint += "/v1"
	}
	if err == nil {
		c.ControlURL, err = container.PortEndpoint(ctx, controlPort, "http")
	}
	if err != nil {
		return c, fmt.Errorf("fakecloud: %w", err)
	}
	return c, nil
}
