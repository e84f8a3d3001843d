"""Units, compose files, images, workflows and dashboards name commands, options and metrics that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import click
import pytest
import yaml
from tests.brokers import free_port

from proctor.cli.main import LazyGroup
from proctor.server.metrics import Requests, written
from proctor.settings import Settings
from proctor.store.service.demand import Demand, Need
from proctor.store.service.figures import Figures

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = [*(DEPLOY / "systemd").glob("*.*"), *(DEPLOY / "aws/worker").glob("*.service")]


def parse(words: list[str]) -> None:
    """What the command line makes of these words; a mistake is an error of click's."""
    group = LazyGroup()
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, words
    command.make_context(words[0], words[1:], resilient_parsing=False)


def numbers(words: list[str]) -> list[str]:
    """With a number in the place of each variable."""
    return [re.sub(r"\$+\{[^}]*\}", "4", each) for each in words]


def test_commands_of_units_exist():
    text = "\n".join(each.read_text() for each in UNITS)
    lines = re.findall(r"^ExecStart=/opt/proctor/bin/proctor (.*)$", text, re.MULTILINE)
    assert {line.split()[0] for line in lines} >= {"serve", "worker"}
    for line in lines:
        parse(numbers(shlex.split(line)))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.name)
def test_systemd_understands_the_units(unit, tmp_path):
    copy = tmp_path / unit.name
    # Programs of an installation are not here; whether systemd knows every key is the question.
    copy.write_text(re.sub(r"/opt/proctor/\S*?(bin/proctor|drain\.sh)", "/bin/true", unit.read_text()))
    for each in (DEPLOY / "systemd").glob("*.service"):
        if each.name != unit.name:
            (tmp_path / each.name).write_text("[Service]\nExecStart=/bin/true\n")
    environ = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy],
        capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, about) == (0, []), done.stderr


def test_the_unit_of_a_worker_leaves_it_what_sandboxes_need():
    unit = (DEPLOY / "systemd/proctor-worker.service").read_text()
    closed = re.findall(
        r"^((?:Protect|Private|Restrict|NoNew|SystemCall|Lock|Memory|Capab)\w*)=", unit, re.MULTILINE
    )
    # All others imply NoNewPrivileges or cover a part of /proc; see systemd.exec(5).
    assert set(closed) == {"ProtectSystem", "ProtectHome", "PrivateTmp"}


def test_a_worker_that_is_stopped_has_all_the_time_it_needs():
    unit = (DEPLOY / "systemd/proctor-worker.service").read_text()
    assert "KillSignal=SIGTERM" in unit
    assert "TimeoutStopSec=infinity" in unit
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["worker"]["stop_grace_period"] == "4h"
    pod = yaml.safe_load((DEPLOY / "kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 4 * 3600


def test_commands_of_containers_exist():
    text = (DEPLOY / "images/Containerfile").read_text()
    targets = dict(
        re.findall(r"^FROM \S+ AS (server|worker)\n(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL)
    )
    assert set(targets) == {"server", "worker"}
    for body in targets.values():
        assert 'ENTRYPOINT ["proctor"]' in body
        assert "USER 10001:10001" in body
        assert "HEALTHCHECK" in body
        parse(json.loads(re.search(r"^CMD (\[.*\])$", body, re.MULTILINE)[1]))
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("server", "worker"):
        parse(numbers(services[name]["command"]))
        assert set(services) >= set(services[name]["depends_on"])
    pod = yaml.safe_load((DEPLOY / "kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"]
    parse([str(each) for each in pod["containers"][0]["args"]])
    task = (DEPLOY / "aws/server.tf").read_text()
    for command in re.findall(r"command\s+= \[(\"(?:serve|queue)\".*)\]", task):
        parse([each.strip().strip('"') if '"' in each else "4" for each in command.split(",")])


def test_settings_of_containers_exist():
    known = {f"PROCTOR_{name.upper()}" for name in Settings.__dataclass_fields__} | {"PROCTOR_SECRET_KEY"}
    # Read by the files themselves.
    known |= {"PROCTOR_SLOTS", "PROCTOR_HOST", "PROCTOR_SERVER_IMAGE", "PROCTOR_WORKER_IMAGE"}
    for each in DEPLOY.rglob("*"):
        if each.is_file() and each.parent.name != "ci":
            named = set(re.findall(r"\bPROCTOR_[A-Z_]+\b", each.read_text()))
            assert named <= known, each


def test_what_the_compose_file_demands_is_in_its_variables():
    text = (DEPLOY / "compose.yaml").read_text()
    given = re.findall(r"^([A-Z_]+)=$", (DEPLOY / "compose.env").read_text(), re.MULTILINE)
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(given)
    compose = yaml.safe_load(text)
    used = {
        volume.split(":")[0] for each in compose["services"].values() for volume in each.get("volumes", ())
    }
    assert used == set(compose["volumes"])
    hosts = set(re.findall(r"(?://|@)([a-z]+):\d+", text))
    assert hosts <= set(compose["services"])


def test_every_image_is_named_by_a_digest_that_nobody_invented():
    """Those of others are unknown here: they are variables without a default, which a script fills in."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        by_digest = re.fullmatch(r"docker\.io/[\w/]+@\$\{\w+_DIGEST:\?[^}]+\}", service["image"])
        own = re.fullmatch(r"\$\{PROCTOR_(SERVER|WORKER)_IMAGE:\?[^}]+\}", service["image"])
        assert by_digest or own, name
    asked = set(re.findall(r"^# (\w+_DIGEST): \S+:\S+$", (DEPLOY / "compose.env").read_text(), re.MULTILINE))
    assert asked == set(re.findall(r"@\$\{(\w+_DIGEST):", (DEPLOY / "compose.yaml").read_text()))
    assert re.findall(r"^ARG BASE.*$", (DEPLOY / "images/Containerfile").read_text(), re.MULTILINE) == [
        "ARG BASE"
    ]
    pod = yaml.safe_load((DEPLOY / "kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].endswith("@sha256:DIGEST")
    assert "@sha256:[0-9a-f]{64}$" in (DEPLOY / "aws/variables.tf").read_text()
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            assert not re.search(r"sha256:[0-9a-f]{64}", file.read_text()), file


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """A registry's client and an engine that answer for every image."""
    folder = tmp_path / "bin"
    folder.mkdir()
    answer = f"sha256:{'a' * 64}"
    for name in ("skopeo", "podman"):
        (folder / name).write_text(f'#!/bin/sh\necho "$*" >> "$0.said"\necho {answer}\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def filled(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_passwords_are_made_and_digests_asked_for_once(programs, tmp_path):
    file = tmp_path / ".env"
    command = [DEPLOY / "compose-env.sh", file]
    subprocess.run(command, check=True, capture_output=True)
    first = filled(file)
    secrets = [value for name, value in first.items() if name.endswith(("PASSWORD", "SECRET_KEY"))]
    assert all(re.fullmatch(r"[0-9a-f]{64}", value) for value in secrets)
    assert len(set(secrets)) == len(secrets) == 6
    assert first["PROCTOR_BROKER"] == f"redis://:{first['REDIS_PASSWORD']}@redis:6379/0"
    assert (file.stat().st_mode & 0o777, first["POSTGRES_DIGEST"]) == (0o600, f"sha256:{'a' * 64}")
    asked = (programs / "skopeo.said").read_text().splitlines()
    assert "inspect --format {{.Digest}} docker://docker.io/library/redis:7-bookworm" in asked
    subprocess.run(command, check=True, capture_output=True)
    assert filled(file) == first
    assert (programs / "skopeo.said").read_text().splitlines() == asked


def test_what_no_registry_told_is_named_and_stays_empty(programs, tmp_path):
    (programs / "skopeo").write_text("#!/bin/sh\necho no such host >&2; exit 1\n")
    file = tmp_path / ".env"
    done = subprocess.run([DEPLOY / "compose-env.sh", file], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        "POSTGRES_DIGEST: no registry told the digest of docker.io/library/postgres:16-bookworm"
        in done.stderr
    )
    assert filled(file)["POSTGRES_DIGEST"] == ""


@pytest.mark.needs("redis")
def test_redis_of_the_compose_file_answers_nobody_without_its_password(tmp_path):
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["redis"]
    assert service["environment"]["REDIS_PASSWORD"].startswith("${REDIS_PASSWORD:?")
    words = [word.replace("$$", "$") for word in service["command"]]
    # On a port of its own; the rest is the file's.
    port = free_port()
    words[-1] = words[-1].replace("appendonly no", f"appendonly no\nport {port}\nbind 127.0.0.1")
    environ = {"PATH": "/usr/bin:/bin", "REDIS_PASSWORD": "right"}
    with subprocess.Popen(words, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 30
            while "NOAUTH" not in (said := asked_redis(port)):
                assert time.monotonic() < deadline, said
                time.sleep(0.02)
            assert Path(f"/proc/{server.pid}/cmdline").read_bytes().startswith(b"redis-server"), (
                "it is exec'd"
            )
            assert b"right" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
            assert "WRONGPASS" in asked_redis(port, REDISCLI_AUTH="wrong")
            check = (
                service["healthcheck"]["test"][1]
                .replace("$$", "$")
                .replace("redis-cli", f"redis-cli -p {port}")
            )
            subprocess.run(["sh", "-c", check], env=environ, check=True)
            assert "PONG" in asked_redis(port, REDISCLI_AUTH="right")
        finally:
            server.kill()


def asked_redis(port: int, **environ: str) -> str:
    done = subprocess.run(
        ["redis-cli", "-p", str(port), "ping"], env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_workers_sign_in_to_the_database_with_a_role_of_their_own():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    worker = services["worker"]
    assert worker["environment"]["PROCTOR_STORE"].startswith(
        "postgresql://proctor_worker:${WORKER_PASSWORD:?"
    )
    assert "POSTGRES_PASSWORD" not in json.dumps(worker)
    assert "PROCTOR_SECRET_KEY" not in json.dumps(worker)
    assert worker["depends_on"]["role"] == {"condition": "service_completed_successfully"}
    parse(services["role"]["command"])
    assert services["role"]["environment"]["PROCTOR_STORE"].startswith(
        "postgresql://proctor:${POSTGRES_PASSWORD:?"
    )
    pod = yaml.safe_load((DEPLOY / "kubernetes/worker.yaml").read_text())["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "proctor-worker-addresses"}}]
    roles = (DEPLOY / "aws/roles.tf").read_text()
    workers = re.search(r'document" "workers" \{(.*?)\n\}', roles, re.DOTALL)[1]
    assert "local.secrets.worker_database" in workers
    assert "local.secrets.database" not in workers
    assert "local.secrets.key" not in workers
    template = (DEPLOY / "aws/workers.tf").read_text()
    assert "local.worker_store" in template
    assert "aws_secretsmanager_secret.database" not in template


def test_workers_on_kubernetes_reach_what_they_need_and_no_private_network():
    from proctor.model.network import NOT_THE_INTERNET

    policy = yaml.safe_load((DEPLOY / "kubernetes/network.yaml").read_text())["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    ports = [{port["port"] for port in rule.get("ports", ())} for rule in policy["egress"]]
    assert ports == [{53}, {8640}, {5432, 6379, 5671}, set()]
    *named, internet = policy["egress"]
    assert all(rule["to"] for rule in named)
    private = [str(each) for each in NOT_THE_INTERNET if each.version == 4]
    assert internet["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": private}}]


def exposed() -> set[str]:
    """The names of every metric, as a server with work and requests tells them."""
    demand = Demand((Need("task", "any", waiting=1),))
    figures = Figures(
        runs={"done": 1}, outcomes={"passed": 1}, queued_runs=0, queue_age_s=0.0, running_trials=0,
        waiting_trials=1, workers=0, slots=0, attempts={"passed": 1}, attempt_s=1.0, requests=0, tokens=0,
        cost_usd=0.0, demand=demand,
    )  # fmt: skip
    requests = Requests()
    requests.observe("GET", "/livez", 200, 0.01)
    text = written(figures, requests, {"up": 1.0, "restarts": 0.0, "places": 2.0})
    return set(re.findall(r"^(proctor_\w+)", text, re.MULTILINE))


def queried(text: str) -> set[str]:
    return set(re.findall(r"\bproctor_\w+", text))


def test_every_metric_of_the_dashboard_is_one_that_servers_tell():
    board = json.loads((DEPLOY / "grafana/proctor.json").read_text())
    asked = set().union(*(queried(each["expr"]) for panel in board["panels"] for each in panel["targets"]))
    assert len(asked) > 15
    assert asked <= exposed()
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_of_the_alerts_and_of_scaling_is_one_that_servers_tell():
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
    assert len(rules) > 4
    scaling = yaml.safe_load((DEPLOY / "kubernetes/scaling.yaml").read_text())
    expressions = [each["expr"] for each in rules] + [scaling["spec"]["triggers"][0]["metadata"]["query"]]
    for each in expressions:
        assert queried(each) <= exposed(), each
        assert queried(each)


def test_outcomes_named_by_dashboard_and_alerts_exist():
    from proctor.model.outcome import Outcome

    text = (DEPLOY / "grafana/proctor.json").read_text() + (DEPLOY / "prometheus/alerts.yaml").read_text()
    named = {word for each in re.findall(r'outcome=~?\\?"([a-z_|]+)', text) for word in each.split("|")}
    assert named
    assert named <= {each.value for each in Outcome}


def test_metrics_of_the_page_are_those_that_servers_tell():
    pages = (ROOT / "docs/how-to/deploy.md").read_text() + (ROOT / "docs/how-to/operate.md").read_text()
    assert set(re.findall(r"`(proctor_\w+)`", pages)) <= exposed() | {"proctor_http_request_seconds"}


def test_workflows_pin_their_actions_and_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        text = file.read_text()
        flow = yaml.safe_load(text)
        assert flow["permissions"] == {"contents": "read"}
        for job in flow["jobs"].values():
            assert job["timeout-minutes"]
            for step in job["steps"]:
                assert (
                    re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", step["uses"]) if "uses" in step else step["run"]
                )
                # An expression within a script would be executed: values come by variables.
                assert "${{" not in step.get("run", "")
        for line in re.findall(r"\bmake ([a-z -]+)$", text, re.MULTILINE):
            assert set(line.split()) <= targets
