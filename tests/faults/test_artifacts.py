"""A coordinator whose blobs are cut off, and killed meanwhile: rows and status come, and the files later."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.clusters import Proxy
from tests.resources import Resources
from tests.s3 import s3_server

from proctor.errors import Exit
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.copies import COPYING
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import read_series
from proctor.runfolder.transfer import export_run
from proctor.runs.running import create
from proctor.settings import Settings
from proctor.spec.load import load
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

pytestmark = pytest.mark.fault
TRIALS = 12
EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("profiled")
class Profiled(Experiment):
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute_once(self, context):
        return {"n": sum(range(self.n))}
"""


class Stage:
    """A run that workers have executed, with S3 behind a proxy for its coordinator."""

    def __init__(self, base: Path, address: str, proxy: Proxy) -> None:
        self.base, self.proxy, self.direct = base, proxy, address
        endpoint = parse_qs(urlsplit(address).query)["endpoint"][0]
        self.proxied = address.replace(
            quote(endpoint, safe=""), quote(f"http://127.0.0.1:{proxy.port}", safe="")
        )
        self.store_url = str(base / "store.db")
        spec = base / "spec.json"
        (base / "profiled.py").write_text(EXPERIMENT)
        asked = {
            "experiment": "profiled",
            "sources": ["profiled.py"],
            "sweep": {"n": list(range(TRIALS))},
            "instrumentation": ["timing", "cprofile"],
        }
        spec.write_text(json.dumps(asked))
        settings = Settings(
            home=base / "home", store=self.store_url, blobs=self.proxied, output_dir=base / "results"
        )
        self.run = create(load(spec), asked, Resources(settings))

    def start(self, *arguments: str, home: str, blobs: str) -> subprocess.Popen[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        environ |= {
            "PROCTOR_HOME": str(self.base / home),
            "PROCTOR_STORE": self.store_url,
            "PROCTOR_BLOBS": blobs,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "proctor.cli.main", *arguments],
            cwd=self.base, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def work(self) -> None:
        """All trials, by a worker of another machine that reaches the blobs."""
        with open_store(self.store_url) as store:
            store.set_status(self.run.info.id, RunStatus.RUNNING)
        worker = self.start("worker", "--until-idle", home="worker", blobs=self.direct)
        said = worker.communicate(timeout=120)[0]
        assert worker.returncode == Exit.OK, said

    def coordinate(self) -> subprocess.Popen[str]:
        return self.start("resume", self.run.info.id, "--json", home="home", blobs=self.proxied)

    def status(self) -> RunStatus:
        with open_store(self.store_url) as store:
            return store.run(self.run.info.id).status

    def files(self) -> dict[str, str]:
        """Every artifact that the rows of the folder name, and the digest of what is there."""
        found = {}
        for row in read_series(self.run.folder):
            for path, artifact in zip(
                artifact_paths(row.trial, row.record), row.record.artifacts, strict=True
            ):
                file = self.run.folder / path
                content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
                assert content in {"", artifact.digest}
                found[path] = content
        return found


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with s3_server(tmp_path / "s3") as (address, credentials):
        for name, value in credentials.items():
            monkeypatch.setenv(name, value)
        port = urlsplit(parse_qs(urlsplit(address).query)["endpoint"][0]).port
        assert port
        with closing(Proxy(port)) as proxy:
            yield Stage(tmp_path, address, proxy)


def until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("killed", [False, True])
def test_rows_and_status_come_while_blobs_are_cut_off_and_the_folder_is_complete_when_they_are_back(
    stage: Stage, tmp_path: Path, killed: bool
):
    stage.work()
    stage.proxy.cut()
    coordinator = stage.coordinate()
    until(lambda: stage.status() is RunStatus.DONE, coordinator)
    until((stage.run.folder / "summary.json").is_file, coordinator)
    files = stage.files()
    assert len(files) >= TRIALS
    assert not any(files.values()), "no file can have come"
    assert (stage.run.folder / COPYING).is_dir()
    if killed:
        coordinator.kill()
        coordinator.communicate()
        stage.proxy.restore()
        coordinator = stage.coordinate()
    else:
        stage.proxy.restore()
    said = coordinator.communicate(timeout=120)[0]
    assert coordinator.returncode == Exit.OK, said
    assert all(stage.files().values())
    assert not list(stage.run.folder.rglob(".*")), "nothing hidden is left"
    with open_store(stage.store_url) as store:
        whole = export_run(
            store, open_blobs(stage.direct), stage.run.info.id, tmp_path / "whole", write_reports
        )
    names = ("series.jsonl", *stage.files())
    assert [(stage.run.folder / name).read_bytes() for name in names] == [
        (whole / name).read_bytes() for name in names
    ]
