terraform {
  required_version = ">= 1.11" # values that are written and never kept in the state

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { application = var.name }
  }
}

data "aws_caller_identity" "this" {}

data "aws_availability_zones" "here" {
  #checkov:skip=CKV_AWS_394:Only the first `zones` of them are used, by name; a new one comes after them.
  state = "available"
}

locals {
  account = data.aws_caller_identity.this.account_id
  zones   = slice(data.aws_availability_zones.here.names, 0, var.zones)
}
