variable "name" {
  description = "The name of the network and the load balancer, and the beginning of the servers' names."
  type        = string
  default     = "web"
}

variable "location" {
  description = "Where the servers and the load balancer are; it must be in the network zone eu-central."
  type        = string
  default     = "fsn1"
}

variable "server_type" {
  description = "The type of the servers."
  type        = string
  default     = "cx23"
}

variable "servers" {
  description = "How many servers are behind the load balancer."
  type        = number
  default     = 2

  validation {
    condition     = var.servers >= 1
    error_message = "must be at least 1: a load balancer without a target answers nothing"
  }
}
