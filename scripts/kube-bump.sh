#!/bin/sh
# Move every module of the repository to another release of Kubernetes:
#
#	scripts/kube-bump.sh <kubernetes>        such as 1.37.1
#
# It sets the release of Kubernetes, the k8s.io libraries, controller-runtime with envtest, Helm,
# and the releases of etcd and CoreDNS that this Kubernetes' kubeadm asks for. kind follows its own releases:
# raise it by hand when its default node image is of this minor. A test in scripts/house
# fails while any of them is of another minor. Needs the Go module proxy.
set -eu

fail() {
	echo "kube-bump: $*" >&2
	exit 1
}

[ $# -eq 1 ] && expr "$1" : '1\.[0-9]*\.[0-9]*$' >/dev/null || fail "usage: $0 <kubernetes>, such as 1.37.1"
kubernetes=v$1 libraries=v0.${1#*.}
minor=${1#*.} minor=${minor%.*}
cd "$(dirname "$0")/.."

before=$(mktemp -d)
moved=
for module in . e2e e2e/hetzner kind/nodeimage kind/nodeimage/modules/kubernetes kind/nodeimage/modules/node; do
	moved="$moved $module/go.mod $module/go.sum"
done
moved="$moved scripts/tool.sh e2e/PORTING.md"
# shellcheck disable=SC2086 # a list of files
tar -cf "$before/modules.tar" $moved
undo() {
	code=$?
	if [ $code -ne 0 ]; then
		tar -xf "$before/modules.tar" && echo "kube-bump: failed; the modules are as they were" >&2
	fi
	rm -rf "$before"
	exit $code
}
trap undo EXIT
settings=$(go run ./scripts/modproxy "$before/modproxy")
eval "$settings"
export GOFLAGS="$GOFLAGS -mod=mod"

(
	cd kind/nodeimage/modules/kubernetes
	go mod download "k8s.io/kubernetes@$kubernetes"
	# Kubernetes 1.X.Y publishes its staging modules as 0.X.Y, but its go.mod names them by folders
	# of its repository. Each needs a replace line here.
	theirs=$(go list -m -f '{{.GoMod}}' "k8s.io/kubernetes@$kubernetes")
	for module in $(sed -n -E 's#^[[:space:]]+(k8s\.io/[a-z-]+) => \./staging/.*#\1#p' "$theirs"); do
		go mod edit -replace="$module=$module@$libraries"
	done
	go mod edit -require="k8s.io/kubernetes@$kubernetes" -require="k8s.io/client-go@$libraries" \
		-require="k8s.io/component-base@$libraries" -require="k8s.io/kubectl@$libraries"
)
constants=$(cd kind/nodeimage/modules/kubernetes && go list -m -f '{{.Dir}}' k8s.io/kubernetes)/cmd/kubeadm/app/constants/constants.go
# constant prints the release that a constant of kubeadm holds, without "v" and the image's revision.
constant() { sed -n -E "s/^[[:space:]]*$1 = \"v?([0-9.]+)(-[0-9]+)?\"/\1/p" "$constants"; }
etcd=$(constant DefaultEtcdVersion) coredns=$(constant CoreDNSVersion)
[ -n "$etcd" ] && [ -n "$coredns" ] || fail "$constants does not name etcd's and CoreDNS' releases where they used to be"

(cd kind/nodeimage/modules/kubernetes && go mod edit -require="go.etcd.io/etcd/server/v3@v$etcd" && go mod tidy)
(cd kind/nodeimage/modules/node && go get "github.com/coredns/coredns@v$coredns" && go mod tidy)
# controller-runtime 0.N is made for Kubernetes 1.(N+12). Helm has no such rule, its newest release must do.
for module in e2e . e2e/hetzner; do
	(
		cd $module
		# shellcheck disable=SC2046 # a list of modules
		go get "sigs.k8s.io/controller-runtime@v0.$((minor - 12))" \
			$(sed -n -E "s#^[[:space:]]+(k8s\.io/[a-z-]+) v0\.[0-9]+\.[0-9]+( .*)?\$#\1@$libraries#p" go.mod)
		go mod tidy
	)
done
# Go compiles a library once for Kubernetes and for this repository if both use the same release of it.
# Tidying raises what Kubernetes needs newer than this repository has it.
go list -m -f '{{if not .Main}}-require={{.Path}}@{{.Version}}{{end}}' all >"$before/own"
(
	cd kind/nodeimage/modules/kubernetes
	for library in $(awk '$1 ~ /[.].*\// && $2 ~ /^v[0-9]/ {print $1}' go.mod); do
		same=$(grep "^-require=$library@" "$before/own") && go mod edit "$same"
	done
	go mod tidy
)
(cd kind/nodeimage && go get "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.$((minor - 12))" && go mod tidy)
for module in helm.sh/helm/v4 sigs.k8s.io/controller-tools; do
	newest=$(go list -m -f '{{.Version}}' "$module@latest")
	sed -i.orig -E "s#($module/cmd/[a-z-]+)@v[0-9.]+#\1@$newest#" scripts/tool.sh && rm scripts/tool.sh.orig
done
for module in . e2e/hetzner; do # as scripts/tidy.sh says
	sed -i.orig '/^github.com\/ccm-from-scratch\//d' $module/go.sum && rm $module/go.sum.orig
done
envtest=$(awk '$1 ~ /setup-envtest$/ {print $2; exit}' kind/nodeimage/go.mod)
sed -i.orig -E "s#(setup-envtest@)v[0-9.]+( use --print=path )[0-9.]+#\1$envtest\2${kubernetes#v}#; s#(dl\.k8s\.io/)v[0-9.]+/#\1$kubernetes/#" \
	e2e/PORTING.md && rm e2e/PORTING.md.orig
echo "Kubernetes $kubernetes, libraries $libraries, etcd $etcd, CoreDNS $coredns. Now run: make kubernetes && go test ./scripts/house ./e2e/framework/cluster"
