// Package image builds the image of kind's nodes where no registry can be reached: from the Go module proxy and
// Debian's packages alone.
//
// The built image holds what kind's own holds: a Debian with systemd, kind's
// entrypoint and units (from kind's module), containerd, runc (Debian's), crictl
// and CNI plugins, kubelet, kubeadm and kubectl, and in containerd's store the
// images of the control plane, kube-proxy, CoreDNS and pause. Nothing in it
// knows of this project: package kind/cluster puts into running nodes what makes them servers of a cloud, whatever
// image they run.
//
// How it is put together: every program is compiled from a pinned module below
// modules/ (Kubernetes and etcd come from modules/kubernetes, the very program that
// the embedded cluster runs); debootstrap makes a file system, which takes root;
// from there on everything is done in Go on archives, without a container,
// without a chroot and without privileges (tree.go), and the result is handed
// to Docker with `docker load`.
//
// Left out, compared with kindest/node: kindnetd (clusters here have no overlay
// network), the local-path provisioner (the default StorageClass provisions
// nothing), iSCSI and NFS programs, the fuse-overlayfs snapshotter of rootless
// Docker, other architectures than the host's.
package image
