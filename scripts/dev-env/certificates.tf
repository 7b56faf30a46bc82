# k3s uses the authorities that it finds, and makes all other certificates itself. With them the kubeconfig can be written
# before the cluster exists.

locals {
  authorities = var.join == "k3s" ? toset(["server", "client"]) : toset([])
}

resource "tls_private_key" "authority" {
  for_each    = local.authorities
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_self_signed_cert" "authority" {
  for_each              = local.authorities
  private_key_pem       = tls_private_key.authority[each.key].private_key_pem
  is_ca_certificate     = true
  validity_period_hours = 24 * 365
  allowed_uses          = ["cert_signing", "key_encipherment", "digital_signature"]

  subject {
    common_name = "${var.name}-${each.key}-ca"
  }
}

resource "tls_private_key" "admin" {
  count       = var.join == "k3s" ? 1 : 0
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_cert_request" "admin" {
  count           = var.join == "k3s" ? 1 : 0
  private_key_pem = tls_private_key.admin[0].private_key_pem

  subject {
    common_name  = "admin"
    organization = "system:masters"
  }
}

resource "tls_locally_signed_cert" "admin" {
  count                 = var.join == "k3s" ? 1 : 0
  cert_request_pem      = tls_cert_request.admin[0].cert_request_pem
  ca_private_key_pem    = tls_private_key.authority["client"].private_key_pem
  ca_cert_pem           = tls_self_signed_cert.authority["client"].cert_pem
  validity_period_hours = 24 * 365
  allowed_uses          = ["client_auth", "digital_signature", "key_encipherment"]
}

# The secret with which servers join the cluster is derived from this key.
resource "tls_private_key" "join" {
  algorithm = "ED25519"
}

resource "tls_private_key" "ssh" {
  algorithm = "ED25519"
}

resource "hcloud_ssh_key" "main" {
  name       = var.name
  public_key = var.ssh_public_key != "" ? var.ssh_public_key : trimspace(tls_private_key.ssh.public_key_openssh)
  labels     = local.labels
}
