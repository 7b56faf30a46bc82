# The real provider, and the cloud that HCLOUD_ENDPOINT names. With a mock, none of these values could be wrong.

provider "hcloud" {
  poll_interval = "100ms"
}

run "servers_behind_a_load_balancer" {
  assert {
    condition     = output.servers == { web-1 = "10.0.1.10", web-2 = "10.0.1.11" }
    error_message = "the servers have other addresses in the network"
  }

  assert {
    condition     = can(cidrhost("${output.address}/32", 0))
    error_message = "the load balancer has no IPv4 address"
  }

  assert {
    condition     = alltrue([for s in hcloud_server.web : s.status == "running"])
    error_message = "a server does not run"
  }

  assert {
    condition     = alltrue([for s in hcloud_server.web : contains(s.firewall_ids, tonumber(hcloud_firewall.web.id))])
    error_message = "a server has no firewall"
  }

  assert {
    condition     = hcloud_load_balancer_network.web.ip == "10.0.1.2"
    error_message = "the load balancer has another address in the network"
  }
}

run "one_more_server" {
  variables {
    servers = 3
  }

  assert {
    condition     = output.servers["web-3"] == "10.0.1.12" && hcloud_server.web[0].id == run.servers_behind_a_load_balancer.first
    error_message = "the third server is not added to the two that exist"
  }
}

run "no_server" {
  command = plan

  variables {
    servers = 0
  }

  expect_failures = [var.servers]
}
