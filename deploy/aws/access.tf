# Who may talk to whom: people to the balancer, it to the server, server and workers to what they share.

locals {
  # A group for each; the rules below say all that passes between them.
  groups = {
    balancer = "HTTPS from people"
    server   = "the API and the page"
    workers  = "what executes trials"
    database = "PostgreSQL"
    broker   = "Redis or RabbitMQ"
  }
  broker_port = var.broker == "redis" ? 6379 : 5671
  inside = {
    server_from_balancer  = { to = "server", from = "balancer", port = 8640 }
    database_from_server  = { to = "database", from = "server", port = 5432 }
    database_from_workers = { to = "database", from = "workers", port = 5432 }
    broker_from_server    = { to = "broker", from = "server", port = local.broker_port }
    broker_from_workers   = { to = "broker", from = "workers", port = local.broker_port }
    balancer_from_workers = { to = "balancer", from = "workers", port = 443 }
  }
}

resource "aws_security_group" "of" {
  #checkov:skip=CKV2_AWS_5:Each is attached, by its name: see balancer.tf, server.tf, workers.tf, database.tf and broker.tf.
  for_each    = local.groups
  name        = "${var.name}-${each.key}"
  description = "${var.name}: ${each.value}"
  vpc_id      = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "people" {
  for_each          = toset(var.allowed_cidrs)
  security_group_id = aws_security_group.of["balancer"].id
  description       = "HTTPS from ${each.value}"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_ingress_rule" "inside" {
  for_each                     = local.inside
  security_group_id            = aws_security_group.of[each.value.to].id
  referenced_security_group_id = aws_security_group.of[each.value.from].id
  description                  = "${each.value.from} to ${each.value.to}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

resource "aws_vpc_security_group_egress_rule" "inside" {
  for_each                     = { for name, rule in local.inside : name => rule if rule.from == "balancer" }
  security_group_id            = aws_security_group.of[each.value.from].id
  referenced_security_group_id = aws_security_group.of[each.value.to].id
  description                  = "${each.value.from} to ${each.value.to}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}

# Webhooks, sign-in, models and tasks with a public network go wherever people send them.
resource "aws_vpc_security_group_egress_rule" "out" {
  for_each          = toset(["server", "workers"])
  security_group_id = aws_security_group.of[each.value].id
  description       = "to anywhere"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
