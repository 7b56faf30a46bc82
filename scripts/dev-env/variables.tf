variable "name" {
  description = "Beginning of the names of everything."
  type        = string
  default     = "ccm-dev"

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", var.name))
    error_message = "Must be lower-case letters, digits and hyphens, at most 32, and begin with a letter."
  }
}

variable "join" {
  description = "How servers join: k3s makes a cluster with a control plane; kubeadm joins the simulated cluster of make up."
  type        = string
  default     = "k3s"

  validation {
    condition     = contains(["k3s", "kubeadm"], var.join)
    error_message = "Must be k3s or kubeadm."
  }
}

variable "existing_network" {
  description = "Name of a network that servers are attached to in addition to their own. Only for join=kubeadm: the network of the simulated cluster's nodes."
  type        = string
  default     = "kind"
}

variable "location" {
  description = "Location of the servers."
  type        = string
  default     = "fsn1"

  validation {
    condition     = contains(["fsn1", "nbg1", "hel1", "ash", "hil", "sin"], var.location)
    error_message = "Must be one of fsn1, nbg1, hel1, ash, hil, sin."
  }
}

variable "server_type" {
  description = "Type of the servers. It must be available in the location."
  type        = string
  default     = "cx23"
}

variable "image" {
  description = "Image of the servers: Ubuntu or Debian."
  type        = string
  default     = "ubuntu-24.04"
}

variable "workers" {
  description = "Number of worker nodes."
  type        = number
  default     = 2

  validation {
    condition     = var.workers >= 1 && var.workers <= 10 && floor(var.workers) == var.workers
    error_message = "Must be a whole number from 1 to 10."
  }
}

variable "k3s_version" {
  description = "Release of k3s."
  type        = string
  default     = "v1.34.1+k3s1"

  validation {
    condition     = can(regex("^v[0-9]+\\.[0-9]+\\.[0-9]+\\+k3s[0-9]+$", var.k3s_version))
    error_message = "Must be a release of k3s, such as v1.34.1+k3s1."
  }
}

variable "cilium_version" {
  description = "Version of the Helm chart of Cilium, which connects pods without an overlay: the network's routes carry their packets."
  type        = string
  default     = "1.18.2"
}

variable "network_range" {
  description = "Range of the private network. It contains the ranges of the servers and of the pods."
  type        = string
  default     = "10.0.0.0/8"

  validation {
    condition     = can(cidrnetmask(var.network_range)) && try(tonumber(split("/", var.network_range)[1]), 0) <= 12
    error_message = "Must be an IPv4 range of at least a /12."
  }
}

variable "servers_range" {
  description = "Range of the servers' private addresses, a part of network_range."
  type        = string
  default     = "10.1.0.0/24"

  validation {
    condition     = can(cidrhost(var.servers_range, 100))
    error_message = "Must be an IPv4 range of at least a /25."
  }
}

variable "pod_range" {
  description = "Range of the pods' addresses, a part of network_range. Each node gets a /24 of it, and a route of the network."
  type        = string
  default     = "10.244.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.pod_range, 8, 255))
    error_message = "Must be an IPv4 range of at least a /16."
  }
}

variable "service_range" {
  description = "Range of the Services' cluster addresses. No other network may use it."
  type        = string
  default     = "10.96.0.0/16"
}

variable "allowed_ranges" {
  description = "Ranges from which the Kubernetes API and SSH can be reached."
  type        = list(string)
  default     = ["0.0.0.0/0", "::/0"]

  validation {
    condition     = length(var.allowed_ranges) > 0 && alltrue([for r in var.allowed_ranges : can(cidrhost(r, 0))])
    error_message = "Must be at least one range, such as 203.0.113.7/32."
  }
}

variable "ssh_public_key" {
  description = "Your SSH key, in the format of authorized_keys. If it is empty, a key is made that nothing uses: without one, the cloud mails passwords."
  type        = string
  default     = ""
}
