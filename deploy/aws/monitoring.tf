# The signal as metrics, and alarms that a person should hear of.

locals {
  namespace = "Proctor/${var.name}"
  signals = {
    DemandTrials  = { value = "$.trials", unit = "Count" }
    WaitingTrials = { value = "$.waiting", unit = "Count" }
    OldestSeconds = { value = "$.oldest_s", unit = "Seconds" }
    WantedWorkers = { value = "$.wanted_workers", unit = "Count" }
  }
}

resource "aws_cloudwatch_log_group" "signal" {
  name              = "/${var.name}/signal"
  retention_in_days = var.keep_days
  kms_key_id        = aws_kms_key.this.arn
}

resource "aws_cloudwatch_log_metric_filter" "signal" {
  for_each       = local.signals
  name           = each.key
  log_group_name = aws_cloudwatch_log_group.signal.name
  pattern        = "{ ${each.value.value} = * }"

  metric_transformation {
    namespace = local.namespace
    name      = each.key
    value     = each.value.value
    unit      = each.value.unit
  }
}

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = aws_kms_key.this.arn
}

resource "aws_sns_topic_subscription" "email" {
  count     = var.alarm_email == "" ? 0 : 1
  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = var.alarm_email
}

locals {
  alarms = {
    no-server = {
      what       = "No healthy server behind the balancer."
      namespace  = "AWS/ApplicationELB", metric = "HealthyHostCount", stat = "Minimum", above = false, limit = 1, missing = "breaching"
      dimensions = { LoadBalancer = aws_lb.this.arn_suffix, TargetGroup = aws_lb_target_group.server.arn_suffix }
    }
    no-signal = {
      what       = "The demand is not published: workers do not follow it."
      namespace  = local.namespace, metric = "DemandTrials", stat = "SampleCount", above = false, limit = 1, missing = "breaching"
      dimensions = {}
    }
    trials-wait = {
      what       = "Trials have waited for a worker for half an hour: is worker_max reached?"
      namespace  = local.namespace, metric = "OldestSeconds", stat = "Maximum", above = true, limit = 1800, missing = "notBreaching"
      dimensions = {}
    }
    database-disk = {
      what       = "The database has less than 10 GB left."
      namespace  = "AWS/RDS", metric = "FreeStorageSpace", stat = "Minimum", above = false, limit = 10000000000, missing = "missing"
      dimensions = { DBInstanceIdentifier = aws_db_instance.this.identifier }
    }
    database-cpu = {
      what       = "The database's processors are busy: take a larger class."
      namespace  = "AWS/RDS", metric = "CPUUtilization", stat = "Average", above = true, limit = 85, missing = "missing"
      dimensions = { DBInstanceIdentifier = aws_db_instance.this.identifier }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "of" {
  for_each            = local.alarms
  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.what
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.stat
  comparison_operator = each.value.above ? "GreaterThanThreshold" : "LessThanThreshold"
  threshold           = each.value.limit
  period              = 60
  evaluation_periods  = 5
  treat_missing_data  = each.value.missing
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}
