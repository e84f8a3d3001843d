# The key that encrypts the keys of providers in the store, and the token with which workers ask for them.

ephemeral "aws_secretsmanager_random_password" "key" {
  password_length     = 64
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret" "key" {
  #checkov:skip=CKV2_AWS_57:What it encrypted could not be read after a rotation.
  name_prefix = "${var.name}-key-"
  kms_key_id  = aws_kms_key.this.arn
}

resource "aws_secretsmanager_secret_version" "key" {
  secret_id                = aws_secretsmanager_secret.key.id
  secret_string_wo         = ephemeral.aws_secretsmanager_random_password.key.random_password
  secret_string_wo_version = 1
}

# Empty until an administrator puts a token with the scope `worker` there; workers start without it too.
resource "aws_secretsmanager_secret" "worker_token" {
  #checkov:skip=CKV2_AWS_57:A token of Proctor's own; an administrator makes a new one and revokes the old.
  name_prefix = "${var.name}-worker-token-"
  kms_key_id  = aws_kms_key.this.arn
}
