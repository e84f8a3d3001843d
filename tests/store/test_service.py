"""What a server keeps, on both databases."""

from __future__ import annotations

import time

import pytest

from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.service.accounts import Project
from proctor.store.service.answers import AnsweredError, Asked, write_made
from proctor.store.service.ownership import Owner
from proctor.store.service.uploads import Upload

RUN = "20260101-aaaa"


@pytest.fixture
def store(store_url: str, make):
    with open_store(store_url) as found:
        make.run(found)
        yield found


def upload(**more: object) -> Upload:
    given: dict[str, object] = {
        "id": "up_1",
        "project": "default",
        "owner": "ada",
        "name": "hello",
        "filename": "hello.zip",
        "size_bytes": 10,
        "blob": "b" * 64,
        "digest": "d" * 64,
        "subject": "org/hello",
        "findings": [{"level": "hint", "message": "x"}],
        "agent": "oracle",
        "num_runs": 3,
    }
    return Upload(**(given | more))  # type: ignore[arg-type]


def test_a_token_is_found_by_its_hash_until_it_ends(store):
    accounts = store.service.accounts
    given = {"name": "n", "user": "ada", "project": "default", "scopes": ["run", "read"]}
    accounts.add_token("t1", "h1", **given, expires_at=None)
    accounts.add_token("t2", "h2", **given, expires_at=time.time() - 5)
    found = accounts.token_by_hash("h1")
    assert (found.id, found.scopes, found.user) == ("t1", ("read", "run"), "ada")
    assert accounts.token_by_hash("h2") is None
    accounts.add_session("s1", "t1", 60.0)
    assert accounts.token_by_session("s1").id == "t1"
    accounts.used(["t1"])
    assert accounts.token("t1").used_at
    assert [each.id for each in accounts.tokens()] == ["t1", "t2"]
    accounts.end_session("s1")
    assert accounts.token_by_session("s1") is None
    assert accounts.revoke("t1")
    assert not accounts.revoke("t1")
    assert accounts.token_by_hash("h1") is None
    assert accounts.disable("ada", disabled=True)
    assert accounts.users() == [("ada", accounts.users()[0][1], True)]


def test_projects_have_quotas_and_members(store):
    accounts = store.service.accounts
    accounts.put_project(Project("red", "Red", max_runs=2, day_usd=1.5))
    assert accounts.project("red").max_runs == 2
    assert [each.id for each in accounts.projects()] == ["default", "red"]
    assert [each.id for each in accounts.projects("red")] == ["red"]
    accounts.add_member("red", "bob")
    assert accounts.members("red") == ["bob"]
    assert accounts.projects_of("bob") == ["red"]
    assert accounts.remove_member("red", "bob")
    assert not accounts.remove_member("red", "bob")
    assert accounts.members("red") == []
    assert accounts.spent_today_usd("red") == 0.0
    assert store.service.usual.costs(["x"], None) == {}
    assert store.service.usual.times(["x"], "red") == {}
    assert accounts.delete_project("red")
    assert not accounts.delete_project("default")


def test_a_run_belongs_to_its_project_and_to_no_other(store, make):
    store.service.accounts.put_project(Project("red", "Red"))
    make.run(store, "20260101-bbbb")
    with store._db.write() as tx:
        from proctor.store.service.ownership import own

        own(tx, "20260101-bbbb", Owner(project="red", user="ada"))
    find = store.service.ownership.find
    assert find("20260101-bbbb", "red") == find("20260101-bbbb", None) == "20260101-bbbb"
    assert find("20260101-bbbb", "default") is None
    assert find("20260101-b", "default") is None
    assert find("20260101-b", "red") == find("latest", "red") == "20260101-bbbb"
    assert find(RUN, "default") == RUN
    assert [run.id for run in store.runs(project="red")] == ["20260101-bbbb"]
    assert [run.id for run in store.runs(project="default")] == [RUN]
    assert store.service.ownership.place(RUN).project == "default"
    assert not store.service.accounts.delete_project("red")


def test_the_queue_holds_what_is_wanted(store):
    queue = store.service.queue
    queue.want(RUN, wanted=True, owner="ada", event="run.queued")
    (found,) = queue.waiting()
    assert (found.run_id, found.owner, found.project, found.status) == (RUN, "ada", "default", "pending")
    assert queue.depth()[0] == 1
    assert queue.open_runs("default") == 1
    queue.set_priority(RUN, 5)
    assert queue.waiting()[0].priority == 5
    assert queue.wanted([RUN, "x"]) == {RUN}
    queue.want(RUN, wanted=False, failure="no sandbox")
    assert queue.waiting() == []
    assert store.service.ownership.place(RUN).failure == "no sandbox"
    assert "run.queued" in [event.kind for event in store.events(run_id=RUN)]


def test_one_trial_can_be_let_go_while_others_are_held(store):
    rollouts = store.service.rollouts
    total = len(rollouts.of(RUN))
    rollouts.hold_others(RUN, 1)
    assert rollouts.only_held([RUN]) == set()
    store.set_status(RUN, RunStatus.RUNNING)
    assert rollouts.only_held([RUN]) == set()
    store.cancel(RUN)
    assert len(rollouts.of(RUN, 1)) == 1
    assert (rollouts.planned(None), rollouts.judged()) == (0, (0, 0))
    rollouts.let_go(RUN)
    assert total == len(rollouts.of(RUN))


def test_uploads_are_found_by_id_name_and_content(store):
    uploads = store.service.uploads
    uploads.add(upload())
    found = uploads.find("up_1", "default")
    assert found.findings == [{"level": "hint", "message": "x"}]
    assert uploads.find("up_1", "red") is None
    assert uploads.named("hello", None).id == uploads.named("org/hello", "default").id == "up_1"
    assert uploads.same("d" * 64, "default").id == "up_1"
    assert [each.id for each in uploads.page(None, status="pending")] == ["up_1"]
    assert uploads.page("default", status="completed") == []
    uploads.set_run("up_1", RUN)
    uploads.set_check("up_1", RUN)
    assert uploads.count("default", "pending") == 1
    assert uploads.stored_tasks("default") == []
    assert "b" * 64 in store.live_blobs()
    store.delete_run(RUN)
    assert uploads.find("up_1", None).run_id is None
    uploads.delete("up_1")
    assert uploads.find("up_1", None) is None


def test_keys_of_one_run_are_for_that_run(store):
    keys = store.service.keys
    keys.put("default", "OPENAI_API_KEY", b"project", hint="…ject", by="ada")
    keys.put("default", "OPENAI_API_KEY", b"project2", hint="…ect2", by="ada")
    keys.put_for_run("default", RUN, "OPENAI_API_KEY", b"run", by="ada")
    assert keys.values("default") == {"OPENAI_API_KEY": b"project2"}
    assert keys.values("default", RUN) == {"OPENAI_API_KEY": b"run"}
    assert [each.hint for each in keys.listed("default")] == ["…ect2"]
    keys.forget_run("default", RUN)
    assert keys.values("default", RUN) == {"OPENAI_API_KEY": b"project2"}
    assert keys.delete("default", "OPENAI_API_KEY")
    assert not keys.delete("default", "OPENAI_API_KEY")


def test_an_answer_is_kept_for_its_key(store):
    answers = store.service.answers
    assert answers.claim("t", "k", "f") is None
    assert answers.claim("t", "k", "f").status == 0
    answers.keep("t", "k", status=201, kind="application/json", body=b"{}")
    found = answers.claim("t", "k", "f")
    assert (found.status, found.body) == (201, b"{}")
    answers.drop("t", "k")
    assert answers.claim("t", "k", "other") is None


def test_a_run_is_made_once_for_a_key(store, make):
    answers, asked = store.service.answers, Asked("t", "k", "f")
    assert answers.find(asked) is None

    def make_run(run: str) -> None:
        store.create_run(
            make.info(run), make.plan(), (), Owner(also=lambda tx, made: write_made(tx, asked, made))
        )

    make_run("20260101-dddd")
    with pytest.raises(AnsweredError):
        make_run("20260101-eeee")
    assert {"20260101-dddd", "20260101-eeee"} & {each.id for each in store.runs()} == {"20260101-dddd"}
    assert answers.find(asked).run_id == "20260101-dddd"
    assert answers.claim("t", "k", "f").run_id == "20260101-dddd"
    answers.keep("t", "k", status=201, kind="application/json", body=b"{}")
    assert answers.find(asked).run_id is None


def test_figures_count_what_a_caller_sees(store, make):
    make.answered(store, "20260101-cccc")
    figures = store.service.monitor.figures(None)
    assert figures.outcomes == {"passed": 3}
    assert figures.attempts == {"passed": 3}
    assert figures.waiting_trials == 3
    assert store.service.monitor.figures("red").outcomes == {}
    assert store.service.monitor.answers()


def test_the_audit_log_is_read_backwards(store):
    audit = store.service.audit
    audit.add("ada", "run.cancel", RUN, project="default", why="slow")
    audit.add("bob", "run.delete", RUN, project="red")
    assert [each.actor for each in audit.page(None)] == ["bob", "ada"]
    first = audit.page("default")[0]
    assert first.detail == {"why": "slow"}
    assert audit.page(None, before=first.id) == []


def test_words_about_a_run_are_changed(store):
    from msgspec import structs

    store.set_words(structs.replace(store.run(RUN), name="better", notes="n", tags=("a",)))
    found = store.run(RUN)
    assert (found.name, found.notes, found.tags) == ("better", "n", ("a",))
