variable "token" {
  type = string
}

variable "size" {
  type = number
}

output "token" {
  value = "t-${var.token}"
}

output "size" {
  value = var.size
}

agent "helper" {
  model    = "small"
  handoffs = [agent.other]
}

agent "other" {
  model    = "small"
  handoffs = [agent.helper]
}
