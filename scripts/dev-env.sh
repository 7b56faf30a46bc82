#!/usr/bin/env bash
# A cluster of servers in the cloud to develop the CCM against: scripts/dev-env/README.md. It needs Terraform or OpenTofu.
#
#	HCLOUD_TOKEN=… scripts/dev-env.sh up      # creates it, and prints how to use it
#	HCLOUD_TOKEN=… scripts/dev-env.sh down    # removes all of it
#
# Flags after the command go to `terraform apply`, such as -var=workers=3.
set -euo pipefail
cd "$(dirname "$0")/dev-env"
command=${1:-}
shift || true
case $command in
up | down) ;;
*)
	echo "usage: scripts/dev-env.sh up|down [flags of terraform apply]" >&2
	exit 2
	;;
esac
terraform=$(command -v terraform || command -v tofu || true)
if [ -z "$terraform" ]; then
	echo "neither terraform nor tofu is installed: https://developer.hashicorp.com/terraform/install, or https://opentofu.org/docs/intro/install" >&2
	exit 1
fi
if [ -z "${HCLOUD_TOKEN:-}" ]; then
	echo "HCLOUD_TOKEN is not set: create a token that may read and write in the project at https://console.hetzner.com" >&2
	exit 1
fi
# The state contains keys of the cluster. It lies outside of the checkout.
state=${XDG_STATE_HOME:-$HOME/.local/state}/ccm-from-scratch/dev-env
mkdir -p "$state"
chmod 700 "$state"
export TF_DATA_DIR=$state/terraform
"$terraform" init -input=false -backend-config="path=$state/terraform.tfstate" >&2
if [ "$command" = down ]; then
	"$terraform" destroy -auto-approve -input=false "$@" >&2
	rm -f "$state/kubeconfig"
	echo "load balancers that Services have made are not part of it: delete the Services before the cluster" >&2
	exit
fi
"$terraform" apply -auto-approve -input=false "$@" >&2
(umask 077 && "$terraform" output -raw kubeconfig >"$state/kubeconfig")
echo "# The nodes become Ready once a cloud-controller-manager has initialized them: scripts/dev-env/README.md"
[ -s "$state/kubeconfig" ] && echo "export KUBECONFIG='$state/kubeconfig'"
echo "export HCLOUD_NETWORK='$("$terraform" output -raw network)' CLUSTER_CIDR='$("$terraform" output -raw pod_range)'"
