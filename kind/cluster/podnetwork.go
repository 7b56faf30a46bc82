package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
)

// What a node runs for its part of the pod network.
//
//go:embed files/pod-network.sh
var podNetworkScript []byte

//go:embed files/pod-network.service
var podNetworkUnit []byte

// podNetworkService is the unit's name.
const podNetworkService = "pod-network.service"

// installPodNetwork puts the service into a running node and starts it, without
// waiting for the pod CIDR that it waits for. It goes into every node the same
// way, whatever image the node runs, and stays there over restarts.
func (n Network) installPodNetwork(ctx context.Context, node string) error {
	files, err := n.podNetworkFiles()
	if err != nil {
		return err
	}
	_, err = onNodeIn(ctx, bytes.NewReader(files), node, "sh", "-ec",
		"tar -x -f - -C / && systemctl daemon-reload && systemctl enable --quiet "+podNetworkService+
			" && systemctl restart --no-block "+podNetworkService)
	if err != nil {
		return fmt.Errorf("installing the pod network on %s: %w", node, err)
	}
	return nil
}

// podNetworkFiles returns an archive of the files to unpack in a node's root.
func (n Network) podNetworkFiles() ([]byte, error) {
	settings := fmt.Appendf(nil, "CLUSTER_CIDR=%s\nSERVICE_CIDR=%s\nROUTER=%s\nMETADATA=%s\nPUBLIC=%s\n",
		n.PodCIDR, serviceCIDR, n.Router(), Metadata, PublicIPv4)
	var buf bytes.Buffer
	archive := tar.NewWriter(&buf)
	for _, file := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"etc/default/pod-network", 0o644, settings},
		{"etc/systemd/system/" + podNetworkService, 0o644, podNetworkUnit},
		{"usr/local/lib/pod-network/pod-network.sh", 0o755, podNetworkScript},
	} {
		header := tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content))}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(archive, bytes.NewReader(file.content)); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return buf.Bytes(), err
}
