#!/bin/sh
# Move the embedded control plane to another release of Kubernetes:
#
#	scripts/kube-bump.sh <kubernetes> <etcd>        as 1.36.3 3.6.8
#
# etcd's release is the one that this Kubernetes' kubeadm asks for
# (`kubeadm config images list`). The root module's k8s.io libraries move with it:
# a test fails until both name the same release. Needs the Go module proxy.
set -eu

fail() {
	echo "kube-bump: $*" >&2
	exit 1
}

[ $# -eq 2 ] || fail "usage: $0 <kubernetes> <etcd>, as 1.36.3 3.6.8"
for version in "$@"; do
	expr "$version" : '[0-9]*\.[0-9]*\.[0-9]*$' >/dev/null || fail "$version is no release, as 1.36.3 is"
done
kubernetes=v$1 libraries=v0.${1#*.} etcd=v$2
root=$(cd "$(dirname "$0")/.." && pwd)

cd "$root/kind/nodeimage/modules/kubernetes"
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
cp go.mod go.sum "$before/"
undo() {
	cp "$before/go.mod" "$before/go.sum" .
	fail "$1; go.mod and go.sum are as they were"
}
# Kubernetes 1.X.Y publishes its staging modules as 0.X.Y; its go.mod names them
# by folders of its repository, so each needs a replace line here.
GOFLAGS=-mod=mod go mod download "k8s.io/kubernetes@$kubernetes" || fail "there is no $kubernetes to download"
theirs=$(GOFLAGS=-mod=mod go list -m -f '{{.GoMod}}' "k8s.io/kubernetes@$kubernetes") || fail "cannot find its go.mod"
for module in $(sed -n -E 's#^[[:space:]]+(k8s\.io/[a-z-]+) => \./staging/.*#\1#p' "$theirs"); do
	go mod edit -replace="$module=$module@$libraries" || undo "editing go.mod failed"
done
go mod edit -require="k8s.io/kubernetes@$kubernetes" -require="go.etcd.io/etcd/server/v3@$etcd" \
	-require="k8s.io/client-go@$libraries" -require="k8s.io/component-base@$libraries" \
	-require="k8s.io/kubectl@$libraries" || undo "editing go.mod failed"
go mod tidy || undo "go mod tidy failed"

cd "$root"
go get "k8s.io/client-go@$libraries" "k8s.io/cloud-provider@$libraries" "k8s.io/component-base@$libraries"
echo "Kubernetes $kubernetes, etcd $etcd, libraries $libraries. Now run: go mod tidy && make kubernetes && go test ./e2e/framework/cluster/..."
