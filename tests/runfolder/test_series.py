from __future__ import annotations

import json

import pytest

from proctor.errors import StoreError, UsageError
from proctor.model.record import AttemptRow
from proctor.runfolder.series import NAME, Series, encode_row, read_series


def rows_of(runs):
    return [
        AttemptRow(record, counts=record is trial.counted, trial=trial.planned)
        for trial in runs.failures().trials
        for record in trial.attempts
    ]


def write(folder, rows):
    series = Series(folder / NAME)
    for row in rows:
        series.append(encode_row("r1", row))
    series.close()


def test_rows_come_back_as_they_were_written(tmp_path, runs):
    rows = rows_of(runs)
    write(tmp_path, rows)
    assert list(read_series(tmp_path, run_id="r1")) == rows


@pytest.mark.parametrize("torn", [b"{", b'{"run_id": "r1", "key"', b"x" * 200_000])
def test_a_torn_last_line_is_passed_over_and_cut_off_before_the_next_row(tmp_path, runs, torn):
    rows = rows_of(runs)
    write(tmp_path, rows[:2])
    with (tmp_path / NAME).open("ab") as stream:
        stream.write(torn)
    assert list(read_series(tmp_path)) == rows[:2]
    write(tmp_path, rows[2:])
    assert list(read_series(tmp_path)) == rows


def test_a_file_that_is_nothing_but_a_torn_line_is_emptied(tmp_path, runs):
    (tmp_path / NAME).write_bytes(b'{"half')
    assert list(read_series(tmp_path)) == []
    write(tmp_path, rows_of(runs)[:1])
    assert len(list(read_series(tmp_path))) == 1


def test_a_folder_without_a_series_has_no_rows(tmp_path):
    assert list(read_series(tmp_path)) == []


def test_a_write_that_fails_half_way_is_taken_back(tmp_path, runs, monkeypatch):
    rows = rows_of(runs)
    series = Series(tmp_path / NAME)
    series.append(encode_row("r1", rows[0]))
    real = __import__("os").write
    calls = []

    def full(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, bytes(data)[:50])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proctor.runfolder.series.os.write", full)
    with pytest.raises(StoreError, match="no space is left"):
        series.append(encode_row("r1", rows[1]))
    monkeypatch.undo()
    series.append(encode_row("r1", rows[2]))
    series.close()
    series.close()
    assert list(read_series(tmp_path)) == [rows[0], rows[2]]


def test_the_series_is_never_opened_through_a_link(tmp_path):
    (tmp_path / "target").write_text("")
    (tmp_path / NAME).symlink_to(tmp_path / "target")
    with pytest.raises(StoreError, match="cannot be written"):
        Series(tmp_path / NAME)
    with pytest.raises(UsageError, match="a link"):
        list(read_series(tmp_path))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"counts": 1}, "'counts': expected `bool`, got `int`"),
        ({"outcome": "victory"}, "'outcome': invalid enum value 'victory'"),
        ({"index": -1}, "'index': expected `int` >= 0"),
        ({"index": 2**70}, "'index': expected `int` <= 9223372036854775807"),
        ({"index": True}, "'index': expected `int`, got `bool`"),
        ({"number": "1"}, "'number': expected `int`, got `str`"),
        ({"key": None}, "'key': expected `str`, got `null`"),
        ({"kind": "magic"}, "'kind': invalid enum value 'magic'"),
        ({"params": []}, "'params': expected `object`, got `array`"),
        ({"iterations": [1]}, r"'iterations\[0\]': expected `object`, got `int`"),
        ({"notes": [1]}, r"'notes\[0\]': expected `str`, got `int`"),
        ({"failure": {"phase": "x"}}, "'failure.type' is missing"),
        ({"failure": [1]}, "'failure': expected `object | null`, got `array`"),
        ({"artifacts": [3]}, r"'artifacts\[0\]': expected `object`, got `int`"),
        (
            {"artifacts": [{"name": "a", "digest": "d", "size_bytes": -4}]},
            r"size_bytes': expected `int` >= 0",
        ),
        ({"run_id": "other"}, "a row of run 'other' in the folder of run 'r1'"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path, runs, change, reason):
    row = json.loads(encode_row("r1", rows_of(runs)[0]))
    row.update(change)
    (tmp_path / NAME).write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=reason) as error:
        list(read_series(tmp_path, run_id="r1"))
    assert f"{NAME}:1" in str(error.value)


def test_a_missing_field_and_a_line_that_is_no_object_are_refused(tmp_path, runs):
    row = json.loads(encode_row("r1", rows_of(runs)[0]))
    del row["outcome"]
    (tmp_path / NAME).write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match="'outcome' is missing"):
        list(read_series(tmp_path))
    (tmp_path / NAME).write_text("[]\n")
    with pytest.raises(UsageError, match="a JSON object is expected"):
        list(read_series(tmp_path))


def test_fields_of_a_later_version_are_ignored(tmp_path, runs):
    rows = rows_of(runs)[:1]
    row = json.loads(encode_row("r1", rows[0])) | {"invented_later": {"x": 1}}
    (tmp_path / NAME).write_text(json.dumps(row) + "\n")
    assert list(read_series(tmp_path)) == rows


def test_an_endless_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("proctor.runfolder.series.MAX_LINE_BYTES", 100)
    (tmp_path / NAME).write_bytes(b"x" * 300)
    with pytest.raises(UsageError, match="a line of more than"):
        list(read_series(tmp_path))
