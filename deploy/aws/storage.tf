# Blobs and the workers' wheel in one bucket, access logs in another.

resource "aws_s3_bucket" "blobs" {
  #checkov:skip=CKV_AWS_144:One region: results are exported, not served from two.
  #checkov:skip=CKV2_AWS_62:Nothing waits for events of it.
  bucket_prefix = "${var.name}-blobs-"
  force_destroy = !var.protect
}

resource "aws_s3_bucket" "logs" {
  #checkov:skip=CKV_AWS_144:Access logs, for a while.
  #checkov:skip=CKV2_AWS_62:Nothing waits for events of it.
  #checkov:skip=CKV_AWS_18:It is where access logs go.
  #checkov:skip=CKV_AWS_145:The balancer writes its access logs only with S3's own key.
  bucket_prefix = "${var.name}-logs-"
  force_destroy = !var.protect
}

locals {
  buckets = { blobs = aws_s3_bucket.blobs.id, logs = aws_s3_bucket.logs.id }
}

resource "aws_s3_bucket_public_access_block" "of" {
  for_each                = local.buckets
  bucket                  = each.value
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "of" {
  for_each = local.buckets
  bucket   = each.value

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "blobs" {
  bucket = aws_s3_bucket.blobs.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.this.arn
    }
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "logs" {
  bucket = aws_s3_bucket.logs.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

# A blob is named by its content and never changes: an old version is one that Proctor cleared.
resource "aws_s3_bucket_lifecycle_configuration" "blobs" {
  bucket = aws_s3_bucket.blobs.id

  rule {
    id     = "cleared"
    status = "Enabled"
    filter {}

    noncurrent_version_expiration {
      noncurrent_days = 30
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "logs" {
  bucket = aws_s3_bucket.logs.id

  rule {
    id     = "old"
    status = "Enabled"
    filter {}

    expiration {
      days = var.keep_days
    }

    noncurrent_version_expiration {
      noncurrent_days = 1
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }
}

resource "aws_s3_bucket_logging" "blobs" {
  bucket        = aws_s3_bucket.blobs.id
  target_bucket = aws_s3_bucket.logs.id
  target_prefix = "blobs/"
  depends_on    = [aws_s3_bucket_policy.of]
}

data "aws_iam_policy_document" "bucket" {
  for_each = local.buckets

  statement {
    sid       = "OnlyTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = ["arn:aws:s3:::${each.value}", "arn:aws:s3:::${each.value}/*"]

    principals {
      type        = "AWS"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  dynamic "statement" {
    for_each = each.key == "logs" ? ["logdelivery.elasticloadbalancing.amazonaws.com", "logging.s3.amazonaws.com"] : []

    content {
      actions   = ["s3:PutObject"]
      resources = ["arn:aws:s3:::${each.value}/*"]

      principals {
        type        = "Service"
        identifiers = [statement.value]
      }

      condition {
        test     = "StringEquals"
        variable = "aws:SourceAccount"
        values   = [local.account]
      }
    }
  }
}

resource "aws_s3_bucket_policy" "of" {
  for_each   = local.buckets
  bucket     = each.value
  policy     = data.aws_iam_policy_document.bucket[each.key].json
  depends_on = [aws_s3_bucket_public_access_block.of, aws_s3_object.install]
}

locals {
  lock = var.lock == "" ? "${path.module}/../../requirements/image.lock" : var.lock
}

resource "aws_s3_object" "install" {
  for_each    = { wheel = var.wheel, lock = local.lock }
  bucket      = aws_s3_bucket.blobs.id
  key         = "install/${filemd5(each.value)}/${basename(each.value)}"
  source      = each.value
  kms_key_id  = aws_kms_key.this.arn
  source_hash = filemd5(each.value)
}
