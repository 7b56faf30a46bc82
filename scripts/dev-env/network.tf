locals {
  zones = {
    fsn1 = "eu-central", nbg1 = "eu-central", hel1 = "eu-central"
    ash  = "us-east", hil = "us-west", sin = "ap-southeast"
  }
  labels = {
    dev-env = var.name
  }
}

resource "hcloud_network" "main" {
  name     = var.name
  ip_range = var.network_range
  labels   = local.labels
}

resource "hcloud_network_subnet" "servers" {
  network_id   = hcloud_network.main.id
  type         = "cloud"
  network_zone = local.zones[var.location]
  ip_range     = var.servers_range
}

data "hcloud_network" "existing" {
  count = var.join == "kubeadm" ? 1 : 0
  name  = var.existing_network
}

# It filters the public interfaces only: nodes reach each other, and load balancers reach nodes, in the private network.
resource "hcloud_firewall" "nodes" {
  name   = var.name
  labels = local.labels

  rule {
    description = "ping"
    direction   = "in"
    protocol    = "icmp"
    source_ips  = ["0.0.0.0/0", "::/0"]
  }

  rule {
    description = "SSH"
    direction   = "in"
    protocol    = "tcp"
    port        = "22"
    source_ips  = var.allowed_ranges
  }

  rule {
    description = "Kubernetes API"
    direction   = "in"
    protocol    = "tcp"
    port        = "6443"
    source_ips  = var.allowed_ranges
  }
}
