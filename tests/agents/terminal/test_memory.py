from __future__ import annotations

from proctor.agents.terminal.memory import Memory, _tokens

SYSTEM, INSTRUCTION = {"role": "system", "content": "s"}, {"role": "user", "content": "Do it."}


def step(number: int, size: int) -> list[dict]:
    call = {"id": str(number), "function": {"name": "shell", "arguments": f'{{"command": "make {number}"}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": str(number), "content": "o" * size},
    ]


def test_what_fits_is_left_alone():
    memory = Memory(SYSTEM, [], INSTRUCTION, 10_000)
    memory.add(step(1, 6000))
    assert memory.fit() == ""
    assert memory.messages() == [SYSTEM, INSTRUCTION, *step(1, 6000)]


def test_the_oldest_outputs_are_shortened_first_and_the_last_step_never():
    memory = Memory(SYSTEM, [], INSTRUCTION, 10_000)
    for number in range(4):
        memory.add(step(number, 9000))
    said = memory.fit()
    assert "2 older outputs were shortened and 0 older steps left out" in said
    sizes = [len(each["content"]) for each in memory.messages() if each["role"] == "tool"]
    assert sizes[0] == sizes[1] < 500
    assert sizes[2:] == [9000, 9000]
    assert memory.tokens() <= 7000


def test_then_the_oldest_steps_go_and_a_line_names_them():
    earlier = [{"role": "user", "content": "earlier work " * 10}]
    memory = Memory(SYSTEM, earlier, INSTRUCTION, 2000)
    for number in range(100):
        memory.add(step(number, 100))
    assert "older steps left out" in memory.fit()
    messages = memory.messages()
    assert messages[:2] == [SYSTEM, INSTRUCTION]
    assert "earlier steps were left out here" in messages[2]["content"]
    assert "make " in messages[2]["content"]
    assert messages[3]["role"] == "assistant"
    assert messages[-2:] == step(99, 100)
    assert memory.tokens() <= 2000


def test_one_step_that_is_too_long_stays():
    memory = Memory(SYSTEM, [], INSTRUCTION, 2000)
    memory.add(step(1, 20_000))
    assert memory.fit() == ""
    assert memory.messages()[-2:] == step(1, 20_000)


def test_the_estimate_that_is_kept_is_the_one_that_would_be_made_anew():
    memory = Memory(SYSTEM, [{"role": "user", "content": "earlier"}], INSTRUCTION, 3000)
    for number in range(30):
        memory.add(step(number, 2000))
        memory.fit()
        assert memory.tokens() == sum(map(_tokens, memory.messages()))
