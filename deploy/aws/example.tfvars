# Copy it, fill it in, and keep the password elsewhere: TF_VAR_broker_password.
host            = "bench.example.org"
certificate_arn = "arn:aws:acm:eu-central-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"
server_image    = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/proctor-server@sha256:DIGEST" # as `podman push --digestfile` wrote it
wheel           = "../../dist/proctor_bench-0.1.0-py3-none-any.whl"
alarm_email     = "operators@example.org"
