from __future__ import annotations

from proctor.model.place import attempt_folder, safe_name, trial_folder
from proctor.model.plan import PlannedTrial


def test_names_become_harmless_and_stay_different():
    assert safe_name("sort_list-2.0") == "sort_list-2.0"
    names = {
        safe_name(text) for text in ("org/task", "org task", "../..", "..", "", "\0", "ä" * 300, ".hidden")
    }
    assert len(names) == 8
    for name in names:
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name) <= 90


def trial(subject: str) -> PlannedTrial:
    return PlannedTrial(key="k", index=7, kind="task", subject=subject, subject_digest="d", body=0)


def test_a_task_keeps_a_readable_folder_and_a_hostile_name_stays_inside():
    assert trial_folder(trial("org/fix-it")) == "trials/org__fix-it/7"
    for name in ("..", "../../etc", "/etc/passwd", "a\0b", ""):
        parts = trial_folder(trial(name)).split("/")
        assert len(parts) == 3
        assert ".." not in parts
        assert "" not in parts


def test_later_attempts_stand_beside_the_first():
    assert attempt_folder(trial("t"), 1) == "trials/t/7"
    assert attempt_folder(trial("t"), 3) == "trials/t/7.attempt-3"
