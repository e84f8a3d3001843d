"""A byte that changed on the disk is a sentence, whichever row it is in."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.errors import StoreError
from proctor.settings import load_settings
from proctor.store.database import damaged, decodes, decodes_each
from proctor.store.rows import attempt_record, pack, result_rows, unpack

READING = (
    ["ls"], ["show", "latest"], ["report", "latest"], ["compare", "latest", "latest"], ["logs", "latest"],
    ["gate", "latest"], ["history", "latest"], ["summarize", "latest"],
)  # fmt: skip


def test_a_flipped_byte_anywhere_in_the_store_gives_no_traceback(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(
        '{"experiment": "memory_db", "params": {"num_steps": 2}, "iterations": 2,'
        ' "sweep": {"num_agents": [2, 3]}}'
    )
    assert main(["run", "s.json"]) == 0
    store = Path(load_settings().store_url)
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data, rng, codes = store.read_bytes(), random.Random(1), set()
    for _ in range(40):
        at = rng.choice([at for at in range(len(data)) if data[at]])
        for log in store.parent.glob(f"{store.name}-*"):
            log.unlink()
        store.write_bytes(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
        codes |= {main(words) for words in READING}
    assert codes <= {0, 1, 2, 3, 4, 5}
    assert 5 in codes
    shutil.rmtree(store.parent)
    capsys.readouterr()


def test_documents_that_cannot_be_decoded_are_damaged():
    whole = pack({"iterations": [{"a": 1.5}], "metrics": {"b": "x" * 5000}})
    for wrong in (whole[:-3], whole[:20] + b"zz" + whole[22:], b"{", b'{"metrics":\xff}'):
        with pytest.raises(StoreError, match="a row of the store is damaged"):
            unpack(wrong)
        with pytest.raises(StoreError, match="a row of the store is damaged"):
            attempt_record((1, "passed", 1, 1.0, 2.0, None, "w", wrong), "k")
        with pytest.raises(StoreError, match="a row of the store is damaged"):
            list(result_rows([result_row(wrong)]))


def result_row(body):
    doc = '{"params":{},"overrides":{},"seed":0,"path":null}'
    return (0, "k", "experiment", "s", None, None, doc, 1, "passed", 1.0, 2.0, None, None, "digest", body)


def test_other_errors_pass_through():
    @decodes
    def out_of_memory() -> None:
        raise MemoryError

    @decodes_each
    def numbers():
        yield 1
        raise KeyError("gone")

    with pytest.raises(MemoryError):
        out_of_memory()
    found = numbers()
    assert next(found) == 1
    with pytest.raises(StoreError, match="'gone'"):
        next(found)
    assert "proctor doctor" in str(damaged("x"))
