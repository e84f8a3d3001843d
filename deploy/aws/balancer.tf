# HTTPS for people; the server behind it speaks plain HTTP inside the network.

resource "aws_lb" "this" {
  #checkov:skip=CKV2_AWS_28:Every request needs a token or a session, and a firewall's limits on bodies would refuse uploads of tasks.
  name                       = var.name
  internal                   = var.internal
  load_balancer_type         = "application"
  subnets                    = var.internal ? aws_subnet.private[*].id : aws_subnet.public[*].id
  security_groups            = [aws_security_group.of["balancer"].id]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.protect
  idle_timeout               = 300 # streams of events are quiet for a while

  access_logs {
    bucket  = aws_s3_bucket.logs.id
    prefix  = "balancer"
    enabled = true
  }

  depends_on = [aws_s3_bucket_policy.of]
}

resource "aws_lb_target_group" "server" {
  #checkov:skip=CKV_AWS_378:TLS ends at the balancer; the two talk within private subnets.
  name                 = var.name
  port                 = 8640
  protocol             = "HTTP"
  target_type          = "ip"
  vpc_id               = aws_vpc.this.id
  deregistration_delay = 30

  health_check {
    path                = "/readyz"
    matcher             = "200"
    interval            = 15
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }
}

resource "aws_lb_listener" "https" {
  load_balancer_arn = aws_lb.this.arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.server.arn
  }
}
