# What wakes workers. Nothing is kept in it: the store has the queue, and the server fills an empty broker anew.

resource "aws_elasticache_subnet_group" "this" {
  count      = var.broker == "redis" ? 1 : 0
  name       = var.name
  subnet_ids = aws_subnet.private[*].id
}

resource "aws_elasticache_replication_group" "this" {
  count                      = var.broker == "redis" ? 1 : 0
  replication_group_id       = var.name
  description                = "${var.name}: wakes workers"
  engine                     = "redis"
  engine_version             = "7.1"
  node_type                  = var.broker_type
  num_cache_clusters         = 2
  automatic_failover_enabled = true
  multi_az_enabled           = true
  subnet_group_name          = aws_elasticache_subnet_group.this[0].name
  security_group_ids         = [aws_security_group.of["broker"].id]
  at_rest_encryption_enabled = true
  kms_key_id                 = aws_kms_key.this.arn
  transit_encryption_enabled = true
  auth_token                 = var.broker_password
}

resource "aws_mq_broker" "this" {
  #checkov:skip=CKV_AWS_209:Nothing is kept in it but wake-ups without content; Amazon's own key encrypts those.
  #checkov:skip=CKV_AWS_197:RabbitMQ has no audit log in Amazon MQ.
  count                      = var.broker == "rabbitmq" ? 1 : 0
  broker_name                = var.name
  engine_type                = "RabbitMQ"
  engine_version             = "3.13"
  host_instance_type         = var.rabbitmq_type
  deployment_mode            = "CLUSTER_MULTI_AZ"
  subnet_ids                 = aws_subnet.private[*].id
  security_groups            = [aws_security_group.of["broker"].id]
  auto_minor_version_upgrade = true
  publicly_accessible        = false

  logs {
    general = true
  }

  user {
    username = "proctor"
    password = var.broker_password
  }
}

locals {
  broker_address = var.broker == "redis" ? (
    "rediss://:${var.broker_password}@${aws_elasticache_replication_group.this[0].primary_endpoint_address}:6379/0?ssl_cert_reqs=required"
    ) : replace(
    aws_mq_broker.this[0].instances[0].endpoints[0], "amqps://", "amqps://proctor:${var.broker_password}@"
  )
}

resource "aws_secretsmanager_secret" "broker" {
  #checkov:skip=CKV2_AWS_57:Rotated by hand: server and workers read it when they start (docs/how-to/operate.md).
  name_prefix = "${var.name}-broker-"
  kms_key_id  = aws_kms_key.this.arn
}

resource "aws_secretsmanager_secret_version" "broker" {
  secret_id                = aws_secretsmanager_secret.broker.id
  secret_string_wo         = local.broker_address
  secret_string_wo_version = 1
}
