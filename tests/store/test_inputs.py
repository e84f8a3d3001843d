"""What runs are made from: kept as long as a run needs it, and found again by name."""

from __future__ import annotations

from proctor.store.inputs import Input

TASK = Input("task/abc", "a" * 64, 10)
SOURCE = Input("source/0001", "b" * 64, 20, "::mine.module")


def test_a_run_has_its_inputs_and_refers_to_their_blobs(store, make):
    store.create_run(make.info("r1"), make.plan(), [TASK, SOURCE])
    assert store.inputs.of("r1") == {TASK.name: TASK, SOURCE.name: SOURCE}
    assert store.inputs.of("nobody") == {}
    assert store.live_blobs() == {TASK.digest, SOURCE.digest}
    assert store.blob_bytes("r1") == 30


def test_what_another_run_has_is_found_by_name(store, make):
    store.create_run(make.info("r1"), make.plan(), [TASK])
    names = [TASK.name, "task/other", *(f"task/{number}" for number in range(1200))]
    assert store.inputs.known(names) == {TASK.name: TASK}
    assert store.inputs.known([]) == {}


def test_it_goes_with_the_last_run_that_needs_it(store, make):
    store.create_run(make.info("r1"), make.plan(), [TASK, SOURCE])
    store.create_run(make.info("r2"), make.plan(), [TASK])
    assert store.delete_run("r1") == [SOURCE.digest]
    assert store.inputs.known([TASK.name, SOURCE.name]) == {TASK.name: TASK}
    assert store.delete_run("r2") == [TASK.digest]
    assert store.live_blobs() == set()
