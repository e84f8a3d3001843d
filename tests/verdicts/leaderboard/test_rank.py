from __future__ import annotations

import pytest

from proctor.analysis.claim import Claim
from proctor.analysis.estimate import TaskRewards, denominators
from proctor.model.document import to_mapping
from proctor.render.document.markdown import markdown
from proctor.render.results.leaderboard import leaderboard
from proctor.render.results.leaderboard import to_mapping as numbers
from proctor.verdicts.leaderboard.rank import Entrant, rank
from proctor.verdicts.leaderboard.words import headline, method, ties

TASKS = [f"task-{at}" for at in range(20)]


def entrant(label, passed, *, of=5, tasks=TASKS, errors=0, **more):
    """One that passes so many of five rollouts of every task."""
    rewards = dict.fromkeys(tasks, (1.0,) * passed + (0.0,) * (of - passed))
    known = [TaskRewards(name=task, scored=scored, errors=errors) for task, scored in rewards.items()]
    return Entrant(
        label=label, run_id="r", run_name="run", agent=label, model=None, rewards=rewards,
        passes=denominators(known), score=denominators(known), scored=of * len(tasks),
        passed=passed * len(tasks), errors=errors * len(tasks), **more,
    )  # fmt: skip


def test_who_is_certainly_ahead_has_a_place_of_its_own():
    board = rank([entrant("weak", 1), entrant("strong", 5), entrant("middle", 3)])
    assert [(each.entrant.label, each.place) for each in board.standings] == [
        ("strong", "1"), ("middle", "2"), ("weak", "3"),
    ]  # fmt: skip
    assert board.certain == 3
    assert headline(board).startswith("strong is ahead of all 2 others: it passes 100 %")
    assert ties(board.standings[1]) == "ahead of weak; behind strong"


def test_a_tie_is_a_range_of_places_and_is_said_in_words():
    board = rank([entrant("half", 2), entrant("same", 2), entrant("none", 0)])
    assert [each.place for each in board.standings] == ["1–2", "1–2", "3"]
    assert ties(board.standings[0]) == "ahead of none; not told apart from same"
    assert headline(board).startswith("half and same may each be first; half has the highest pass rate, 40 %")
    assert "all 3 pairs corrected together (Holm): 2 are certain, 1 is not" in method(board)


def test_all_pairs_are_corrected_together():
    """A difference that would convince alone does not among many."""
    few = TASKS[:7]
    pair = rank([entrant("a", 5, tasks=few), entrant("b", 4, tasks=few)], these_tasks=False)
    crowd = rank(
        [entrant("a", 5, tasks=few), *(entrant(f"b{at}", 4, tasks=few) for at in range(8))], these_tasks=False
    )
    assert pair.standings[0].place == "1"
    assert crowd.standings[0].place == "1–9"
    assert headline(crowd).startswith("Nobody is certainly ahead of all others: a, b0")


def test_strangers_have_no_order():
    board = rank([entrant("a", 5, tasks=["x"]), entrant("b", 0, tasks=["y", "z"], errors=1)])
    assert [each.place for each in board.standings] == ["1–2", "1–2"]
    assert board.duels[0].scores is None
    assert [each.partition(":")[0] for each in board.warnings] == [
        "no common task with a scored rollout",
        "not everybody did the same tasks",
        "rollouts with an error that the agent did not cause are left out",
    ]
    assert "no common task" in markdown(leaderboard(board))


def test_few_tasks_make_a_claim_about_these_tasks_only():
    board = rank([entrant("a", 5, tasks=TASKS[:3]), entrant("b", 0, tasks=TASKS[:3])])
    assert board.claim is Claim.THESE_TASKS
    assert board.standings[0].place == "1"
    assert "the order is certain" in method(board)


def test_one_alone_and_nobody_scored():
    alone = rank([entrant("a", 5)])
    assert headline(alone).startswith("a is alone: 100 % (")
    assert alone.claim is Claim.TASKS_LIKE_THESE
    assert method(alone) == ""
    nothing = rank([entrant("a", 0, of=0), entrant("b", 0, of=0)])
    assert headline(nothing) == "None of 2 competitors has a scored rollout."


def test_the_document_has_places_costs_and_every_pair():
    costs = [entrant("dear", 5, cost_usd=10.0, unknown_cost=2), entrant("cheap", 1, cost_usd=1.0)]
    board = rank(costs)
    document = to_mapping(leaderboard(board))
    places, _, pairs = (section["blocks"][0] for section in document["sections"])
    titles = [each["title"] for each in places["columns"]]
    assert titles[-2:] == ["cost", "per pass"]
    assert places["rows"][0][0]["text"] == "1"
    assert places["rows"][0][titles.index("cost")]["note"] == "at least"
    assert pairs["rows"][0][0] == "dear against cheap"
    assert pairs["rows"][0][1]["value"] == pytest.approx(0.8)
    assert numbers(board)["standings"][1]["behind"] == ["dear"]
