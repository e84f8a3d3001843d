from __future__ import annotations

import json
import os

import pytest

from proctor.errors import StoreError, UsageError
from proctor.runfolder.files import (
    decode,
    encode,
    read_document,
    regular_file,
    write_atomic,
    write_json,
)


def test_what_is_not_finite_becomes_null():
    assert json.loads(encode({"a": [1.0, float("nan"), {"b": float("inf")}]})) == {
        "a": [1.0, None, {"b": None}]
    }


def test_a_lone_surrogate_survives_the_round_trip():
    text = "broken \udc80 name"
    assert json.loads(encode({"a": text}).encode()) == {"a": text}
    assert "µ" in encode({"a": "µ"})


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(StoreError, match="no space is left"):
        write_atomic(path, "half")
    assert json.loads(path.read_text()) == {"a": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.needs("root")
def test_a_full_disk_is_a_clear_error_and_nothing_is_half_written(tmp_path):
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        write_atomic(small / "a", "x" * 1000)
        with pytest.raises(StoreError, match="no space is left"):
            write_atomic(small / "a", "y" * 200_000)
        assert (small / "a").read_text() == "x" * 1000
        assert [each.name for each in small.iterdir()] == ["a"]
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": %s}' % ("9" * 400), "400 digits"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe{", "not valid JSON"),
    ],
)
def test_json_from_a_stranger_is_refused_with_its_place(text, reason):
    with pytest.raises(UsageError, match=reason) as error:
        decode(text if isinstance(text, bytes) else text.encode(), "here:1")
    assert str(error.value).startswith("here:1")


@pytest.mark.parametrize("name", ["../x", "a/../b", "/etc/passwd", "a//b", "", ".", "a\0b"])
def test_a_path_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="not a path inside"):
        regular_file(tmp_path, name)


def test_links_devices_and_folders_are_refused(tmp_path):
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "inside").symlink_to(tmp_path / "folder")
    (tmp_path / "folder" / "deep").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    assert regular_file(tmp_path, "folder/deep").read_text() == "{}"
    for name in ("link", "inside/deep"):
        with pytest.raises(UsageError, match="a link"):
            regular_file(tmp_path, name)
    for name in ("folder", "pipe"):
        with pytest.raises(UsageError, match="only plain files"):
            regular_file(tmp_path, name)
    with pytest.raises(UsageError, match="No such file"):
        regular_file(tmp_path, "absent")


def test_a_document_must_be_an_object_of_bearable_size(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(UsageError, match="a JSON object"):
        read_document(tmp_path, "a.json")
    monkeypatch.setattr("proctor.runfolder.files.MAX_DOCUMENT_BYTES", 2)
    with pytest.raises(UsageError, match="larger than"):
        read_document(tmp_path, "a.json")


def test_a_long_list_has_an_item_on_each_line_and_a_short_one_is_broken_up():
    item = {"name": "x" * 60, "values": list(range(40))}
    short, long = (encode({"items": [item] * count}, indent=True) for count in (2, 300))
    assert json.loads(short) == {"items": [item] * 2}
    assert json.loads(long) == {"items": [item] * 300}
    assert max(map(len, short.splitlines())) < 200
    assert len(long.splitlines()) == 304


def test_lines_have_a_value_each_and_are_what_was_written():
    text = encode({"a": 1, "b": {"c": None}, "d": float("nan")}, lines=True)
    assert text.splitlines() == ['{"a": 1,', ' "b": {"c": null},', ' "d": null}']
