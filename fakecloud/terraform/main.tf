locals {
  range  = "10.0.1.0/24"
  labels = { role = var.name }
}

resource "hcloud_network" "web" {
  name     = var.name
  ip_range = "10.0.0.0/16"
}

resource "hcloud_network_subnet" "web" {
  network_id   = hcloud_network.web.id
  type         = "cloud"
  network_zone = "eu-central"
  ip_range     = local.range
}

# It filters the public addresses. The load balancer reaches the servers in the network.
resource "hcloud_firewall" "web" {
  name = var.name

  rule {
    description = "SSH"
    direction   = "in"
    protocol    = "tcp"
    port        = "22"
    source_ips  = ["0.0.0.0/0", "::/0"]
  }
}

resource "hcloud_server" "web" {
  count        = var.servers
  name         = "${var.name}-${count.index + 1}"
  server_type  = var.server_type
  image        = "debian-13"
  location     = var.location
  labels       = local.labels
  firewall_ids = [hcloud_firewall.web.id]

  network {
    network_id = hcloud_network.web.id
    ip         = cidrhost(local.range, 10 + count.index)
    alias_ips  = []
  }

  # The network alone is not enough: a server needs a subnet.
  depends_on = [hcloud_network_subnet.web]
}

resource "hcloud_load_balancer" "web" {
  name               = var.name
  load_balancer_type = "lb11"
  location           = var.location
}

resource "hcloud_load_balancer_network" "web" {
  load_balancer_id = hcloud_load_balancer.web.id
  subnet_id        = hcloud_network_subnet.web.id
  ip               = cidrhost(local.range, 2)
}

resource "hcloud_load_balancer_service" "web" {
  load_balancer_id = hcloud_load_balancer.web.id
  protocol         = "http"
  listen_port      = 80
  destination_port = 8080

  health_check {
    protocol = "http"
    port     = 8080
    interval = 10
    timeout  = 5
    retries  = 3

    http {
      path         = "/healthz"
      status_codes = ["200"]
    }
  }
}

resource "hcloud_load_balancer_target" "web" {
  load_balancer_id = hcloud_load_balancer.web.id
  type             = "label_selector"
  label_selector   = "role=${var.name}"
  use_private_ip   = true

  # A target with a private address needs the load balancer to be in the network.
  depends_on = [hcloud_load_balancer_network.web]
}
