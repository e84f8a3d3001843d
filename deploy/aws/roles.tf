# What each part may do with AWS: blobs, its own secrets, its own logs.

locals {
  roles = {
    server     = "ecs-tasks.amazonaws.com"
    start      = "ecs-tasks.amazonaws.com"
    workers    = "ec2.amazonaws.com"
    flows      = "vpc-flow-logs.amazonaws.com"
    monitoring = "monitoring.rds.amazonaws.com"
  }
  secrets = {
    database        = aws_secretsmanager_secret.database.arn
    worker_database = aws_secretsmanager_secret.worker_database.arn
    broker          = aws_secretsmanager_secret.broker.arn
    key             = aws_secretsmanager_secret.key.arn
    worker_token    = aws_secretsmanager_secret.worker_token.arn
  }
}

data "aws_iam_policy_document" "assume" {
  for_each = local.roles

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = [each.value]
    }
  }
}

resource "aws_iam_role" "server" {
  name               = "${var.name}-server"
  assume_role_policy = data.aws_iam_policy_document.assume["server"].json
}

resource "aws_iam_role" "start" {
  name               = "${var.name}-start"
  assume_role_policy = data.aws_iam_policy_document.assume["start"].json
}

resource "aws_iam_role" "workers" {
  name               = "${var.name}-workers"
  assume_role_policy = data.aws_iam_policy_document.assume["workers"].json
}

resource "aws_iam_role" "flows" {
  name               = "${var.name}-flows"
  assume_role_policy = data.aws_iam_policy_document.assume["flows"].json
}

resource "aws_iam_role" "monitoring" {
  name               = "${var.name}-monitoring"
  assume_role_policy = data.aws_iam_policy_document.assume["monitoring"].json
}

resource "aws_iam_role_policy_attachment" "monitoring" {
  role       = aws_iam_role.monitoring.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonRDSEnhancedMonitoringRole"
}

data "aws_iam_policy_document" "blobs" {
  statement {
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.blobs.arn]
  }

  statement {
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = ["${aws_s3_bucket.blobs.arn}/blobs/*"]
  }

  statement {
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [aws_kms_key.this.arn]
  }
}

# ECS reads secrets, pulls the image and writes logs before the server runs; the server itself may not.
data "aws_iam_policy_document" "start" {
  #checkov:skip=CKV_AWS_356:A login to the registry has no resource to name.
  statement {
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [local.secrets.database, local.secrets.worker_database, local.secrets.broker, local.secrets.key]
  }

  statement {
    actions   = ["kms:Decrypt"]
    resources = [aws_kms_key.this.arn]
  }

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.server.arn}:*", "${aws_cloudwatch_log_group.signal.arn}:*"]
  }

  statement {
    actions   = ["ecr:GetAuthorizationToken"]
    resources = ["*"]
  }

  statement {
    actions   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    resources = ["arn:aws:ecr:${var.region}:${local.account}:repository/*"]
  }
}

data "aws_iam_policy_document" "workers" {
  statement {
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [local.secrets.worker_database, local.secrets.broker, local.secrets.worker_token]
  }

  statement {
    actions   = ["s3:GetObject"]
    resources = ["${aws_s3_bucket.blobs.arn}/install/*"]
  }

  # A worker that is to go says when it has finished.
  statement {
    actions   = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
    resources = ["arn:aws:autoscaling:${var.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/${var.name}-workers"]
  }

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.workers.arn}:*"]
  }
}

data "aws_iam_policy_document" "flows" {
  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
    resources = ["${aws_cloudwatch_log_group.flows.arn}:*"]
  }
}

resource "aws_iam_role_policy" "server" {
  name   = "blobs"
  role   = aws_iam_role.server.id
  policy = data.aws_iam_policy_document.blobs.json
}

resource "aws_iam_role_policy" "start" {
  name   = "start"
  role   = aws_iam_role.start.id
  policy = data.aws_iam_policy_document.start.json
}

resource "aws_iam_role_policy" "workers_blobs" {
  name   = "blobs"
  role   = aws_iam_role.workers.id
  policy = data.aws_iam_policy_document.blobs.json
}

resource "aws_iam_role_policy" "workers" {
  name   = "work"
  role   = aws_iam_role.workers.id
  policy = data.aws_iam_policy_document.workers.json
}

resource "aws_iam_role_policy" "flows" {
  name   = "logs"
  role   = aws_iam_role.flows.id
  policy = data.aws_iam_policy_document.flows.json
}

resource "aws_iam_instance_profile" "workers" {
  name = "${var.name}-workers"
  role = aws_iam_role.workers.name
}
