from __future__ import annotations

import io
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from proctor.receipt import container
from proctor.receipt.container import Packer, free_bytes, order


def pack(path, files):
    with path.open("w+b") as sink:
        packer = Packer(sink)
        written = {name: packer.add(name, io.BytesIO(data), len(data)) for name, data in files.items()}
        packer.close()
    return written


DATA = Path(__file__).parents[1] / "data" / "receipts"
FILES = {"a.txt": b"", "b.txt": b"text " * 50, "ü/é.bin": bytes(range(256)), "z": b"0" * 200_000}


def test_any_zip_reader_reads_it_and_no_byte_is_free(tmp_path):
    written = pack(tmp_path / "a.zip", FILES)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
        methods = {info.filename: info.compress_type for info in archive.infolist()}
        assert methods["b.txt"] == container.DEFLATED
        assert methods["z"] == container.STORED, "what would look like a bomb is stored as it is"
        packed = {name: each.packed for name, each in written.items()}
        assert list(free_bytes(tmp_path / "a.zip", archive.infolist(), packed)) == []


def test_large_and_many_files_are_written_in_64_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    monkeypatch.setattr(container, "_LARGE", 90)
    pack(tmp_path / "a.zip", FILES)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
        assert list(free_bytes(tmp_path / "a.zip", archive.infolist(), {})) == []
    assert b"PK\6\6" in (tmp_path / "a.zip").read_bytes()


def test_the_64_bits_of_version_0_1_are_still_known(tmp_path, monkeypatch):
    """Written by its own writer, told that 100 bytes are large and 3 files many."""
    monkeypatch.setattr(container, "_LIMITS_OF_0_1", {"ZIP64_LIMIT": 99, "ZIP_FILECOUNT_LIMIT": 2})
    kept = DATA / "64-bit-0.1.0.zip"
    with zipfile.ZipFile(kept) as archive:
        infos = archive.infolist()
        assert list(free_bytes(kept, infos, {})) == []
    content = kept.read_bytes()
    for at in (*range(30), *range(archive.start_dir, len(content))):
        (tmp_path / "a.zip").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert list(free_bytes(tmp_path / "a.zip", infos, {})), at
    assert zipfile.ZIP64_LIMIT == (1 << 31) - 1, "nothing stays changed"


@pytest.mark.parametrize("kind", ["experiment", "task"])
def test_the_same_files_give_the_bytes_that_version_0_1_wrote(tmp_path, kind):
    kept = DATA / f"{kind}-0.1.0.receipt.zip"
    with (
        zipfile.ZipFile(kept) as archive,
        (tmp_path / "a.zip").open("w+b") as sink,
        closing(Packer(sink)) as packer,
    ):
        for info in archive.infolist():
            data = archive.read(info)
            packer.add(info.filename, io.BytesIO(data), len(data), deflate=info.filename != "receipt.json")
    assert (tmp_path / "a.zip").read_bytes() == kept.read_bytes()


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path):
    with (
        (tmp_path / "a.zip").open("w+b") as sink,
        closing(Packer(sink)) as packer,
        pytest.raises(ValueError, match="changed while"),
    ):
        packer.add("a", io.BytesIO(b"abc"), 2)


def test_what_another_program_wrote_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.comment = b"hello"
        for name in ("b", "a", "c"):
            archive.writestr(name, "text")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        told = list(free_bytes(tmp_path / "a.zip", archive.infolist(), {"a": "0"}))
    assert ("b", "the header in the archive is not the one that a receipt has") in told
    assert ("a", "its packed bytes differ from those that were written") in told
    assert ("the archive", "does not end as a receipt does") in told
    assert ("the archive", "its files are not in order") in told


def test_a_gap_between_files_is_told(tmp_path):
    pack(tmp_path / "a.zip", {"a": b"one", "b": b"two"})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        infos = archive.infolist()
        infos[1].header_offset += 4
        told = list(free_bytes(tmp_path / "a.zip", infos, {}))
    assert any(name == "b" and "begins at byte" in what for name, what in told)


def test_the_run_comes_first_and_then_trial_by_trial():
    names = [
        "trials/t/10/result.json",
        "summary.json",
        "trials/a/2/x",
        "trials/t/2.attempt-2/x",
        "trials/notes",
    ]
    assert sorted(names, key=order) == [names[1], names[4], names[2], names[3], names[0]]
