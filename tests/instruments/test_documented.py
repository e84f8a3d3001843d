"""The instruments that the documentation shows can be copied and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proctor.instruments import base
from proctor.instruments.base import create, names
from proctor.model.spec import InstrumentSpec

PAGE = Path(__file__).parents[2] / "docs/how-to/instruments.md"


@pytest.fixture
def page(monkeypatch) -> str:
    monkeypatch.setattr(base, "INSTRUMENTS", dict(base.INSTRUMENTS))
    monkeypatch.setattr(base, "_PLACES", dict(base._PLACES))
    return PAGE.read_text()


def test_every_built_in_instrument_is_in_the_table_with_its_options(page):
    for name in base._BUILT_IN:
        (row,) = re.findall(rf"^\| `{name}` .*$", page, re.MULTILINE)
        make = base.find(name)
        assert ("| yes |" in row) == make.rides_along
        assert all(f"`{option}`" in row for option in make.defaults), row


def test_the_examples_work(page, tmp_path):
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})
    assert {"open_files", "garbage"} <= set(names())
    files = create(InstrumentSpec(name="open_files"))
    with files:
        pass
    assert files.metrics()["before"] == files.metrics()["after"]
    garbage = create(InstrumentSpec(name="garbage", options={"generation": 1}))
    garbage.open(tmp_path / "garbage")
    with garbage:
        ring: list = []
        ring.append(ring)
        del ring
    assert garbage.metrics()["objects"] >= 1
    assert garbage.close() == {"last": garbage.found}
    assert (tmp_path / "garbage/note.txt").exists()
