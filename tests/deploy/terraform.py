"""Terraform on a copy of `deploy/aws`, with the AWS provider of this machine and moto's server as AWS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("/opt/tf-plugins", "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins")
"""Folders of providers; PROCTOR_TF_PLUGINS names another."""
_NAMED = os.environ.get("PROCTOR_TF_PLUGINS", "")
REGION = "eu-central-1"
# What moto cannot do is replaced here and listed in docs/how-to/deploy.md.
MOTO = """
provider "aws" {
  region                  = "eu-central-1"
  access_key              = "test"
  secret_key              = "test"
  s3_use_path_style       = true
  skip_metadata_api_check = true
}

data "aws_iam_policy_document" "bucket" {
  statement {
    actions   = ["s3:PutObject"]
    resources = ["arn:aws:s3:::${each.value}/*"]

    principals {
      type        = "Service"
      identifiers = ["logging.s3.amazonaws.com"]
    }
  }
}
"""


@cache
def plugins() -> Path | None:
    """The folder that has the AWS provider."""
    places = [Path(each) for each in (_NAMED, *PLACES) if each]
    return next((each for each in places if (each / "registry.terraform.io/hashicorp/aws").is_dir()), None)


def needed() -> None:
    """Skip where terraform or its provider is missing: no package registry has them."""
    if not shutil.which("terraform"):
        pytest.skip("needs terraform")
    if plugins() is None:
        pytest.skip("needs the AWS provider in a folder: PROCTOR_TF_PLUGINS")


class Terraform:
    """A working copy in which commands are run."""

    def __init__(self, folder: Path, endpoint: str = "") -> None:
        shutil.copytree(ROOT / "deploy/aws", folder / "deploy/aws")
        shutil.copytree(ROOT / "deploy/systemd", folder / "deploy/systemd")
        (folder / "requirements").mkdir()
        shutil.copy(ROOT / "requirements/image.lock", folder / "requirements")
        (folder / "proctor.whl").write_bytes(b"a wheel")
        (folder / "cli.tfrc").touch()
        self.folder = folder / "deploy/aws"
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "TF_CLI_CONFIG_FILE": str(folder / "cli.tfrc"),
            "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1", "AWS_EC2_METADATA_DISABLED": "true",
            "TF_VAR_broker_password": "abcdefghijklmnop1234", "TF_VAR_wheel": str(folder / "proctor.whl"),
        }  # fmt: skip
        if endpoint:
            (self.folder / "moto_override.tf").write_text(MOTO)
            self.environ |= {"AWS_ENDPOINT_URL": endpoint}

    def __call__(self, *words: str, timeout_s: float = 600) -> str:
        done = subprocess.run(
            ["terraform", *words, "-no-color"],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"terraform {' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        )
        return done.stdout

    def init(self) -> None:
        self("init", "-input=false", "-backend=false", f"-plugin-dir={plugins()}")


@contextmanager
def aws(folder: Path) -> Iterator[str]:
    """moto's server as AWS, on a free port, while the block lasts."""
    from tests.deploy.ports import free_port

    port = free_port()
    with (folder / "moto.log").open("wb") as log:
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "moto.server", "-H", "127.0.0.1",
             "-p", str(port)],
            stdout=log, stderr=log, env=os.environ | {"MOTO_IAM_LOAD_MANAGED_POLICIES": "true"},
        )  # fmt: skip
    endpoint, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    try:
        while True:
            try:
                build_opener(ProxyHandler({})).open(f"{endpoint}/moto-api/", timeout=5).close()
                break
            except (URLError, OSError):
                assert server.poll() is None, (folder / "moto.log").read_text()
                assert time.monotonic() < deadline, (folder / "moto.log").read_text()
                time.sleep(0.05)
        yield endpoint
    finally:
        server.kill()
        server.wait()
