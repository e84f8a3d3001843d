output "balancer" {
  description = "Name that the host name has to point at."
  value       = aws_lb.this.dns_name
}

output "address" {
  description = "Where people find the server."
  value       = "https://${var.host}"
}

output "blobs" {
  description = "Bucket of the blobs."
  value       = aws_s3_bucket.blobs.id
}

output "server_log" {
  description = "Log group of the server; its first lines have the administrator's token, once."
  value       = aws_cloudwatch_log_group.server.name
}

output "worker_token_secret" {
  description = "Secret that gets a token with the scope `worker`."
  value       = aws_secretsmanager_secret.worker_token.arn
}
