"""What a request asks for, and what of it is passed on."""
# ruff: noqa: E501 - one request per line

from __future__ import annotations

import json

import pytest

from proctor.gateway.apis import Api, recognise
from proctor.gateway.body import REMOVED, Body, BodyError
from proctor.gateway.call_options import upstream_changes, wanted

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI = "/v1beta/models/m:generateContent"


def changes(path: str, document: dict, *, hosted: bool = True, fields: tuple[str, ...] = ()) -> dict:
    route, body = recognise(path), Body.read(json.dumps(document).encode())
    assert route
    return upstream_changes(route, body, wanted(route, body), "m", hosted=hosted, fields=fields)


def test_the_usage_of_a_chat_stream_is_asked_for_where_the_agent_did_not():
    added = {"stream_options": {"include_usage": True}}
    assert changes(CHAT, {"model": "m", "stream": True}) == added
    other = {"model": "m", "stream": True, "stream_options": {"x": 1, "include_usage": False}}
    assert changes(CHAT, other) == {"stream_options": {"x": 1, "include_usage": True}}
    assert changes(CHAT, {"model": "m", "stream": True, **added}) == {}
    assert changes(CHAT, {"model": "m"}) == {}
    assert changes(MESSAGES, {"model": "x/m", "stream": True}) == {"model": "m"}
    assert changes(CHAT, {}) == {"model": "m"}


OWN_TOOLS = [
    (CHAT, {"type": "function", "function": {"name": "shell"}}),
    (CHAT, {"type": "custom", "custom": {"name": "shell"}}),
    (RESPONSES, {"type": "function", "name": "shell", "parameters": {}}),
    (RESPONSES, {"type": "custom", "name": "apply_patch", "format": {}}),
    (RESPONSES, {"type": "local_shell"}),
    (RESPONSES, {"type": "shell", "environment": {"type": "local"}}),
    (RESPONSES, {"type": "tool_search", "execution": "client"}),
    (RESPONSES, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}),
    (MESSAGES, {"name": "Bash", "input_schema": {"properties": {"url": {"type": "string"}}}}),
    (MESSAGES, {"type": "custom", "name": "Bash", "input_schema": {}}),
    (MESSAGES, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}),
    (GEMINI, {"functionDeclarations": [{"name": "shell"}]}),
    (GEMINI, {"function_declarations": [{"name": "shell"}]}),
]
HOSTED_TOOLS = [
    (CHAT, {"type": "openrouter:web_search"}),
    (RESPONSES, {"type": "web_search"}),
    (RESPONSES, {"type": "web_search_preview_2025_03_11"}),
    (RESPONSES, {"type": "shell", "environment": {"type": "container_auto"}}),
    (RESPONSES, {"type": "shell"}),
    (RESPONSES, {"type": "computer_use_preview"}),
    (RESPONSES, {"type": "mcp", "server_url": "https://example.org"}),
    (RESPONSES, {"type": "code_interpreter", "container": {"type": "auto"}}),
    (MESSAGES, {"type": "web_fetch_20250910", "name": "web_fetch"}),
    (MESSAGES, {"type": "code_execution_20250825", "name": "code_execution"}),
    (MESSAGES, {"type": "computer_20250124", "name": "computer"}),
    (GEMINI, {"googleSearch": {}}),
    (GEMINI, {"google_search_retrieval": {}}),
    (GEMINI, {"code_execution": {}}),
    (GEMINI, {"urlContext": {}}),
]
UNKNOWN_TOOLS = [
    (CHAT, {"type": "browser"}),
    (CHAT, {"function": {"name": "f"}, "type": "function", "more": {}}),
    (RESPONSES, {"name": "f"}),
    (RESPONSES, {"type": "namespace", "tools": [{"type": "web_crawl"}]}),
    (MESSAGES, {"type": "web_crawl_20270101", "name": "crawl"}),
    (GEMINI, {"webCrawl": {}}),
]


@pytest.mark.parametrize(("path", "tool"), OWN_TOOLS)
@pytest.mark.parametrize("hosted", [False, True])
def test_tools_that_the_agent_runs_pass(path, tool, hosted):
    assert changes(path, {"tools": [tool], "model": "m"}, hosted=hosted).get("tools") is None


@pytest.mark.parametrize(("path", "tool"), HOSTED_TOOLS)
def test_tools_that_the_provider_runs_pass_only_where_the_task_has_a_network(path, tool):
    own = next(each for where, each in OWN_TOOLS if where == path)
    document = {"model": "m", "tools": [tool, own]}
    assert "tools" not in changes(path, document)
    assert changes(path, document, hosted=False)["tools"] == [own]
    assert changes(path, {"model": "m", "tools": [tool]}, hosted=False)["tools"] is REMOVED


@pytest.mark.parametrize(("path", "tool"), UNKNOWN_TOOLS)
def test_tools_that_nobody_knows_never_pass(path, tool):
    assert changes(path, {"model": "m", "tools": [tool]})["tools"] is REMOVED


def test_of_a_tool_with_both_only_what_the_agent_runs_is_left():
    both = {"functionDeclarations": [{"name": "f"}], "googleSearch": {}}
    found = changes(GEMINI, {"tools": [both]}, hosted=False)
    assert found["tools"] == [{"functionDeclarations": [{"name": "f"}]}]
    with pytest.raises(BodyError, match="list of objects"):
        changes(GEMINI, {"tools": {"googleSearch": {}}}, hosted=False)


def test_fields_of_hosted_tools_are_taken_away_where_the_task_has_no_network():
    document = {"model": "m", "plugins": [{"id": "web"}], "web_search_options": {}, "mcp_servers": [{}]}
    assert changes(CHAT, document) == {}
    taken = dict.fromkeys(("plugins", "web_search_options", "mcp_servers"), REMOVED)
    assert changes(CHAT, document, hosted=False) == taken
    with pytest.raises(BodyError, match="auto-router"):
        changes(CHAT, {"model": "m", "plugins": [{"id": "auto-router"}]})


HTTP = "https://example.org/x.png"
DATA = "data:image/png;base64,AAAA"


def user(*parts: dict) -> list[dict]:
    return [{"role": "user", "content": list(parts)}]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, {"messages": user({"type": "image_url", "image_url": {"url": HTTP}})}),
        (CHAT, {"messages": user({"type": "image_url", "image_url": HTTP})}),
        (CHAT, {"messages": user({"type": "image_url", "IMAGE_URL": {"URL": "ftp:x"}})}),
        (CHAT, {"messages": user({"type": "video_url", "video_url": {"url": HTTP}})}),
        (CHAT, {"messages": user({"type": "file", "file": {"file_data": " HTTPS://example.org/x"}})}),
        (CHAT, {"messages": user({"type": "input_audio", "input_audio": {"data": HTTP}})}),
        (CHAT, {"messages": user({"type": "image", "image": HTTP})}),
        (RESPONSES, {"input": user({"type": "input_image", "image_url": HTTP})}),
        (RESPONSES, {"input": user({"type": "input_file", "file_url": HTTP})}),
        (RESPONSES, {"input": user({"type": "input_file", "file_id": "file-123"})}),
        (
            RESPONSES,
            {
                "input": [
                    {"type": "function_call_output", "output": [{"type": "input_image", "image_url": HTTP}]}
                ]
            },
        ),
        (RESPONSES, {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]}),
        (MESSAGES, {"messages": user({"type": "image", "source": {"type": "url", "url": HTTP}})}),
        (
            MESSAGES,
            {
                "messages": user(
                    {
                        "type": "tool_result",
                        "content": [{"type": "document", "source": {"type": "url", "url": HTTP}}],
                    }
                )
            },
        ),
        (MESSAGES, {"system": [{"type": "document", "source": {"type": "url", "url": HTTP}}]}),
        (GEMINI, {"contents": [{"parts": [{"fileData": {"fileUri": HTTP}}]}]}),
        (GEMINI, {"contents": [{"parts": [{"file_data": {"file_uri": "files/abc"}}]}]}),
        (
            GEMINI,
            {"contents": [{"parts": [{"functionResponse": {"parts": [{"fileData": {"fileUri": HTTP}}]}}]}]},
        ),
        (GEMINI, {"systemInstruction": {"parts": [{"fileData": {"fileUri": HTTP}}]}}),
    ],
)
def test_what_a_provider_would_fetch_is_refused_where_the_task_has_no_network(path, document):
    with pytest.raises(BodyError, match="no public network"):
        changes(path, {"model": "m", **document}, hosted=False)
    changes(path, {"model": "m", **document})


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, {"messages": [{"role": "user", "content": f"{HTTP} is an address"}]}),
        (CHAT, {"messages": user({"type": "text", "text": HTTP}, {"type": "image_url", "image_url": {"url": DATA}})}),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "functions.f:0", "function": {"arguments": HTTP}}]}]}),
        (CHAT, {"messages": user({"type": "input_audio", "input_audio": {"data": "//uQxAAA", "format": "mp3"}})}),
        (RESPONSES, {"input": HTTP, "instructions": HTTP}),
        (RESPONSES, {"input": [{"type": "local_shell_call", "action": {"command": ["curl", HTTP]}}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "output": HTTP}]}),
        (RESPONSES, {"input": [{"type": "shell_call_output", "output": [{"stdout": HTTP}]}]}),
        (MESSAGES, {"messages": user({"type": "tool_use", "name": "f", "input": {"url": HTTP}})}),
        (MESSAGES, {"messages": user({"type": "tool_result", "content": HTTP})}),
        (MESSAGES, {"messages": user({"type": "image", "source": {"type": "base64", "data": "AAAA"}})}),
        (GEMINI, {"contents": [{"parts": [{"functionCall": {"args": {"url": HTTP}}}, {"inlineData": {"data": "AA"}}]}]}),
        (GEMINI, {"contents": [{"parts": [{"functionResponse": {"response": {"url": HTTP}}}, {"text": HTTP}]}]}),
    ],
)  # fmt: skip
def test_addresses_that_are_only_words_pass(path, document):
    assert "tools" not in changes(path, {"model": "m", **document}, hosted=False)


@pytest.mark.parametrize(
    "field",
    ["models", "route", "provider", "fallbacks", "Model", "MAX_TOKENS", "api_base", "user_config",
     "enable_search", "search_parameters", "extra_body", "tool s"],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_fields_that_nobody_knows_are_refused(path, field):
    for hosted in (False, True):
        with pytest.raises(BodyError, match=f"'{field}' is not passed on"):
            changes(path, {"model": "m", field: ["other"]}, hosted=hosted)
    assert changes(path, {field: 1}, fields=(field,)).get(field) is None


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (RESPONSES, "background", True),
        (CHAT, "service_tier", "priority"),
        (MESSAGES, "speed", "fast"),
        (RESPONSES, "service_tier", ["priority"]),
    ],
)
def test_what_costs_more_than_the_table_says_is_refused(path, field, value):
    with pytest.raises(BodyError, match="may not be"):
        changes(path, {"model": "m", field: value})


def test_one_model_is_named_and_one_spelling_used():
    assert changes(GEMINI, {"model": "models/m"}) == {"model": REMOVED}
    for document in ({"model": "models/other"}, {"generateContentRequest": {"model": "models/other"}}):
        with pytest.raises(BodyError, match="other"):
            changes(GEMINI, document)
    with pytest.raises(BodyError, match="same field"):
        changes(GEMINI, {"generationConfig": {}, "generation_config": {}})


FUNCTION = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
EPHEMERAL = {"type": "ephemeral"}
AGENTS = {
    "codex": (RESPONSES, {
        "instructions": "i", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": HTTP}]},
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "1"},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": DATA}]},
            {"type": "custom_tool_call", "name": "apply_patch", "input": HTTP, "call_id": "2"},
        ],
        "tools": [{"type": "function", "name": "shell", "strict": False, "parameters": {}}, {"type": "custom", "name": "apply_patch", "format": {}}],
        "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "text": {"verbosity": "low"}, "client_metadata": {"a": "b"},
    }),
    "claude-code": (MESSAGES, {
        "messages": [{"role": "user", "content": [{"type": "text", "text": HTTP, "cache_control": EPHEMERAL}]}],
        "system": [{"type": "text", "text": "s", "cache_control": EPHEMERAL}], "max_tokens": 32000, "stream": True,
        "tools": [{"name": "WebFetch", "description": "d", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"url": {}}}}],
        "thinking": {"type": "enabled", "budget_tokens": 31999}, "metadata": {"user_id": "u"}, "temperature": 1,
        "context_management": {"edits": []}, "output_config": {"effort": "medium"},
    }),
    "gemini-cli": (GEMINI, {
        "contents": [{"role": "user", "parts": [{"text": HTTP}, {"functionResponse": {"id": "1", "name": "f", "response": {"output": HTTP}}}]}],
        "systemInstruction": {"role": "user", "parts": [{"text": "s"}]}, "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {}}]}],
        "generationConfig": {"temperature": 0, "topP": 1, "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1}}, "toolConfig": {}, "session_id": "s",
    }),
    "qwen-code": (CHAT, {
        "messages": user({"type": "text", "text": HTTP, "cache_control": EPHEMERAL}), "temperature": 0.7, "top_p": 1, "max_tokens": 8000, "stream": True,
        "stream_options": {"include_usage": True}, "tools": [FUNCTION | {"cache_control": EPHEMERAL}], "enable_thinking": False, "metadata": {"sessionId": "s"},
    }),
    "opencode": (CHAT, {
        "messages": user({"type": "image_url", "image_url": {"url": DATA}}), "max_tokens": 32000, "temperature": 0.5, "top_p": 1, "tools": [FUNCTION],
        "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}, "reasoning_effort": "high", "usage": {"include": True},
    }),
    "openhands, mini-swe-agent, aider, terminus-2": (CHAT, {
        "messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                     {"role": "tool", "tool_call_id": "1", "content": HTTP, "name": "f"}],
        "temperature": 0, "top_p": 1, "max_completion_tokens": 4096, "tools": [FUNCTION], "parallel_tool_calls": True, "stop": ["x"], "metadata": {}, "seed": 1,
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"$schema": HTTP}}}, "reasoning_effort": "low", "n": 1, "user": "u",
    }),
}  # fmt: skip
"""What agents send, with the fields that their sources name."""


@pytest.mark.parametrize("agent", AGENTS)
def test_requests_of_real_agents_pass_as_they_are(agent):
    path, document = AGENTS[agent]
    for hosted in (False, True):
        assert changes(path, document | ({} if path == GEMINI else {"model": "m"}), hosted=hosted) == {}


def most(path: str, document: dict) -> tuple:
    route = recognise(path)
    assert route
    return tuple(wanted(route, Body.read(json.dumps(document).encode())).limit)


@pytest.mark.parametrize(
    ("path", "document", "limit"),
    [
        (CHAT, {"max_completion_tokens": 1, "max_tokens": 100_000}, (100_000, 0, 1)),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 7, "n": 2, "best_of": 3}, (7, 0, 3)),
        (CHAT, {"n": 5}, (None, 0, 5)),
        (CHAT, {"max_tokens": 5, "reasoning": {"max_tokens": 9}}, (5, 9, 1)),
        (CHAT, {"thinking_budget": 9, "max_tokens": None}, (None, 9, 1)),
        (RESPONSES, {"max_output_tokens": 9}, (9, 0, 1)),
        (MESSAGES, {"max_tokens": 9, "thinking": {"budget_tokens": 20}}, (9, 20, 1)),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 3, "max_output_tokens": 7}}, (7, 0, 1)),
        (GEMINI, {"generation_config": {"candidate_count": 2, "candidateCount": 4}}, (None, 0, 4)),
        (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}}, (None, 0, 1)),
        (GEMINI, {"generationConfig": {"thinking_config": {"thinking_budget": 8}}}, (None, 8, 1)),
    ],
)
def test_the_largest_limit_that_a_request_states_counts(path, document, limit):
    assert most(path, document) == limit


@pytest.mark.parametrize("value", ["many", -1, 1.0, 1e9, True, [1], 10**12])
@pytest.mark.parametrize(
    ("path", "field"), [(CHAT, "max_tokens"), (CHAT, "n"), (RESPONSES, "max_output_tokens"), (MESSAGES, "max_tokens")]
)  # fmt: skip
def test_a_limit_that_is_no_whole_number_is_refused(path, field, value):
    with pytest.raises(BodyError, match="whole number"):
        most(path, {field: value})
    with pytest.raises(BodyError, match="whole number"):
        most(GEMINI, {"generationConfig": {"max_output_tokens": value}})


def test_requests_are_known_by_the_end_of_their_path():
    found = recognise("/gateway/v1beta/models/gemini/flash:streamGenerateContent")
    assert found
    assert (found.api, found.model, found.streams) == (Api.GEMINI, "gemini/flash", True)
    assert found.path("flash 2") == "/models/flash%202:streamGenerateContent"
    for path in ("/v1/embeddings", "/v1/chat/completions/x", "/xresponses", "/v1beta/models/m:embedContent"):
        assert recognise(path) is None
