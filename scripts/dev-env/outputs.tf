output "kubeconfig" {
  description = "Access to the cluster as an administrator. Empty for join=kubeadm: the simulated cluster has its own."
  sensitive   = true
  value = local.has_cluster ? templatefile("${path.module}/kubeconfig.yaml.tftpl", {
    name   = var.name
    server = "https://${hcloud_primary_ip.control_plane[0].ip_address}:6443"
    ca     = base64encode(tls_self_signed_cert.authority["server"].cert_pem)
    cert   = base64encode(tls_locally_signed_cert.admin[0].cert_pem)
    key    = base64encode(tls_private_key.admin[0].private_key_pem)
  }) : ""
}

output "network" {
  description = "Name of the private network: HCLOUD_NETWORK of the cloud-controller-manager."
  value       = hcloud_network.main.name
}

output "pod_range" {
  description = "Range of the pods: --cluster-cidr of the cloud-controller-manager."
  value       = var.pod_range
}
