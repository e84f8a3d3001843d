"""Two transcripts: which steps do the same, and where the two part."""

from __future__ import annotations

from proctor.agents.atif import Call, Step
from proctor.server.trial.pair import MOST_STEPS, Span, sentence, spans

TOLD = Step(source="user", message="do it")
NAMES = ("#1", "#2")


def shell(command: str, words: str = "") -> Step:
    return Step(source="agent", message=words, calls=(Call("c", "shell", {"command": command}),))


def edit(path: str, text: str) -> Step:
    return Step(source="agent", calls=(Call("c", "edit_file", {"path": path, "content": text}),))


def test_the_same_commands_are_the_same_whatever_the_words_and_spaces():
    a = [TOLD, shell("ls  -l", "I look."), Step(source="agent", message="Done.")]
    b = [TOLD, shell("ls -l", "First a look."), Step(source="agent", message="Finished.")]
    assert spans(a, b) == [Span(True, (1, 3), (1, 3))]
    assert sentence(a, b, spans(a, b), NAMES) == "Both do the same in all 3 steps; their words may differ."


def test_they_part_where_the_commands_differ():
    a, b = [TOLD, shell("ls"), shell("make")], [TOLD, shell("ls"), shell("cat x"), shell("pwd")]
    found = spans(a, b)
    assert found == [Span(True, (1, 2), (1, 2)), Span(False, (3, 1), (3, 2))]
    assert sentence(a, b, found, NAMES) == "They part at step 3: #1 does “make”, #2 does “cat x”."
    assert found[1].to_mapping() == {
        "same": False,
        "a": {"from": 3, "count": 1},
        "b": {"from": 3, "count": 2},
    }


def test_a_step_that_only_one_side_has_shifts_the_pairs_after_it():
    a, b = [shell("ls"), shell("make")], [shell("ls"), shell("cat x"), shell("make")]
    found = spans(a, b)
    assert found == [Span(True, (1, 1), (1, 1)), Span(False, (2, 0), (2, 1)), Span(True, (2, 1), (3, 1))]
    assert sentence(a, b, found, NAMES) == "They part at step 2: only #2 does “cat x”."


def test_edits_of_one_file_are_paired_by_the_file():
    assert spans([edit("a.py", "1")], [edit("a.py", "2")])[0].same
    assert not spans([edit("a.py", "1")], [edit("b.py", "1")])[0].same


def test_words_and_calls_without_a_command_are_told():
    talk, tool = Step(source="agent", message="hm"), Step(source="agent", calls=(Call("c", "done", {}),))
    assert sentence([talk], [tool], spans([talk], [tool]), NAMES).endswith("#1 only talks, #2 calls done.")
    assert "#1 hears from the user" in sentence([TOLD], [talk], spans([TOLD], [talk]), NAMES)
    listed = Step(source="agent", calls=(Call("c", "exec", {"cmd": ["ls", "-l"], "n": 1}),))
    assert spans([listed], [Step(source="agent", calls=(Call("d", "exec", {"cmd": "ls -l"}),))])[0].same
    long = sentence([shell("x" * 500)], [talk], spans([shell("x" * 500)], [talk]), NAMES)
    assert "…" in long
    assert len(long) < 200


def test_a_side_without_a_transcript_is_named():
    assert sentence([], [TOLD], spans([], [TOLD]), NAMES) == "#1 has no transcript."
    assert sentence([], [], [], NAMES) == "#1 and #2 have no transcript."


def test_very_long_transcripts_end_as_one_difference():
    a = [shell("ls")] * (MOST_STEPS + 5)
    found = spans(a, a)
    assert found == [
        Span(True, (1, MOST_STEPS), (1, MOST_STEPS)),
        Span(False, (MOST_STEPS + 1, 5), (MOST_STEPS + 1, 5)),
    ]
