"""Rough treatment of the run folder: killed writers and full disks."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from proctor.errors import StoreError
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.series import NAME, read_series
from proctor.runfolder.write import RunFolder

WRITER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from proctor.model.plan import Plan
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder

source, target = map(Path, sys.argv[1:])
data = RunData.from_folder(source)
folder = RunFolder(target)
folder.begin(data.info, Plan(trials=tuple(trial.planned for trial in data.trials)))
number = 1
while True:
    for trial in data.trials:
        folder.append(trial.planned, replace(trial.counted, number=number), False)
    number += 1
"""


@pytest.mark.fault
@pytest.mark.parametrize("round_", range(5))
def test_a_killed_writer_leaves_whole_rows_and_the_next_one_goes_on(tmp_path, runs, round_):
    data = runs.lines()
    RunFolder(tmp_path / "source").finish(data, write_reports)
    target = tmp_path / "target"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "source", target])
    try:
        deadline = time.monotonic() + 60
        wanted = random.Random(round_).randint(10_000, 200_000)
        while not (target / NAME).exists() or (target / NAME).stat().st_size < wanted:
            assert time.monotonic() < deadline
            assert writer.poll() is None
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    with (target / NAME).open("ab") as stream:
        stream.write(b'{"schema_version":1,"run_id":"x')
    before = list(read_series(target))
    assert before
    folder = RunFolder(target)
    folder.append(data.trials[0].planned, data.trials[0].counted, counts=True)
    folder.close()
    assert len(list(read_series(target))) == len(before) + 1
    folder = RunFolder(target)
    folder.finish(data, write_reports)
    assert RunData.from_folder(target).trials == data.trials


@pytest.mark.fault
@pytest.mark.needs("root")
def test_a_full_disk_keeps_every_row_that_was_promised(tmp_path, runs):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        data = runs.two()
        folder = RunFolder(small / "run")
        folder.begin(data.info, runs.plan(data))
        kept = 0

        def fill():
            nonlocal kept
            for trial in itertools.cycle(data.trials):
                folder.append(trial.planned, trial.counted, counts=True)
                kept += 1

        with pytest.raises(StoreError, match="no space is left"):
            fill()
        folder.close()
        assert kept > 3
        rows = list(read_series(small / "run"))
        assert len(rows) == kept
        assert json.loads((small / "run" / "manifest.json").read_text())["run"]["id"] == data.info.id
        with pytest.raises(StoreError, match="no space is left"):
            folder.finish(data, write_reports)
        assert not [path for path in (small / "run").rglob("*") if path.name.endswith(".tmp")]
        assert len(list(read_series(small / "run"))) == kept
        for path in (small / "run").rglob("result.json"):
            json.loads(path.read_text())
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path, runs):
    if os.geteuid() == 0:
        (tmp_path / "run").write_text("a file where the folder should be")
    else:
        (tmp_path / "run").mkdir(mode=0o555)
    with pytest.raises(StoreError, match="cannot be written"):
        RunFolder(tmp_path / "run").begin(runs.single().info, runs.plan(runs.single()))
