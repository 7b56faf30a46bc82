package fakecloud

import (
	"context"
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/plane"
)

// MetadataAddress is where servers of the real cloud reach the metadata service.
const MetadataAddress = "169.254.169.254:80"

// MetadataHandler returns the service from which a server reads about itself (API document, chapter Server Metadata).
// It finds the server by the source address of the request, which must be one of the server's public or private
// addresses. A request from another address gets 404.
//
// Reproduced: /hetzner/v1/metadata with all values, /hetzner/v1/metadata/… with each of the six values in the document,
// and /hetzner/v1/userdata, which cloud-init reads. Not modelled, because the document does not have them:
// network-config, public-keys and vendor_data, which cloud-init reads from the real service, and the paths of EC2.
// Inferred, not documented: a value that a server does not have (a public IPv4, user data) is empty with status 200,
// because cloud-init would retry a 404 for minutes.
//
// Several networks may have the same range, so that several servers may have the same private address. Then the answer
// is for the server in the network of Options.Router, or 404 if that option does not select one.
func (c *Cloud) MetadataHandler() http.Handler { return plane.Metadata(c.cloud, c.network) }

// StartMetadata listens on an address such as MetadataAddress, which this machine must have (see
// netdev.GiveLinkLocal), and serves the metadata there until Close. It returns the URL. Servers need a route to the
// address, for example 169.254.169.254/32 via this machine.
func (c *Cloud) StartMetadata(ctx context.Context, address string) (url string, err error) {
	if url, err = c.listen(ctx, address, c.MetadataHandler(), nil); err != nil {
		return "", err
	}
	return url + plane.MetadataPath, nil
}
