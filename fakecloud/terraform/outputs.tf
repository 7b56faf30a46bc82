output "address" {
  description = "Where the load balancer is reached."
  value       = hcloud_load_balancer.web.ipv4
}

output "servers" {
  description = "The private addresses of the servers."
  value       = { for s in hcloud_server.web : s.name => one(s.network).ip }
}

output "first" {
  description = "The id of the first server."
  value       = hcloud_server.web[0].id
}
