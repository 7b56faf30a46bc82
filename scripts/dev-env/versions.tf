terraform {
  required_version = ">= 1.6"

  # scripts/dev-env.sh says where: outside of the checkout.
  backend "local" {}

  required_providers {
    hcloud = {
      source  = "hetznercloud/hcloud"
      version = ">= 1.62.0, < 2.0.0" # before, a Primary IP needed assignee_type, about which later ones warn
    }
    # Makes the certificate authorities, so that the kubeconfig is known without a login on any server.
    tls = {
      source  = "hashicorp/tls"
      version = ">= 4.0.5, < 5.0.0"
    }
  }
}

# HCLOUD_TOKEN and HCLOUD_ENDPOINT are read from the environment: neither is in a file, nor in the state.
provider "hcloud" {}
