# Every variable has a default but these: certificate_arn, server_image, wheel, host, broker_password.

variable "name" {
  description = "Name of the installation; the beginning of the name of everything that is made."
  type        = string
  default     = "proctor"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "Use 3 to 20 small letters, digits and hyphens, beginning with a letter."
  }
}

variable "region" {
  description = "AWS region."
  type        = string
  default     = "eu-central-1"
}

variable "host" {
  description = "Host name under which people reach the server, for instance bench.example.org. Point it at the output `balancer`."
  type        = string
}

variable "certificate_arn" {
  description = "ARN of the ACM certificate of that host name, in the same region."
  type        = string
}

variable "server_image" {
  description = "Image of the server by its digest, in a registry that ECS reaches: deploy/images/Containerfile, target server."
  type        = string

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.server_image))
    error_message = "Name it by its digest, NAME@sha256:…, which `podman push --digestfile` writes."
  }
}

variable "wheel" {
  description = "Path of Proctor's wheel on this machine; workers install it. `make image` leaves it in dist/."
  type        = string
}

variable "lock" {
  description = "Path of the lock that workers install beside the wheel; empty: requirements/image.lock of this tree."
  type        = string
  default     = ""
}

variable "broker" {
  description = "What wakes workers: redis (ElastiCache) or rabbitmq (Amazon MQ)."
  type        = string
  default     = "redis"

  validation {
    condition     = contains(["redis", "rabbitmq"], var.broker)
    error_message = "Choose redis or rabbitmq."
  }
}

variable "broker_password" {
  description = "Password of the broker: 16 to 128 letters and digits. It is kept in Terraform's state, so keep that encrypted."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9]{16,128}$", var.broker_password))
    error_message = "Use 16 to 128 letters and digits."
  }
}

variable "allowed_cidrs" {
  description = "Networks whose browsers and command lines reach the server."
  type        = list(string)
  default     = ["10.0.0.0/8"]
}

variable "internal" {
  description = "Whether the balancer has private addresses only; people then come through a VPN or a peered network."
  type        = bool
  default     = true
}

variable "cidr" {
  description = "Network of the VPC; a /16."
  type        = string
  default     = "10.64.0.0/16"
}

variable "zones" {
  description = "Availability zones to use."
  type        = number
  default     = 2

  validation {
    condition     = var.zones >= 2 && var.zones <= 4
    error_message = "Between 2 and 4."
  }
}

variable "server_cpu" {
  description = "CPU units of the server's task; 1024 are one processor."
  type        = number
  default     = 2048
}

variable "server_memory_mb" {
  description = "Memory of the server's task."
  type        = number
  default     = 8192
}

variable "worker_type" {
  description = "Instance type of workers. Agents wait for models most of the time, so memory decides: 64 GB for 48 trials here."
  type        = string
  default     = "m7i.4xlarge"
}

variable "worker_slots" {
  description = "Trials that one worker executes at a time."
  type        = number
  default     = 48
}

variable "worker_min" {
  description = "The fewest workers. With 0 the first trial after a pause waits for an instance to start."
  type        = number
  default     = 1
}

variable "worker_max" {
  description = "The most workers; 16 with 48 slots are 768 trials at a time: 25 users with 30 runs each."
  type        = number
  default     = 16
}

variable "worker_disk_gb" {
  description = "Disk of a worker: images, layers and what trials write."
  type        = number
  default     = 200
}

variable "worker_image" {
  description = "AMI of workers; empty: the newest Debian 12."
  type        = string
  default     = ""
}

variable "drain_hours" {
  description = "How long a worker that is to go may still work at its trials; at most 48."
  type        = number
  default     = 4

  validation {
    condition     = var.drain_hours >= 1 && var.drain_hours <= 48
    error_message = "Between 1 and 48."
  }
}

variable "database_class" {
  description = "Instance class of the database."
  type        = string
  default     = "db.m7g.large"
}

variable "database_gb" {
  description = "Disk of the database; it grows by itself to four times that."
  type        = number
  default     = 100
}

variable "broker_type" {
  description = "Node type of Redis."
  type        = string
  default     = "cache.t4g.small"
}

variable "rabbitmq_type" {
  description = "Instance type of RabbitMQ."
  type        = string
  default     = "mq.m5.large"
}

variable "keep_days" {
  description = "How long logs are kept; the database's backups are kept for at most 35 of them."
  type        = number
  default     = 365
}

variable "alarm_email" {
  description = "Address that alarms go to; empty: nobody is told."
  type        = string
  default     = ""
}

variable "protect" {
  description = "Whether database, balancer and bucket refuse to be destroyed."
  type        = bool
  default     = true
}
