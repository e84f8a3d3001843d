"""Files of `proctor ab` and `proctor time` in a folder of results, and files that are none."""

from __future__ import annotations

import json

import pytest

from proctor.engine.saved_timings import timing, timing_document, timings_in
from proctor.errors import NotFoundError, UsageError

TIMED = json.dumps({"schema_version": 1, "kind": "proctor.time", "document": {"title": "sorts"}}, indent=1)


def test_a_timing_is_found_by_what_is_in_it_and_shown_as_its_document(tmp_path):
    (tmp_path / "sorts.json").write_text(TIMED)
    (tmp_path / "other.json").write_text(json.dumps({"kind": "something"}))
    assert timings_in(tmp_path) == [(tmp_path / "sorts.json", "time")]
    assert timing_document(timing(tmp_path, "sorts.json"), drawn=True) == {"title": "sorts"}


def test_names_that_leave_the_folder_are_not_found(tmp_path):
    inside = tmp_path / "results"
    inside.mkdir()
    (tmp_path / "outside.json").write_text(TIMED)
    for name in ("../outside.json", "none.json", ""):
        with pytest.raises(NotFoundError):
            timing(inside, name)


def test_a_folder_that_is_not_there_has_no_timings_and_a_damaged_file_says_so(tmp_path):
    assert timings_in(tmp_path / "none") == []
    damaged = tmp_path / "bad.json"
    damaged.write_text('{"kind": "proctor.time", ')
    assert timings_in(tmp_path) == [(damaged, "time")]
    with pytest.raises(UsageError, match="cannot be read"):
        timing_document(damaged, drawn=False)
