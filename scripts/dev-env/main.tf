# A cluster without anything that a cloud-controller-manager does: README.md.

terraform {
  required_version = ">= 1.6"

  # scripts/dev-env.sh says where: outside of the checkout.
  backend "local" {}

  required_providers {
    hcloud = {
      source  = "hetznercloud/hcloud"
      version = ">= 1.62.0, < 2.0.0" # before, a Primary IP needed assignee_type, about which later ones warn
    }
    tls = {
      source  = "hashicorp/tls"
      version = ">= 4.0.5, < 5.0.0"
    }
  }
}

# HCLOUD_TOKEN and HCLOUD_ENDPOINT are read from the environment: neither is in a file, nor in the state.
provider "hcloud" {}

variable "name" {
  description = "Beginning of the names of everything."
  type        = string
  default     = "ccm-dev"
}

variable "location" {
  description = "Location of the servers."
  type        = string
  default     = "fsn1"
}

variable "server_type" {
  description = "Type of the servers. It must be available in the location."
  type        = string
  default     = "cx23"
}

variable "workers" {
  description = "Number of worker nodes."
  type        = number
  default     = 2
}

variable "k3s_version" {
  description = "Release of k3s."
  type        = string
  default     = "v1.34.1+k3s1"
}

variable "allowed_ranges" {
  description = "Ranges from which the Kubernetes API and SSH can be reached, such as 203.0.113.7/32."
  type        = list(string)
  default     = ["0.0.0.0/0", "::/0"]
}

variable "ssh_public_key" {
  description = "Your SSH key, in the format of authorized_keys. If it is empty, a key is made that nothing uses: without one, the cloud mails passwords."
  type        = string
  default     = ""
}

locals {
  labels    = { dev-env = var.name }
  pod_range = "10.244.0.0/16" # each node gets a /24 of it, and a route of the network
  api       = "10.1.0.10"     # the control plane in the private network

  nodes = merge({ control-plane = { role = "server", ip = local.api } }, {
    for i in range(var.workers) : "worker-${i + 1}" => { role = "agent", ip = cidrhost("10.1.0.0/24", 20 + i) }
  })

  # With the first, servers join the cluster. The second is the administrator's.
  secrets = { for use in ["join", "admin"] : use => sha256("${use} ${tls_private_key.authority.private_key_pem}") }

  k3s = {
    agent = { server = "https://${local.api}:6443" }
    server = {
      advertise-address  = local.api
      tls-san            = [hcloud_primary_ip.control_plane.ip_address, local.api]
      cluster-cidr       = local.pod_range
      kube-apiserver-arg = ["token-auth-file=/etc/rancher/k3s/tokens.csv"]
      node-taint         = ["node-role.kubernetes.io/control-plane:NoSchedule"]

      # What the cloud-controller-manager under development does, and Cilium.
      disable-cloud-controller = true
      disable-network-policy   = true
      disable                  = ["servicelb", "traefik", "local-storage", "metrics-server"]
      flannel-backend          = "none"
    }
  }

  # Cilium leaves the packets between nodes to the network: its routes are the work of the cloud-controller-manager.
  cilium = {
    apiVersion = "helm.cattle.io/v1"
    kind       = "HelmChart"
    metadata   = { name = "cilium", namespace = "kube-system" }
    spec = {
      repo            = "https://helm.cilium.io"
      chart           = "cilium"
      version         = "1.18.2"
      targetNamespace = "kube-system"
      bootstrap       = true # it runs while no node is ready, on the control plane
      valuesContent = yamlencode({
        routingMode           = "native"
        ipv4NativeRoutingCIDR = local.pod_range
        ipam                  = { mode = "kubernetes" }
        k8s                   = { requireIPv4PodCIDR = true }
        k8sServiceHost        = local.api
        k8sServicePort        = 6443
        operator              = { replicas = 1 }
      })
    }
  }

  # k3s uses the authority that it finds, and makes all other certificates itself.
  files = {
    agent = {}
    server = {
      "/var/lib/rancher/k3s/server/tls/server-ca.crt"     = tls_self_signed_cert.authority.cert_pem
      "/var/lib/rancher/k3s/server/tls/server-ca.key"     = tls_private_key.authority.private_key_pem
      "/var/lib/rancher/k3s/server/manifests/cilium.yaml" = yamlencode(local.cilium)
      "/etc/rancher/k3s/tokens.csv"                       = "${local.secrets.admin},admin,admin,system:masters\n"
    }
  }

  user_data = { for name, node in local.nodes : name => "#cloud-config\n${yamlencode({
    write_files = [for path, content in merge(local.files[node.role], {
      "/etc/rancher/k3s/config.yaml" = yamlencode(merge(local.k3s[node.role], {
        token       = local.secrets.join
        node-ip     = node.ip
        kubelet-arg = ["cloud-provider=external"]
      }))
    }) : { path = path, permissions = "0600", content = content }]
    runcmd = [
      # The private interface may come later than the first boot, and the control plane later than a worker.
      "until ip -4 -o addr | grep -qF ' ${node.ip}/'; do sleep 1; done",
      "[ ${node.role} = server ] || until curl -skf https://${local.api}:6443/cacerts >/dev/null; do sleep 2; done",
      "until curl -sfL https://get.k3s.io -o /tmp/k3s.sh; do sleep 2; done",
      "INSTALL_K3S_VERSION='${var.k3s_version}' sh /tmp/k3s.sh ${node.role}",
    ]
  })}" }
}

# With the authority and a secret, the kubeconfig is known before the cluster exists.
resource "tls_private_key" "authority" {
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_self_signed_cert" "authority" {
  private_key_pem       = tls_private_key.authority.private_key_pem
  is_ca_certificate     = true
  validity_period_hours = 24 * 365
  allowed_uses          = ["cert_signing", "key_encipherment", "digital_signature"]

  subject {
    common_name = "${var.name}-ca"
  }
}

resource "tls_private_key" "ssh" {
  algorithm = "ED25519"
}

resource "hcloud_ssh_key" "main" {
  name       = var.name
  public_key = var.ssh_public_key != "" ? var.ssh_public_key : trimspace(tls_private_key.ssh.public_key_openssh)
  labels     = local.labels
}

data "hcloud_location" "main" {
  name = var.location
}

resource "hcloud_network" "main" {
  name     = var.name
  ip_range = "10.0.0.0/8"
  labels   = local.labels
}

resource "hcloud_network_subnet" "servers" {
  network_id   = hcloud_network.main.id
  type         = "cloud"
  network_zone = data.hcloud_location.main.network_zone
  ip_range     = "10.1.0.0/24"
}

# It filters the public interfaces only: nodes reach each other, and load balancers reach nodes, in the private network.
resource "hcloud_firewall" "nodes" {
  name   = var.name
  labels = local.labels

  dynamic "rule" {
    for_each = { SSH = 22, "Kubernetes API" = 6443 }
    content {
      description = rule.key
      direction   = "in"
      protocol    = "tcp"
      port        = rule.value
      source_ips  = var.allowed_ranges
    }
  }
}

# The address of the control plane is in its certificate and in the kubeconfig, so it is made before the server.
resource "hcloud_primary_ip" "control_plane" {
  name        = "${var.name}-control-plane"
  type        = "ipv4"
  location    = var.location
  auto_delete = false
  labels      = local.labels
}

resource "hcloud_server" "node" {
  for_each     = local.nodes
  name         = "${var.name}-${each.key}"
  server_type  = var.server_type
  image        = "ubuntu-24.04"
  location     = var.location
  ssh_keys     = [hcloud_ssh_key.main.id]
  firewall_ids = [hcloud_firewall.nodes.id]
  labels       = local.labels

  user_data = local.user_data[each.key]

  public_net {
    ipv4_enabled = true
    ipv4         = each.value.role == "server" ? hcloud_primary_ip.control_plane.id : null
    ipv6_enabled = true
  }

  network {
    network_id = hcloud_network_subnet.servers.network_id # after the subnet; subnet_id came later than 1.60
    ip         = each.value.ip
    alias_ips  = []
  }
}

output "kubeconfig" {
  description = "Access to the cluster as an administrator."
  sensitive   = true
  value = yamlencode({
    apiVersion      = "v1"
    kind            = "Config"
    current-context = var.name
    clusters = [{ name = var.name, cluster = {
      server                     = "https://${hcloud_primary_ip.control_plane.ip_address}:6443"
      certificate-authority-data = base64encode(tls_self_signed_cert.authority.cert_pem)
    } }]
    contexts = [{ name = var.name, context = { cluster = var.name, user = "${var.name}-admin" } }]
    users    = [{ name = "${var.name}-admin", user = { token = local.secrets.admin } }]
  })
}

output "network" {
  description = "Name of the private network: HCLOUD_NETWORK of the cloud-controller-manager."
  value       = hcloud_network.main.name
}

output "pod_range" {
  description = "Range of the pods: --cluster-cidr of the cloud-controller-manager."
  value       = local.pod_range
}
