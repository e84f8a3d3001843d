"""`deploy/aws` is valid, documented, and can be made and removed: against moto, as far as that goes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import boto3
import pytest
from tests.deploy.terraform import REGION, ROOT, Terraform, aws, needed

SOAK = bool(os.environ.get("PROCTOR_SOAK"))
AWS = ROOT / "deploy/aws"


def client(service: str, endpoint: str):
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, **keys)


def variables(endpoint: str, **more: str) -> list[str]:
    certificate = client("acm", endpoint).request_certificate(DomainName="bench.example.org")
    image = client("ec2", endpoint).describe_images()["Images"][0]["ImageId"]
    values = {
        "host": "bench.example.org",
        "certificate_arn": certificate["CertificateArn"],
        "server_image": f"registry.example/proctor-server@sha256:{'0' * 64}",
        "worker_image": image,
        "protect": "false",
        **more,
    }
    return [f"-var={name}={value}" for name, value in values.items()]


def test_it_is_formatted_and_valid(tmp_path):
    needed()
    terraform = Terraform(tmp_path)
    terraform("fmt", "-check", "-diff")
    terraform.init()
    found = json.loads(terraform("validate", "-json"))
    assert (found["valid"], found["diagnostics"]) == (True, [])


@pytest.mark.fault
@pytest.mark.skipif(not SOAK, reason="takes minutes: PROCTOR_SOAK=1")
@pytest.mark.timeout(1500)
def test_all_of_it_is_made_and_removed(tmp_path):
    """With RabbitMQ: moto does not know the nodes of an ElastiCache group, so Redis is planned below."""
    needed()
    with aws(tmp_path) as endpoint:
        terraform = Terraform(tmp_path / "tree", endpoint)
        terraform.init()
        given = variables(endpoint, broker="rabbitmq")
        made = terraform("apply", "-input=false", "-auto-approve", *given)
        number = int(re.search(r"Apply complete! Resources: (\d+) added", made)[1])
        assert number > 90
        look_at_workers(endpoint)
        state = (terraform.folder / "terraform.tfstate").read_text()
        secrets = client("secretsmanager", endpoint)
        for each in secrets.list_secrets()["SecretList"]:
            if "-database-" in each["Name"] or "-key-" in each["Name"]:
                value = secrets.get_secret_value(SecretId=each["ARN"])["SecretString"]
                assert len(value) >= 40
                assert value not in state
        gone = terraform("destroy", "-input=false", "-auto-approve", *given)
        assert f"{number} destroyed" in gone


def look_at_workers(endpoint: str) -> None:
    scaling = client("autoscaling", endpoint)
    (group,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (group["MinSize"], group["MaxSize"]) == (1, 16)
    (hook,) = scaling.describe_lifecycle_hooks(AutoScalingGroupName=group["AutoScalingGroupName"])[
        "LifecycleHooks"
    ]
    assert hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
    (policy,) = scaling.describe_policies()["ScalingPolicies"]
    assert policy["TargetTrackingConfiguration"]["TargetValue"] == 48


@pytest.mark.fault
@pytest.mark.skipif(not SOAK, reason="takes half a minute: PROCTOR_SOAK=1")
def test_redis_in_place_of_rabbitmq_is_planned(tmp_path):
    needed()
    with aws(tmp_path) as endpoint:
        terraform = Terraform(tmp_path / "tree", endpoint)
        terraform.init()
        planned = terraform("plan", "-input=false", *variables(endpoint, broker="redis"))
    assert "aws_elasticache_replication_group.this[0] will be created" in planned
    assert "aws_mq_broker" not in planned


def test_every_variable_says_what_it_is_for_and_is_in_the_page():
    text = (AWS / "variables.tf").read_text()
    names = re.findall(r'^variable "(\w+)"', text, re.MULTILINE)
    assert len(names) == len(re.findall(r"^  description = \".+\"$", text, re.MULTILINE))
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []
    used = set(re.findall(r"var\.(\w+)", "".join(each.read_text() for each in AWS.glob("*.tf"))))
    assert set(names) == used


def test_no_secret_is_in_clear():
    for each in (*AWS.rglob("*"), ROOT / "deploy/compose.yaml", ROOT / "deploy/compose.env"):
        if each.is_file():
            assert not re.search(r"AKIA[0-9A-Z]{16}|-----BEGIN|password\s*=\s*\"[^\"$]", each.read_text()), (
                each
            )


@pytest.fixture
def instance(tmp_path):
    """Programs in the place of an instance's own: they write what they are asked, and answer from files."""
    programs, answers = tmp_path / "bin", tmp_path / "answers"
    programs.mkdir()
    answers.mkdir()
    scripts = {
        "curl": 'for last in "$@"; do case $last in http*) url=$last;; esac; done\n'
        'case $url in */api/token) echo t;; */instance-id) echo i-1;; *lifecycle-state) cat "$A/state";;\n'
        "*) exit 22;; esac",
        "aws": 'echo "aws $*" >> "$A/said"',
        "systemctl": 'echo "systemctl $*" >> "$A/said"\n'
        'case "$1" in is-active) exit 3;; show) n=$(cat "$A/left"); echo $((n - 1)) > "$A/left"\n'
        '[ "$n" -gt 0 ] && echo deactivating || echo inactive;; esac; exit 0',
        "sleep": 'echo Terminated > "$A/state"',
    }  # fmt: skip
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    (answers / "state").write_text("InService\n")
    (answers / "left").write_text("2\n")

    def drain(*words: str) -> list[str]:
        environ = {"PATH": f"{programs}:{os.environ['PATH']}", "A": str(answers)}
        subprocess.run([AWS / "worker/drain.sh", "g", "drain", *words], env=environ, check=True, timeout=60)
        said: list[str] = (answers / "said").read_text().splitlines()
        return said

    return drain


ABOUT = "--auto-scaling-group-name g --lifecycle-hook-name drain --instance-id i-1"


def test_an_instance_goes_when_its_worker_has_finished_and_not_before(instance):
    said = instance()
    assert said[0] == "systemctl stop --no-block proctor-worker.service"
    beats = [each for each in said if each == f"aws autoscaling record-lifecycle-action-heartbeat {ABOUT}"]
    assert len(beats) == 2
    assert said[-1] == f"aws autoscaling complete-lifecycle-action {ABOUT} --lifecycle-action-result CONTINUE"
    assert not any("KILL" in each for each in said)


def test_a_worker_that_does_not_finish_in_its_hours_is_killed_and_its_trials_are_tried_again(instance):
    said = instance("0", "0")
    assert "systemctl kill --signal=KILL proctor-worker.service" in said
    assert "complete-lifecycle-action" in said[-1]


def test_a_new_instance_gets_a_script_that_a_shell_understands(tmp_path):
    text = (AWS / "worker/start.sh.tftpl").read_text()
    names = set(re.findall(r"\$\{(\w+)\}", text))
    given = set(re.findall(r"^    (\w+)\s+= ", (AWS / "workers.tf").read_text(), re.MULTILINE))
    assert names <= given
    unit = (ROOT / "deploy/systemd/proctor-worker.service").read_text()
    for name in names:
        text = text.replace(f"${{{name}}}", unit if name.endswith("unit") else "'x'"[1:-1])
    script = tmp_path / "start.sh"
    script.write_text(text)
    subprocess.run(["bash", "-n", script], check=True)
    subprocess.run(["bash", "-n", AWS / "worker/drain.sh"], check=True)


def test_files_named_by_the_configuration_exist():
    for named in re.findall(
        r'\$\{path\.module\}/([\w./-]+)"', "".join(each.read_text() for each in AWS.glob("*.tf"))
    ):
        assert Path(AWS / named).exists(), named
