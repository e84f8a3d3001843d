"""A process opens its store, its blobs and its broker once, and hands them down."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proctor.engine.celery import publisher
from proctor.engine.stop import Stop
from proctor.model.trial import RunStatus
from proctor.runs import process_resources
from proctor.runs.process_resources import Resources
from proctor.runs.running import create, execute, reopen
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store import open as opening

SOURCE = Path(process_resources.__file__).parents[1]
OPENERS = {"open_store", "open_blobs", "blobs_of", "StorePool", "make_app", "Broker"}
MAY_OPEN = {
    "api.py": "a script or a notebook is the process",
    "runs/process_resources.py": "for whoever is the process",
    "store/open.py": "the pool opens what it lends",
    "store/blobs.py": "the blobs of the settings are those at an address",
    "store/backup.py": "a copy is a store of its own",
    "tables/frame.py": "`proctor.load`, called by a notebook",
    "engine/celery/__init__.py": "`celery -A` imports the app from here",
    "engine/celery/publisher.py": "a broker has its app",
}


EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("short")
class Short(Experiment):
    def execute_once(self, context):
        return {}
"""


class Silent:
    def started(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", output_dir=tmp_path / "results")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often something was opened."""
    count: Counter[str] = Counter()

    def counting(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **more: Any) -> Any:
            count[name] += 1
            return real(*args, **more)

        monkeypatch.setattr(module, name, call)

    counting(opening, "open_store")
    counting(process_resources, "blobs_of")
    counting(publisher, "make_app")
    return count


def spec_of(folder: Path, name: str) -> Any:
    source = folder / "short.py"
    source.write_text(EXPERIMENT)
    written = {"name": name, "experiment": "short", "sources": [str(source)]}
    return from_mapping(written), written


def test_only_who_is_the_process_opens_a_store_or_blobs_or_a_broker():
    found = set()
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            name = (
                getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            )
            if name in OPENERS and not where.startswith("cli/"):
                found.add(where)
    assert found == set(MAY_OPEN)


def test_many_runs_of_a_process_use_one_store_and_one_client_of_blobs(
    settings: Settings, opened: Counter[str], tmp_path: Path
):
    with Resources(settings) as resources:
        for number in range(3):
            run = create(*spec_of(tmp_path, f"r{number}"), resources)
            again = reopen(run.info.id, resources)
            assert asyncio.run(execute(again, listener=Silent(), stop=Stop())) is RunStatus.DONE
    assert opened == {"open_store": 1, "blobs_of": 1}


def test_those_who_borrow_at_the_same_time_have_a_connection_each_which_is_used_again(
    settings: Settings, opened: Counter[str]
):
    with Resources(settings) as resources:
        for _ in range(3):
            with resources.stores.borrow() as one, resources.stores.borrow() as other:
                assert one is not other
        assert opened["open_store"] == 2


def test_a_store_in_another_place_is_shared_by_all_who_borrow_it(postgres_url: str, opened: Counter[str]):
    with opening.StorePool(postgres_url) as stores:
        with stores.borrow() as one, stores.borrow() as other:
            assert one is other
        assert opened["open_store"] == 1
    with stores.borrow() as later:
        assert later is not one
        assert later.runs() == []


def test_after_the_end_what_is_lent_is_closed_and_nothing_is_kept(settings: Settings, opened: Counter[str]):
    resources = Resources(settings)
    with resources.stores.borrow() as store:
        resources.close()
        assert store.runs() == []
    assert store._db._connection is None
    for _ in range(2):
        assert resources.stores.now(lambda store: store.runs()) == []
    assert opened["open_store"] == 3


def test_a_file_that_comes_into_being_is_seen_by_who_looked_before(settings: Settings, tmp_path: Path):
    reading = Resources(settings, create=False)
    assert reading.stores.now(lambda store: store.runs()) == []
    assert not Path(settings.store_url).exists()
    with Resources(settings) as resources:
        create(*spec_of(tmp_path, "new"), resources)
    assert [run.name for run in reading.stores.now(lambda store: store.runs())] == ["new"]


def test_a_project_has_settings_and_keys_of_its_own_and_shares_the_rest(
    settings: Settings, opened: Counter[str]
):
    ours = Resources(settings, {"KEY": "ours"})
    theirs = ours.for_project(Settings(home=settings.home, model_api_key="x"), {"KEY": "theirs"})
    assert (ours.environ["KEY"], theirs.environ["KEY"]) == ("ours", "theirs")
    assert theirs.settings.model_api_key == "x"
    assert theirs.blobs is ours.blobs
    assert (theirs.stores, theirs.backends) == (ours.stores, ours.backends)
    assert opened["blobs_of"] == 1


def test_all_who_publish_share_one_app(tmp_path: Path, opened: Counter[str]):
    resources = Resources(Settings(home=tmp_path, broker="redis://127.0.0.1:1/0"))
    apps = {publisher.Publisher(resources.broker)._app for _ in range(3)}
    assert len(apps) == 1
    assert opened["make_app"] == 1
