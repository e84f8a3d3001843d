# The store. Its password is made here, kept in Secrets Manager and nowhere else.

ephemeral "aws_secretsmanager_random_password" "database" {
  password_length     = 40
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret" "database" {
  #checkov:skip=CKV2_AWS_57:Rotated by hand: server and workers read it when they start (docs/how-to/operate.md).
  name_prefix = "${var.name}-database-"
  kms_key_id  = aws_kms_key.this.arn
}

resource "aws_secretsmanager_secret_version" "database" {
  secret_id                = aws_secretsmanager_secret.database.id
  secret_string_wo         = ephemeral.aws_secretsmanager_random_password.database.random_password
  secret_string_wo_version = 1
}

# Workers have a role of their own (`proctor db worker-role`): accounts, tokens and keys are not theirs to read.
ephemeral "aws_secretsmanager_random_password" "worker_database" {
  password_length     = 40
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret" "worker_database" {
  #checkov:skip=CKV2_AWS_57:Rotated by hand: the server gives it to the role, and workers read it, when they start.
  name_prefix = "${var.name}-worker-database-"
  kms_key_id  = aws_kms_key.this.arn
}

resource "aws_secretsmanager_secret_version" "worker_database" {
  secret_id                = aws_secretsmanager_secret.worker_database.id
  secret_string_wo         = ephemeral.aws_secretsmanager_random_password.worker_database.random_password
  secret_string_wo_version = 1
}

ephemeral "aws_secretsmanager_secret_version" "database" {
  secret_id = aws_secretsmanager_secret_version.database.secret_id
}

resource "aws_db_subnet_group" "this" {
  name       = var.name
  subnet_ids = aws_subnet.private[*].id
}

resource "aws_db_parameter_group" "this" {
  name   = var.name
  family = "postgres16"

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  # Statements that took long, and every change of the schema; never their values.
  parameter {
    name  = "log_min_duration_statement"
    value = "1000"
  }

  parameter {
    name  = "log_statement"
    value = "ddl"
  }
}

resource "aws_db_instance" "this" {
  #checkov:skip=CKV_AWS_161:Proctor signs in with a password, which is in Secrets Manager alone.
  identifier                      = var.name
  engine                          = "postgres"
  engine_version                  = "16"
  instance_class                  = var.database_class
  db_name                         = "proctor"
  username                        = "proctor"
  password_wo                     = ephemeral.aws_secretsmanager_secret_version.database.secret_string
  password_wo_version             = aws_secretsmanager_secret_version.database.secret_string_wo_version
  allocated_storage               = var.database_gb
  max_allocated_storage           = var.database_gb * 4
  storage_type                    = "gp3"
  storage_encrypted               = true
  kms_key_id                      = aws_kms_key.this.arn
  multi_az                        = true
  db_subnet_group_name            = aws_db_subnet_group.this.name
  parameter_group_name            = aws_db_parameter_group.this.name
  vpc_security_group_ids          = [aws_security_group.of["database"].id]
  backup_retention_period         = min(var.keep_days, 35)
  copy_tags_to_snapshot           = true
  auto_minor_version_upgrade      = true
  deletion_protection             = var.protect
  skip_final_snapshot             = !var.protect
  final_snapshot_identifier       = "${var.name}-last"
  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]
  performance_insights_enabled    = true
  performance_insights_kms_key_id = aws_kms_key.this.arn
  monitoring_interval             = 60
  monitoring_role_arn             = aws_iam_role.monitoring.arn
}
