#!/bin/sh
# Puts the images that kubeadm and kind's containerd ask for into the store of a containerd. The Dockerfile runs it in a node that has
# /build/coredns and /build/pause. Nothing is unpacked: a snapshot on overlayfs cannot be part of a layer, so a node unpacks an image
# when it first starts a container of it.
set -eu
cd /build
containerd --config=/dev/null >containerd.log 2>&1 &
containerd=$!
until ctr version >/dev/null 2>&1; do
	kill -0 $containerd || { cat containerd.log && exit 1; }
	sleep 0.2
done

# image makes an image of the folder root: image ENTRYPOINT NAME... It is pinned, so that the kubelet never removes it to save room.
image() {
	entrypoint=$1 names=''
	shift
	for name; do names="$names${names:+,}\"$name\""; done
	tar -C root --mtime=@0 -cf layer.tar .
	cat >config.json <<-END
		{"architecture": "$(dpkg --print-architecture)", "os": "linux", "config": {"Entrypoint": ["$entrypoint"]},
		 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <layer.tar | cut -d ' ' -f 1)"]}}
	END
	echo "[{\"Config\": \"config.json\", \"RepoTags\": [$names], \"Layers\": [\"layer.tar\"]}]" >manifest.json
	tar -cf image.tar manifest.json config.json layer.tar
	ctr --namespace=k8s.io images import --local --no-unpack --all-platforms --label=io.cri-containerd.pinned=pinned image.tar
	rm -r root
}

# kubeadm is asked for its images, so that a move to another release forgets none.
kubernetes='' coredns='' pause=''
for name in $(kubeadm config images list --kubernetes-version="$(cat /kind/version)"); do
	case $name in
	*/coredns:*) coredns=$name ;;
	*/pause:*) pause=$name ;;
	*/kube-apiserver:* | */kube-controller-manager:* | */kube-scheduler:* | */kube-proxy:* | */etcd:*) kubernetes="$kubernetes $name" ;;
	*) echo "kubeadm asks for $name, which nothing here builds" && exit 1 ;;
	esac
done
sandbox=$(sed -n 's/^ *sandbox_image *= *"\(.*\)"/\1/p' /etc/containerd/config.toml)
built=$(./coredns -version | sed -n 's/^CoreDNS-/v/p')
[ "${coredns##*:}" = "$built" ] || { echo "kubeadm asks for $coredns, modules/node/go.mod pins $built" && exit 1; }

mkdir root && mv coredns root
image /coredns "$coredns"
mkdir root && mv pause root
# shellcheck disable=SC2046 # containerd asks for the one, kubeadm for the other, which may be the same
image /pause $(printf '%s\n' "$pause" "$sandbox" | sort -u)

# Kubernetes' own images are one under five names, as their programs are one program. kube-proxy runs iptables (its nftables flavour),
# nft, conntrack and modprobe. They need their libraries, and those of iptables' extensions, which are loaded at run time: without
# these, kube-proxy's rules are refused and Services lead nowhere, without a word.
mkdir -p root/usr/local/bin root/usr/bin root/usr/sbin root/usr/lib root/usr/lib64 root/etc root/run
mkdir -m 1777 root/tmp
for dir in bin sbin lib lib64; do ln -s usr/$dir root/$dir; done
ls /usr/sbin/xtables-nft-multi /usr/sbin/nft /usr/sbin/conntrack /usr/bin/kmod /usr/lib/*/xtables/*.so >tools
xargs ldd <tools | sed -n -E 's/^.*=> (\/[^ ]+) .*|^\s+(\/[^ ]+) .*/\1\2/p' | sort -u | cat tools - | xargs cp -L --parents -t root
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -s xtables-nft-multi root/usr/sbin/$name
done
ln -s ../bin/kmod root/usr/sbin/modprobe
for tool in 'iptables -m statistic --help' 'nft --version' 'conntrack --version' 'modprobe --version'; do
	chroot root $tool >/dev/null # it starts with what is there
done
cp /usr/bin/kubernetes root/usr/local/bin
for name in $kubernetes; do
	ln -s kubernetes "root/usr/local/bin/$(basename "${name%:*}")"
done
# shellcheck disable=SC2086 # a list of names
image /usr/local/bin/kubernetes $kubernetes

kill $containerd
wait $containerd
