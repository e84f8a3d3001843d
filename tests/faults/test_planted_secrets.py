"""Secrets that are planted everywhere a person may put one are found in nothing that a run leaves."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

HOST = "planted-host/Value+11 é"
SPEC_LITERAL = "planted-spec/Literal+22"
OPTION = "planted-option/Value+33"
TASK = "planted-task/Value+44"
PROVIDER = "planted-provider-Value55"
MARKED = "planted-marked/Value+66"
MODEL = "planted-model-Key77"
PLANTED = (HOST, SPEC_LITERAL, OPTION, TASK, PROVIDER, MARKED, MODEL)
PASSED = {
    "MY_API_TOKEN": HOST,
    "OPTION_TOKEN": OPTION,
    "TASK_TOKEN": TASK,
    "PLAIN_NAME": MARKED,
    "PROCTOR_MODEL_API_KEY": MODEL,
    "PROCTOR_MODEL_BASE_URL": f"http://user:{PROVIDER}@127.0.0.1:9/v1",
}
SHOUT = r"""
import base64, json, os, sys, urllib.parse as url
values = [os.environ[name] for name in NAMES]
for value in values:
    raw = value.encode()
    every = [value, raw.hex(), raw.hex().upper(), raw.hex(":"), url.quote(value), url.quote(value, safe=""),
             url.quote(url.quote(value)), url.quote_plus(value), json.dumps(value),
             json.dumps({"a": json.dumps(value)}),
             "".join("%%%02x" % each for each in raw)]
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes):
            every.append(encode(b"x" * before + raw + b"tail").decode())
    print("\n".join(every), flush=True)
    print(value, file=sys.stderr)
    for each in value:
        os.write(1, each.encode())
    PLACES
"""
FILES = r"""
    for place in FOLDERS:
        os.makedirs(place, exist_ok=True)
        with open(f"{place}/notes-{raw.hex()}.txt", "w") as file:
            file.write("\n".join(every))
        with open(f"{place}/blob.bin", "ab") as file:
            file.write(b"\0" + raw + b"\0" + base64.b64encode(raw))
"""


def shouting(names: list[str], *folders: str) -> str:
    files = FILES.strip("\n").replace("FOLDERS", repr(folders)) if folders else ""
    return SHOUT.replace("    PLACES", files).replace("NAMES", repr(names))


def needles(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield raw.hex().encode()
    yield quote(value, safe="").encode()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw)
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        yield whole[first:last]


def leaks(data: bytes) -> list[str]:
    joined = re.sub(rb"\s|\\n", b"", data)
    copies = (data, joined, joined.translate(bytes.maketrans(b"-_", b"+/")), joined.lower())
    return [
        f"{value}: {needle.decode()}"
        for value in PLANTED
        for needle in needles(value)
        if any(needle in copy for copy in copies)
    ]


def everything(*places: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below, its name, and the members of archives."""
    import zstandard

    for place in places:
        for path in [each for each in place.rglob("*") if each.is_file() and not each.is_symlink()]:
            data = path.read_bytes()
            yield str(path), str(path.relative_to(place)).encode() + b"\n" + data
            if data[:4] == b"\x28\xb5\x2f\xfd":
                with zstandard.ZstdDecompressor().stream_reader(data) as stream:
                    yield f"{path} (unpacked)", stream.read()
            elif zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        yield f"{path}: {name}", name.encode() + b"\n" + archive.read(name)


class Watched:
    """A command of Proctor's, with the command lines of all processes while it runs."""

    def __init__(self, folder: Path, *words: str, environ: dict[str, str]) -> None:
        self.seen: list[str] = []
        self._ended = threading.Event()
        watch = threading.Thread(target=self._watch)
        watch.start()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "proctor.cli.main", *words],
                cwd=folder,
                env={**os.environ, **environ},
                capture_output=True,
                check=False,
                timeout=300,
            )
        finally:
            self._ended.set()
            watch.join()
        self.code, self.said = done.returncode, done.stdout + done.stderr

    def _watch(self) -> None:
        while not self._ended.is_set():
            for each in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = each.read_bytes()
                except OSError:
                    continue
                self.seen += (
                    [f"{leak} in {line[:80]!r}" for leak in leaks(line)] if b"planted" in line else []
                )


def clean(folder: Path, *ran: Watched) -> None:
    """Nothing planted is in what the commands printed, in the process list or below the folder."""
    for each in ran:
        assert not each.seen
        assert leaks(each.said) == []
    found = {name: leaks(data) for name, data in everything(folder / "out", folder / "home") if leaks(data)}
    assert found == {}


def loud_task(make_task: Callable[..., Path]) -> Path:
    env = '[environment.env]\nTASK_TOKEN = "${TASK_TOKEN}"\n[verifier.env]\nJUDGE_TOKEN = "${TASK_TOKEN}"\n'
    task = make_task("loud", environment=env)
    (task / "tests" / "shout.py").write_text(shouting(["TASK_TOKEN", "JUDGE_TOKEN"], "/logs/verifier"))
    (task / "tests" / "test.sh").write_text("python3 /tests/shout.py\necho 1 > /logs/verifier/reward.txt\n")
    return task


def spec_for(folder: Path, task: Path, *, sandbox: str, names: list[str]) -> Path:
    script = shouting(names, "/app", "/logs/artifacts", "/app/sub")
    (folder / "shout.py").write_text(script)
    coded = base64.b64encode(script.encode()).decode()
    spec = folder / "loud.yaml"
    spec.write_text(
        f"""
name: loud
tasks:
  - path: {task}
agent: command
pass_env: [TASK_TOKEN]
sandbox: {sandbox}
environment_variables:
  GIVEN: ${{MY_API_TOKEN}}
  LITERAL_PASSWORD: {SPEC_LITERAL}
  MARKED: {{secret: PLAIN_NAME}}
agent_options:
  command: echo {coded} | base64 -d > /tmp/shout.py && python3 /tmp/shout.py
  env:
    OPTION: ${{OPTION_TOKEN}}
"""
    )
    return spec


NAMES = ["GIVEN", "LITERAL_PASSWORD", "MARKED", "OPTION", "TASK_TOKEN"]


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    return {
        **PASSED,
        "PROCTOR_HOME": str(tmp_path / "home"),
        "PROCTOR_ROLLOUTS_DIR": str(tmp_path / "out"),
        "PROCTOR_OUTPUT_DIR": str(tmp_path / "out"),
    }


@pytest.mark.needs("bubblewrap")
def test_planted_secrets_are_in_nothing_that_a_run_in_bubblewrap_leaves(
    tmp_path: Path, make_task: Callable[..., Path], planted: dict[str, str]
) -> None:
    spec = spec_for(tmp_path, loud_task(make_task), sandbox="bubblewrap", names=NAMES)
    ran = Watched(tmp_path, "run", str(spec), "-vv", "--host-root", environ=planted)
    assert ran.code == 0, ran.said.decode()
    assert b"[redacted:" in ran.said
    receipt = Watched(tmp_path, "receipt", "latest", "out/receipt.zip", environ=planted)
    assert receipt.code == 0, receipt.said.decode()
    shown = Watched(tmp_path, "logs", "latest", environ=planted)
    clean(tmp_path, ran, receipt, shown)


@pytest.mark.needs("podman")
def test_planted_secrets_are_in_nothing_that_a_run_in_podman_leaves(
    tmp_path: Path, make_task: Callable[..., Path], planted: dict[str, str], podman_image: str
) -> None:
    task = loud_task(make_task)
    (task / "environment" / "Dockerfile").write_text(f"FROM {podman_image}\nWORKDIR /app\n")
    spec = spec_for(tmp_path, task, sandbox="podman", names=NAMES)
    ran = Watched(tmp_path, "run", str(spec), "-vv", environ=planted)
    assert ran.code == 0, ran.said.decode()
    assert b"[redacted:" in ran.said
    clean(tmp_path, ran)


EXPERIMENT = """
import os

from proctor import Experiment, register_experiment


@register_experiment("loud", summary="Print secrets")
class Loud(Experiment):
    param_schema = {"api_key": {"type": "str", "default": ""}}

    def execute_once(self, context):
        os.environ["KEY"] = self.params["api_key"]
        (context.output_dir / "loose.txt").write_text(self.params["api_key"])
        exec(SCRIPT.replace("FOLDER", str(context.run_dir)), {})
        if os.environ.get("RAISE"):
            raise ValueError(self.params["api_key"] + os.environ["MY_API_TOKEN"])
        return {"said": 1.0}
"""


@pytest.mark.parametrize("raising", ["", "1"])
def test_planted_secrets_are_in_nothing_that_an_experiment_leaves(
    tmp_path: Path, planted: dict[str, str], raising: str
) -> None:
    script = shouting(["KEY", "MY_API_TOKEN"], "FOLDER")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "loud.py").write_text(f"SCRIPT = {script!r}\n{EXPERIMENT}")
    head = 'experiment = "loud"\nsources = "mine"\n[iterations]\nmeasured = 2\n[params]\n'
    for number, value in enumerate(("${OPTION_TOKEN}", SPEC_LITERAL)):
        spec = tmp_path / f"loud{number}.toml"
        spec.write_text(f'{head}api_key = "{value}"\n')
        ran = Watched(tmp_path, "run", str(spec), "-v", environ={**planted, "RAISE": raising})
        assert ran.code == (1 if raising else 0), ran.said.decode()
        clean(tmp_path, ran)
    printed = [each.read_text(errors="replace") for each in (tmp_path / "out").rglob("stdout.txt")]
    assert len(printed) == 2
    assert all("[redacted:" in each for each in printed)


def test_a_provider_address_with_a_password_is_in_no_message(
    tmp_path: Path, make_task: Callable[..., Path], planted: dict[str, str]
) -> None:
    task = make_task("quiet")
    address = {"PROCTOR_MODEL_BASE_URL": f"htp://user:{PROVIDER}@[bad/v1"}
    words = ("run", "-t", str(task), "-a", "terminal", "-m", "m", "--host-root")
    for given in (planted, {**planted, **address}):
        ran = Watched(tmp_path, *words, "--set", "retries=0", environ=given)
        assert ran.said
        clean(tmp_path, ran)
