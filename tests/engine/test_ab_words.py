from __future__ import annotations

from dataclasses import replace

import pytest

from proctor.analysis.both_clocks import Finding
from proctor.analysis.lockstep import ClockFinding, SelfCheck, Verdict
from proctor.engine.ab import PointResult
from proctor.engine.ab_words import sentence

FASTER, SLOWER, SAME, OPEN = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.INCONCLUSIVE


def on(clock: str, verdict: Verdict, change: float) -> ClockFinding:
    return ClockFinding(
        clock=clock,
        verdict=verdict,
        margin=0.01 if clock == "cpu" else 0.03,
        pairs=6,
        change=change,
        low=change - 0.01,
        high=change + 0.01,
        level=0.98,
        p_value=0.001,
        noise=0.01,
        detectable=0.02,
    )


def result(verdict: Verdict, cpu: ClockFinding, wall: ClockFinding, *, lead: str, changed: str = ""):
    main = cpu if lead == "cpu" else wall
    finding = Finding(
        verdict=verdict,
        clock=main.clock,
        changed=changed,
        busy=0.9,
        margin=main.margin,
        pairs=6,
        change=main.change,
        low=main.low,
        high=main.high,
        level=0.98,
        p_value=0.001,
        noise=0.01,
        detectable=0.02,
        clocks=(cpu, wall),
    )
    return PointResult(label="e", params={}, finding=finding, check=SelfCheck(pairs=0), pairs=())


@pytest.mark.parametrize(
    ("verdict", "cpu", "wall", "lead", "changed", "said"),
    [
        (
            SLOWER,
            (SLOWER, 0.05),
            (SLOWER, 0.05),
            "cpu",
            "computing",
            "B is 5.0% slower than A (98 % interval +4.0% to +6.0%): it computes more",
        ),
        (
            FASTER,
            (FASTER, -0.05),
            (SAME, 0.0),
            "cpu",
            "computing",
            "it computes less; the elapsed time is the same",
        ),
        (SLOWER, (SLOWER, 0.05), (OPEN, 0.1), "cpu", "computing", "it computes more; waiting not judged"),
        (
            SLOWER,
            (SAME, 0.0),
            (SLOWER, 0.08),
            "wall",
            "waiting",
            "B is 8.0% slower than A (98 % interval +7.0% to +9.0%): it computes the same and waits longer",
        ),
        (
            FASTER,
            (SAME, 0.0),
            (FASTER, -0.45),
            "wall",
            "waiting",
            "it computes the same and waits less or runs in parallel",
        ),
        (SLOWER, (OPEN, 0.0), (SLOWER, 0.08), "wall", "waiting", "it waits longer; computing not judged"),
        (SLOWER, (SLOWER, 0.05), (SLOWER, 0.3), "wall", "both", "it computes more and waits longer"),
        (
            FASTER,
            (SLOWER, 0.08),
            (FASTER, -0.45),
            "wall",
            "both",
            (
                "B is 45.0% faster than A (98 % interval -46.0% to -44.0%): it computes 8.0% more, but takes "
                "less time"
            ),
        ),
        (SLOWER, (FASTER, -0.08), (SLOWER, 0.2), "wall", "both", "it computes 8.0% less, but takes longer"),
        (
            SAME,
            (SAME, 0.001),
            (SAME, 0.002),
            "cpu",
            "",
            (
                "less than 1.0% (98 % interval -0.9% to +1.1%); elapsed time by less than 3.0% (98 % "
                "interval -0.8% to +1.2%)"
            ),
        ),
        (SAME, (SAME, 0.001), (SAME, 0.002), "wall", "", "computing by less than 1.0%"),
        (Verdict.SMALL, (Verdict.SMALL, 0.004), (SAME, 0.0), "cpu", "", "small: B is 0.4% slower than A"),
        (
            Verdict.SAME_COMPUTING,
            (SAME, 0.0),
            (OPEN, 0.05),
            "cpu",
            "",
            (
                "waiting not judged: B computes as much as A to less than 1.0% (98 % interval -1.0% to "
                "+1.0%), but how long it"
            ),
        ),
        (
            OPEN,
            (FASTER, -0.05),
            (OPEN, 0.0),
            "wall",
            "",
            "it computes less, but how long it takes is unclear",
        ),
        (
            OPEN,
            (OPEN, 0.0),
            (SAME, 0.0),
            "wall",
            "",
            "the elapsed time is the same, but computing could not be judged",
        ),
    ],
)
def test_a_sentence_says_which_of_computing_and_waiting_changed(verdict, cpu, wall, lead, changed, said):
    found = result(verdict, on("cpu", *cpu), on("wall", *wall), lead=lead, changed=changed)
    assert said in sentence(found)
    assert sentence(found).startswith(verdict.value)


def test_what_was_not_confirmed_is_not_said_again():
    found = result(OPEN, on("cpu", SLOWER, 0.05), on("wall", OPEN, 0.0), lead="cpu")
    assert "computes" not in sentence(replace(found, confirmed=False))


def test_a_comparison_from_a_file_of_an_earlier_version_has_a_sentence_too():
    found = result(SLOWER, on("cpu", SLOWER, 0.05), on("wall", OPEN, 0.0), lead="cpu", changed="computing")
    for verdict in (SLOWER, SAME, OPEN, Verdict.SAME_COMPUTING):
        old = replace(found, finding=replace(found.finding, clocks=(), verdict=verdict))
        assert sentence(old).startswith(verdict.value)
