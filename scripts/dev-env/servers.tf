locals {
  control_plane_ip = cidrhost(var.servers_range, 10)
  worker_ips       = [for i in range(var.workers) : cidrhost(var.servers_range, 20 + i)]
  token            = sha256(tls_private_key.join.private_key_pem)
  has_cluster      = var.join == "k3s"

  # Cilium leaves the packets between nodes to the network: its routes are the work of the cloud-controller-manager.
  cilium = local.has_cluster ? templatefile("${path.module}/cloud-init/cilium.yaml.tftpl", {
    version   = var.cilium_version
    pod_range = var.pod_range
    api       = local.control_plane_ip
  }) : ""

  worker_user_data = [for ip in local.worker_ips : local.has_cluster ? templatefile("${path.module}/cloud-init/worker.yaml.tftpl", {
    version    = var.k3s_version
    token      = local.token
    api        = local.control_plane_ip
    private_ip = ip
  }) : file("${path.module}/cloud-init/kubeadm.yaml")]
}

# The address of the control plane is in its certificate and in the kubeconfig, so it is made before the server.
resource "hcloud_primary_ip" "control_plane" {
  count       = local.has_cluster ? 1 : 0
  name        = "${var.name}-control-plane"
  type        = "ipv4"
  location    = var.location
  auto_delete = false
  labels      = local.labels
}

resource "hcloud_server" "control_plane" {
  count        = local.has_cluster ? 1 : 0
  name         = "${var.name}-control-plane"
  server_type  = var.server_type
  image        = var.image
  location     = var.location
  ssh_keys     = [hcloud_ssh_key.main.id]
  firewall_ids = [hcloud_firewall.nodes.id]
  labels       = local.labels

  user_data = templatefile("${path.module}/cloud-init/control-plane.yaml.tftpl", {
    version       = var.k3s_version
    token         = local.token
    public_ip     = hcloud_primary_ip.control_plane[0].ip_address
    private_ip    = local.control_plane_ip
    pod_range     = var.pod_range
    service_range = var.service_range
    cilium        = local.cilium
    server_ca     = tls_self_signed_cert.authority["server"].cert_pem
    server_ca_key = tls_private_key.authority["server"].private_key_pem
    client_ca     = tls_self_signed_cert.authority["client"].cert_pem
    client_ca_key = tls_private_key.authority["client"].private_key_pem
  })

  public_net {
    ipv4_enabled = true
    ipv4         = hcloud_primary_ip.control_plane[0].id
    ipv6_enabled = true
  }

  network {
    network_id = hcloud_network_subnet.servers.network_id # after the subnet; subnet_id came later than 1.60
    ip         = local.control_plane_ip
    alias_ips  = []
  }
}

resource "hcloud_server" "worker" {
  count        = var.workers
  name         = "${var.name}-worker-${count.index + 1}"
  server_type  = var.server_type
  image        = var.image
  location     = var.location
  ssh_keys     = [hcloud_ssh_key.main.id]
  firewall_ids = [hcloud_firewall.nodes.id]
  labels       = local.labels
  user_data    = local.worker_user_data[count.index]

  public_net {
    ipv4_enabled = true
    ipv6_enabled = true
  }

  network {
    network_id = hcloud_network_subnet.servers.network_id # after the subnet; subnet_id came later than 1.60
    ip         = local.worker_ips[count.index]
    alias_ips  = []
  }

  dynamic "network" {
    for_each = data.hcloud_network.existing
    content {
      network_id = network.value.id
      alias_ips  = []
    }
  }
}
