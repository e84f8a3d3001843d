"""What only a file can suffer: full disks, other people's databases, damage, locks, missing rights."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proctor.errors import StoreError, UsageError
from proctor.model.trial import RunStatus
from proctor.store import queries
from proctor.store.open import open_store
from proctor.store.store import Store
from proctor.tasks.digest import task_digest

RUN = "20260101-aaaa"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class TestOpening:
    def test_a_path_and_an_address_mean_the_same_file(self, tmp_path: Path, make):
        path = tmp_path / "deep" / "er" / "with %41 space.db"
        with open_store(str(path)) as store:
            make.run(store)
        escaped = str(path).replace("%", "%25").replace(" ", "%20")
        with open_store(f"sqlite:///{escaped}") as store:
            assert store.run(RUN).total == 3

    def test_a_reader_makes_no_file(self, tmp_path: Path):
        path = tmp_path / "none" / "proctor.db"
        with open_store(str(path), create=False) as store:
            assert store.runs() == []
        assert not path.parent.exists()

    @pytest.mark.parametrize("url", ["mysql://x/y", "http://x", ""])
    def test_an_address_of_another_kind_is_refused(self, url: str):
        with pytest.raises(UsageError):
            open_store(url)

    @pytest.mark.parametrize(
        "look",
        [
            lambda path: path.read_bytes(),
            lambda path: os.close(os.open(path, os.O_RDONLY)),
            lambda path: shutil.copy2(path, path.with_name("copy")),
            lambda path: task_digest(path.parent),
        ],
    )
    @pytest.mark.parametrize("end", ["", "-wal", "-shm"])
    def test_nothing_but_the_driver_opens_a_file_that_is_in_use(self, tmp_path: Path, make, look, end):
        """Closing it drops SQLite's locks; the next process to end would remove the log in use."""
        path = tmp_path / "n.db"
        with open_store(str(path)) as store:
            make.run(store)
            with pytest.raises(OSError, match="the store, which is in use here"):
                look(path.with_name(path.name + end))
            log = path.with_name("n.db-wal").stat().st_ino
            program = f"from proctor.store.open import open_store; open_store({str(path)!r}).close()"
            subprocess.run([sys.executable, "-c", program], check=True)
            assert path.with_name("n.db-wal").stat().st_ino == log
        assert path.read_bytes()

    def test_the_file_is_tuned_for_many_processes(self, sqlite_store: Store):
        read = sqlite_store._db.read
        assert read("PRAGMA journal_mode")[0][0] == "wal"
        assert read("PRAGMA synchronous")[0][0] == 1
        assert read("PRAGMA foreign_keys")[0][0] == 1
        assert read("PRAGMA busy_timeout")[0][0] == 30_000

    def test_a_new_store_is_made_without_sqlalchemy(self, tmp_path: Path):
        program = (
            "import sys; from proctor.store.open import open_store; "
            f"open_store({str(tmp_path / 'n.db')!r}).close(); "
            "open_store(sys.argv[1]).close(); "
            "print(sorted({'sqlalchemy', 'alembic', 'numpy', 'asyncio'} & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "n.db")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "[]"

    def test_many_processes_make_one_store_at_once(self, tmp_path: Path):
        program = (
            "import sys; from proctor.store.open import open_store; print(open_store(sys.argv[1]).runs())"
        )
        starts = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path / "n.db")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for _ in range(4)
        ]
        assert [start.communicate()[0] for start in starts] == [b"[]\n"] * 4

    def test_a_file_that_a_killed_process_left_empty_is_taken_over(self, tmp_path: Path):
        (tmp_path / "n.db").touch()
        with open_store(str(tmp_path / "n.db")) as store:
            assert store.runs() == []

    def test_an_older_sqlite_is_refused_by_its_version(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
        with pytest.raises(StoreError, match=r"3\.37 or newer"):
            open_store(str(tmp_path / "n.db"))


class TestWrongFiles:
    def test_a_folder_is_not_a_store(self, tmp_path: Path):
        with pytest.raises(StoreError, match="is a folder, but the store must be a file"):
            open_store(str(tmp_path))

    def test_a_file_that_is_no_database_is_left_as_it_is(self, tmp_path: Path):
        path = tmp_path / "notes.txt"
        path.write_text("dear diary\n" * 100)
        with pytest.raises(StoreError, match="not a SQLite database"):
            open_store(str(path))
        assert path.read_text() == "dear diary\n" * 100

    def test_a_database_of_another_program_is_left_as_it_is(self, tmp_path: Path):
        path = tmp_path / "other.db"
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE runs (id)")
            other.commit()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="another program"):
            open_store(str(path))
        assert path.read_bytes() == before

    def test_a_parent_that_is_a_file_is_named(self, tmp_path: Path):
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="the folder of the store cannot be created"):
            open_store(str(tmp_path / "file" / "x.db"))

    def test_damage_is_found_and_said(self, tmp_path: Path, make):
        path = tmp_path / "n.db"
        with open_store(str(path)) as store:
            make.answered(store, size=300)
        with path.open("r+b") as file:
            pages = path.stat().st_size // 4096
            file.seek(4096 * (pages * 3 // 4))
            file.write(os.urandom(4096 * (pages // 4)))
        with open_store(str(path)) as store:
            found = " ".join(store.check())
            with pytest.raises(StoreError, match="damaged"):
                _read_everything(store)
        assert found

    def test_a_damaged_header_is_said_at_once(self, tmp_path: Path, make):
        path = tmp_path / "n.db"
        with open_store(str(path)) as store:
            make.run(store)
        with path.open("r+b") as file:
            file.write(b"x" * 50)
        with pytest.raises(StoreError, match="not a SQLite database"):
            open_store(str(path))


class TestLocks:
    def test_a_store_that_someone_holds_is_said_and_works_again_after(self, tmp_path: Path, make):
        path = tmp_path / "n.db"
        with open_store(str(path), busy_s=0.05) as store, closing(sqlite3.connect(path)) as other:
            make.run(store)
            other.execute("BEGIN IMMEDIATE")
            assert store.run(RUN).total == 3
            with pytest.raises(StoreError, match="another process has locked the store"):
                store.set_status(RUN, RunStatus.RUNNING)
            other.rollback()
            store.set_status(RUN, RunStatus.RUNNING)

    def test_a_writer_waits_for_another_to_end(self, tmp_path: Path, make):
        path = tmp_path / "n.db"
        with open_store(str(path)) as store, closing(sqlite3.connect(path, check_same_thread=False)) as other:
            make.run(store)
            other.execute("BEGIN IMMEDIATE")
            waiting = threading.Thread(target=store.set_status, args=(RUN, RunStatus.RUNNING))
            waiting.start()
            assert waiting.is_alive()
            other.rollback()
            waiting.join(20)
            assert store.run(RUN).status is RunStatus.RUNNING


@pytest.mark.parametrize(
    "sql",
    [
        queries.TAKEABLE,
        queries.TAKE,
        queries.RENEW,
        queries.FINISH,
        queries.UNFENCE,
        *(
            queries.HELD.format(where=where, tail="")
            for where in (queries.EXPIRED, queries.OF_WORKER, queries.OF_RUN)
        ),
        queries.HOLDERS,
        queries.STATES,
        queries.STALLED,
        queries.ATTEMPTS_PAGE,
        queries.TRIALS_PAGE,
        queries.RECENT_OF_SUBJECT,
        queries.EVENTS.format(where=queries.EVENT_OF_RUN),
    ],
)
def test_no_statement_on_the_way_of_a_trial_walks_a_whole_run(sqlite_store: Store, sql: str):
    params = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
    steps = [row[3] for row in sqlite_store._db.read(f"EXPLAIN QUERY PLAN {sql}", params)]
    walks = [step for step in steps if step.startswith("SCAN") and "trials_leased" not in step]
    walks += [step for step in steps if step.endswith("(run_id=?)") and "autoindex_trials" in step]
    assert walks == []


@pytest.mark.needs("root")
@pytest.mark.fault
class TestDisks:
    def test_a_full_disk_is_said_and_what_was_there_stays(self, small_disk: Path, make):
        path = str(small_disk / "n.db")
        with open_store(path) as store:
            make.answered(store)
            with pytest.raises(StoreError, match=r"disk is full|disk refused"):
                store.create_run(make.info("too-big"), make.plan(20_000))
            assert [run.id for run in store.runs()] == [RUN]
            assert store.check() == []
        with open_store(path) as store:
            assert store.counts(RUN) == {"passed": 3}
            make.run(store, "small-enough", 2)

    def test_a_disk_too_full_for_a_new_store_is_said(self, small_disk: Path):
        (small_disk / "filler").write_bytes(b"x" * (1 << 20))
        with pytest.raises(StoreError, match="disk"):
            open_store(str(small_disk / "n.db"))

    def test_a_store_on_a_read_only_disk_can_be_read(self, small_disk: Path, make):
        path = small_disk / "n.db"
        with open_store(str(path)) as store:
            make.answered(store)
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        with open_store(str(path)) as store:
            assert store.counts(RUN) == {"passed": 3}
            with pytest.raises(StoreError, match="is readable but not writable"):
                store.set_status(RUN, RunStatus.DONE)
        with pytest.raises(StoreError):
            open_store(str(small_disk / "new.db"))
        with pytest.raises(StoreError, match="the folder of the store cannot be created"):
            open_store(str(small_disk / "new" / "new.db"))

    def test_a_read_only_store_that_was_not_closed_says_what_to_copy(self, small_disk: Path, make):
        with open_store(str(small_disk.parent / "n.db")) as store:
            make.run(store)
            for name in ("n.db", "n.db-wal"):
                subprocess.run(["cp", small_disk.parent / name, small_disk / name], check=True)
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        with pytest.raises(StoreError, match=r"copy n\.db and n\.db-wal"):
            open_store(str(small_disk / "n.db"))

    def test_a_read_only_file_without_a_schema_is_refused(self, small_disk: Path):
        (small_disk / "n.db").touch()
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        with pytest.raises(StoreError, match="schema missing"):
            open_store(str(small_disk / "n.db"))


@pytest.mark.fault
def test_a_limit_on_file_size_is_said_and_what_was_there_stays(tmp_path: Path, make):
    path = tmp_path / "n.db"
    with open_store(str(path)) as store:
        make.answered(store)
    program = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from proctor.errors import StoreError
from proctor.store.open import open_store
store = open_store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    with store._db.write() as tx:
        for number in range(5000):
            tx.change("INSERT INTO events (run_id, at, kind, data) VALUES (:r, 1.0, 'x', :d)",
                      {"r": sys.argv[2], "d": "x" * 500})
except StoreError as error:
    print(error)
print(len(store.events()), store.check())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, path, RUN], capture_output=True, text=True, check=True
    )
    said, after = done.stdout.splitlines()
    assert "What was stored before is intact" in said
    assert after == "13 []"


@pytest.mark.fault
def test_a_writer_killed_at_any_moment_leaves_a_sound_store(tmp_path: Path, make):
    path = tmp_path / "n.db"
    with open_store(str(path)) as store:
        make.run(store, size=3000)
    program = """
import sys
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.store.open import open_store
store = open_store(sys.argv[1])
while begun := store.take(sys.argv[2], worker="victim", lease_s=30, limit=3).begun:
    for lease, _ in begun:
        store.finish(lease, AttemptRecord(key=lease.key, number=lease.attempt, outcome=Outcome.PASSED,
                     started_at=1.0, ended_at=2.0), counts=True)
        print(lease.index, flush=True)
"""
    promised: list[int] = []
    for round_ in range(5):
        with subprocess.Popen([sys.executable, "-c", program, path, RUN], stdout=subprocess.PIPE) as victim:
            lines = [victim.stdout.readline() for _ in range(5 + 7 * round_)]
            victim.send_signal(signal.SIGKILL)
            promised += [int(line) for line in (*lines, *victim.stdout) if line.endswith(b"\n")]
        with open_store(str(path)) as store:
            store.release_worker("victim")
            assert store.check() == []
    with open_store(str(path)) as store:
        counted = [row.trial.index for row in store.attempts(RUN, counted_only=True)]
        assert set(promised) <= set(counted)
        assert len(counted) == len(set(counted)) == store.run(RUN).done
        assert store.workers(RUN) == []
    assert len(promised) == len(set(promised))


def _read_everything(store: Store) -> None:
    list(store.attempts(RUN))
    list(store.planned(RUN))
    store.events()
