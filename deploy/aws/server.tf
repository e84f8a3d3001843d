# The server on ECS: API, page and coordination. It executes no trial, so it needs no right that a sandbox would.

locals {
  # sslmode=require: encrypted, and the address is one that only this network resolves.
  store        = "postgresql://proctor@${aws_db_instance.this.address}:5432/proctor?sslmode=require"
  worker_store = "postgresql://proctor_worker@${aws_db_instance.this.address}:5432/proctor?sslmode=require"
  blobs        = "s3://${aws_s3_bucket.blobs.id}/blobs?region=${var.region}"

  environment = [for name, value in {
    PROCTOR_STORE      = local.store
    PROCTOR_BLOBS      = local.blobs
    PROCTOR_SERVE_URL  = "https://${var.host}"
    PROCTOR_HOME       = "/var/lib/proctor/home"
    AWS_DEFAULT_REGION = var.region
  } : { name = name, value = value }]

  # libpq reads PGPASSWORD, so that no address contains the password.
  server_secrets = [for name, arn in {
    PGPASSWORD         = local.secrets.database
    PROCTOR_BROKER     = local.secrets.broker
    PROCTOR_SECRET_KEY = local.secrets.key
  } : { name = name, valueFrom = arn }]

  container = {
    image                  = var.server_image
    essential              = true
    readonlyRootFilesystem = true
    environment            = local.environment
    secrets                = local.server_secrets
    mountPoints            = [{ sourceVolume = "home", containerPath = "/var/lib/proctor" }, { sourceVolume = "tmp", containerPath = "/tmp" }]
    linuxParameters        = { initProcessEnabled = true }
  }
}

resource "aws_cloudwatch_log_group" "server" {
  name              = "/${var.name}/server"
  retention_in_days = var.keep_days
  kms_key_id        = aws_kms_key.this.arn
}

resource "aws_ecs_cluster" "this" {
  name = var.name

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_ecs_task_definition" "server" {
  family                   = "${var.name}-server"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.server_cpu
  memory                   = var.server_memory_mb
  task_role_arn            = aws_iam_role.server.arn
  execution_role_arn       = aws_iam_role.start.arn

  ephemeral_storage {
    size_in_gib = 100
  }

  volume {
    name = "home"
  }

  volume {
    name = "tmp"
  }

  container_definitions = jsonencode([
    merge(local.container, {
      name         = "server"
      dependsOn    = [{ containerName = "role", condition = "SUCCESS" }]
      command      = ["serve", "--host", "0.0.0.0", "--port", "8640", "--allow-host", var.host]
      portMappings = [{ containerPort = 8640, protocol = "tcp" }]
      stopTimeout  = 30
      healthCheck = {
        command     = ["CMD", "python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8640/livez', timeout=4)"]
        interval    = 15
        timeout     = 5
        retries     = 4
        startPeriod = 60
      }
      logConfiguration = {
        logDriver = "awslogs"
        options   = { awslogs-group = aws_cloudwatch_log_group.server.name, awslogs-region = var.region, awslogs-stream-prefix = "server" }
      }
    }),
    # Brings the schema up to date, and the role of workers with it; then the server starts.
    merge(local.container, {
      name      = "role"
      essential = false
      command   = ["db", "worker-role", "proctor_worker"]
      secrets   = concat(local.server_secrets, [{ name = "WORKER_PASSWORD", valueFrom = local.secrets.worker_database }])
      logConfiguration = {
        logDriver = "awslogs"
        options   = { awslogs-group = aws_cloudwatch_log_group.server.name, awslogs-region = var.region, awslogs-stream-prefix = "role" }
      }
    }),
    # A line of JSON every half minute; a filter makes the metric of it by which workers are added and taken away.
    merge(local.container, {
      name      = "signal"
      essential = false
      command   = ["queue", "--slots", tostring(var.worker_slots), "--every", "30"]
      dependsOn = [{ containerName = "server", condition = "HEALTHY" }]
      logConfiguration = {
        logDriver = "awslogs"
        options   = { awslogs-group = aws_cloudwatch_log_group.signal.name, awslogs-region = var.region, awslogs-stream-prefix = "signal" }
      }
    }),
  ])
}

resource "aws_ecs_service" "server" {
  name                               = "server"
  cluster                            = aws_ecs_cluster.this.id
  task_definition                    = aws_ecs_task_definition.server.arn
  desired_count                      = 1
  launch_type                        = "FARGATE"
  platform_version                   = "LATEST"
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  health_check_grace_period_seconds  = 120
  propagate_tags                     = "SERVICE"

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = aws_subnet.private[*].id
    security_groups  = [aws_security_group.of["server"].id]
    assign_public_ip = false
  }

  load_balancer {
    target_group_arn = aws_lb_target_group.server.arn
    container_name   = "server"
    container_port   = 8640
  }

  depends_on = [aws_lb_listener.https]
}
