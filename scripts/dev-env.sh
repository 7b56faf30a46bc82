#!/usr/bin/env bash
# A cluster of servers in the cloud to develop the CCM against: scripts/dev-env/README.md. It needs Terraform or OpenTofu.
#
#	HCLOUD_TOKEN=… scripts/dev-env.sh up      # creates it, and prints how to use it
#	HCLOUD_TOKEN=… scripts/dev-env.sh down    # removes all of it
#
# Flags after the command go to `terraform apply`, such as -var=workers=3. Before the cluster goes, its Services of type LoadBalancer are
# deleted, and the CCM deletes their load balancers; SERVICES=keep leaves all of that.
set -euo pipefail
cd "$(dirname "$0")/dev-env"
command=${1:-}
shift || true
fail() {
	echo "$1" >&2
	exit 1
}
case $command in
up | down) ;;
*) fail "usage: scripts/dev-env.sh up|down [flags of terraform apply]" ;;
esac
terraform=$(command -v terraform || command -v tofu) ||
	fail "neither terraform nor tofu is installed: https://developer.hashicorp.com/terraform/install, or https://opentofu.org/docs/intro/install"
[ -n "${HCLOUD_TOKEN:-}" ] ||
	fail "HCLOUD_TOKEN is not set: create a token that may read and write in the project at https://console.hetzner.com"
# The state contains keys of the cluster. It lies outside of the checkout.
state=${XDG_STATE_HOME:-$HOME/.local/state}/ccm-from-scratch/dev-env
mkdir -p "$state"
chmod 700 "$state"
export TF_DATA_DIR=$state/terraform

# Terraform does not know the load balancers of Services, and they cost money. Only the CCM can delete them.
if [ "$command" = down ] && [ -s "$state/kubeconfig" ] && [ "${SERVICES:-}" != keep ]; then
	left="SERVICES=keep make dev-env-down removes the cluster nevertheless; then delete its load balancers in the Cloud Console"
	export KUBECONFIG=$state/kubeconfig
	services=$(kubectl --request-timeout=20s get services --all-namespaces \
		-o 'jsonpath={range .items[?(@.spec.type=="LoadBalancer")]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}') ||
		fail "the cluster does not say which of its Services have load balancers: kubectl is needed, and an answer of the cluster; $left"
	for service in $services; do
		echo "deleting the Service $service and its load balancer" >&2
		kubectl delete service "${service#*/}" --namespace="${service%/*}" --ignore-not-found --timeout=2m >&2 ||
			fail "the Service $service still has its load balancer: have the CCM run, and repeat; $left"
	done
fi
"$terraform" init -input=false -backend-config="path=$state/terraform.tfstate" >&2
if [ "$command" = down ]; then
	"$terraform" destroy -auto-approve -input=false "$@" >&2
	rm -f "$state/kubeconfig"
	exit
fi
"$terraform" apply -auto-approve -input=false "$@" >&2
(umask 077 && "$terraform" output -raw kubeconfig >"$state/kubeconfig")
echo "# The nodes become Ready once a cloud-controller-manager has initialized them: scripts/dev-env/README.md"
echo "export KUBECONFIG='$state/kubeconfig' HCLOUD_NETWORK='$("$terraform" output -raw network)' CLUSTER_CIDR='$("$terraform" output -raw pod_range)'"
