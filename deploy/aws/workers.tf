# Workers on EC2: sandboxes need a kernel of their own to ask for namespaces. They come and go with the demand.

resource "aws_cloudwatch_log_group" "workers" {
  name              = "/${var.name}/workers"
  retention_in_days = var.keep_days
  kms_key_id        = aws_kms_key.this.arn
}

data "aws_ami" "debian" {
  count       = var.worker_image == "" ? 1 : 0
  most_recent = true
  owners      = ["136693071363"] # Debian

  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

locals {
  worker_group = "${var.name}-workers"
  worker_hook  = "drain"
  user_data = templatefile("${path.module}/worker/start.sh.tftpl", {
    region       = var.region
    slots        = var.worker_slots
    store        = local.worker_store
    blobs        = local.blobs
    url          = "https://${var.host}"
    database     = aws_secretsmanager_secret.worker_database.arn
    broker       = aws_secretsmanager_secret.broker.arn
    worker_token = aws_secretsmanager_secret.worker_token.arn
    wheel        = "s3://${aws_s3_bucket.blobs.id}/${aws_s3_object.install["wheel"].key}"
    lock         = "s3://${aws_s3_bucket.blobs.id}/${aws_s3_object.install["lock"].key}"
    group        = local.worker_group
    hook         = local.worker_hook
    most_s       = var.drain_hours * 3600
    unit         = file("${path.module}/../systemd/proctor-worker.service")
    drain        = file("${path.module}/worker/drain.sh")
    drain_unit   = file("${path.module}/worker/proctor-drain.service")
  })
}

resource "aws_launch_template" "workers" {
  name_prefix            = "${local.worker_group}-"
  image_id               = var.worker_image == "" ? data.aws_ami.debian[0].id : var.worker_image
  instance_type          = var.worker_type
  user_data              = base64gzip(local.user_data)
  update_default_version = true
  ebs_optimized          = true

  iam_instance_profile {
    arn = aws_iam_instance_profile.workers.arn
  }

  network_interfaces {
    associate_public_ip_address = false
    security_groups             = [aws_security_group.of["workers"].id]
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  monitoring {
    enabled = true
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_size = var.worker_disk_gb
      volume_type = "gp3"
      encrypted   = true
      kms_key_id  = aws_kms_key.this.arn
    }
  }

  tag_specifications {
    resource_type = "instance"
    tags          = { Name = local.worker_group, application = var.name }
  }
}

resource "aws_autoscaling_group" "workers" {
  name                      = local.worker_group
  min_size                  = var.worker_min
  max_size                  = var.worker_max
  vpc_zone_identifier       = aws_subnet.private[*].id
  health_check_type         = "EC2"
  health_check_grace_period = 300
  default_instance_warmup   = 180
  enabled_metrics           = ["GroupInServiceInstances", "GroupDesiredCapacity", "GroupTerminatingInstances"]
  termination_policies      = ["NewestInstance"]
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.workers.id
    version = aws_launch_template.workers.latest_version
  }

  # Before an instance goes its worker drains; drain.sh renews the time and says when it is done.
  initial_lifecycle_hook {
    name                 = local.worker_hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = 600
    default_result       = "CONTINUE"
  }

  # A new wheel or unit: instances are replaced one after the other, each when its trials are done.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 90
      instance_warmup        = 180
    }
  }

  tag {
    key                 = "Name"
    value               = local.worker_group
    propagate_at_launch = true
  }
}

# Demand per instance in service is kept at the number of trials that one executes at a time.
resource "aws_autoscaling_policy" "demand" {
  name                   = "demand"
  autoscaling_group_name = aws_autoscaling_group.workers.name
  policy_type            = "TargetTrackingScaling"

  target_tracking_configuration {
    target_value = var.worker_slots

    customized_metric_specification {
      metrics {
        id          = "per_worker"
        expression  = "IF(workers > 0, demand / workers, demand)"
        return_data = true
      }

      metrics {
        id          = "demand"
        return_data = false

        metric_stat {
          stat = "Maximum"

          metric {
            namespace   = local.namespace
            metric_name = "DemandTrials"
          }
        }
      }

      metrics {
        id          = "workers"
        return_data = false

        metric_stat {
          stat = "Average"

          metric {
            namespace   = "AWS/AutoScaling"
            metric_name = "GroupInServiceInstances"

            dimensions {
              name  = "AutoScalingGroupName"
              value = aws_autoscaling_group.workers.name
            }
          }
        }
      }
    }
  }
}
