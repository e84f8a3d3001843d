"""Which fields of a request are passed on: a list per API of those that are known, and no other.

A field that nobody here knows may choose another model, another account or the network, none of which the
attempt has. A provider's table can name more (`fields`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from proctor.gateway.apis import Api, Route
from proctor.gateway.body import BodyError

HOSTED_FIELDS = ("web_search_options", "plugins", "mcp_servers", "container")
"""Those of tools that the provider runs: taken away from a task without a public network."""
_CHAT = """
    model messages tools tool_choice parallel_tool_calls functions function_call
    stream stream_options usage max_tokens max_completion_tokens n best_of stop
    temperature top_p top_k top_a min_p typical_p seed frequency_penalty presence_penalty repetition_penalty
    repeat_penalty length_penalty logit_bias logprobs top_logprobs min_tokens stop_token_ids ignore_eos
    skip_special_tokens spaces_between_special_tokens include_stop_str_in_output
    reasoning reasoning_effort reasoning_format reasoning_split include_reasoning thinking thinking_budget
    enable_thinking preserve_thinking chat_template_kwargs chat_template_args verbosity
    response_format structured_outputs guided_json guided_regex guided_choice guided_grammar grammar
    json_schema prediction tool_stream do_sample transforms
    metadata user safety_identifier session_id prompt_cache_key prompt_cache_retention prompt_cache_options
    cache_control cache_prompt id_slot store service_tier vl_high_resolution_images num_ctx keep_alive
"""
_RESPONSES = """
    model input instructions tools tool_choice parallel_tool_calls max_tool_calls max_output_tokens
    stream stream_options background include previous_response_id truncation context_management
    temperature top_p top_k top_logprobs frequency_penalty presence_penalty
    reasoning text verbosity metadata client_metadata user safety_identifier session_id
    prompt_cache_key prompt_cache_retention prompt_cache_options cache_control store service_tier usage
"""
_MESSAGES = """
    model messages system tools tool_choice max_tokens stream stop_sequences temperature top_p top_k
    thinking metadata cache_control context_management output_config output_format service_tier speed
    betas diagnostics context_hint session_id usage
"""
_GEMINI = """
    model contents tools toolConfig tool_config systemInstruction system_instruction
    generationConfig generation_config safetySettings safety_settings labels
    generateContentRequest generate_content_request serviceTier service_tier store session_id
"""
_FIELDS = {
    Api.CHAT: frozenset(_CHAT.split()),
    Api.RESPONSES: frozenset(_RESPONSES.split()),
    Api.MESSAGES: frozenset(_MESSAGES.split()),
    Api.GEMINI: frozenset(_GEMINI.split()),
}
_USUAL = {
    "service_tier": frozenset({None, "auto", "default", "standard", "standard_only", "flex"}),
    "serviceTier": frozenset({None, "standard", "flex", "SERVICE_TIER_STANDARD", "SERVICE_TIER_FLEX"}),
    "speed": frozenset({None, "standard"}),
    "background": frozenset({None, False}),
}
"""Values that cost what the table of prices says, and whose answer comes with the call."""
_TWINS = (
    ("toolConfig", "tool_config"), ("systemInstruction", "system_instruction"),
    ("generationConfig", "generation_config"), ("safetySettings", "safety_settings"),
    ("generateContentRequest", "generate_content_request"), ("serviceTier", "service_tier"),
)  # fmt: skip
"""Gemini takes either spelling; with both, nobody knows which one counts."""


def check_fields(route: Route, values: Mapping[str, Any], *, hosted: bool, more: Collection[str]) -> None:
    """BodyError when a request has a field that is not passed on."""
    known = _FIELDS[route.api]
    for name in values.keys() - known:
        if name not in more and name not in HOSTED_FIELDS:
            raise BodyError(
                f"the field '{name[:100]}' is not passed on to models; whoever set this up can allow it: "
                "fields in the provider's table"
            )
    for name, usual in _USUAL.items():
        if name in values and name not in more and not _among(values[name], usual):
            raise BodyError(f"'{name}' may not be {str(values[name])[:100]!r} here")
    if route.api is Api.GEMINI:
        for one, other in _TWINS:
            if one in values and other in values:
                raise BodyError(f"'{one}' and '{other}' are the same field: send one of them")
    if hosted and isinstance(values.get("plugins"), list):
        _check_plugins(values["plugins"])


def _among(value: Any, usual: frozenset[Any]) -> bool:
    return isinstance(value, str | bool | None) and value in usual


def _check_plugins(plugins: list[Any]) -> None:
    """A router's plugin may choose another model."""
    for plugin in plugins:
        name = plugin.get("id") if isinstance(plugin, Mapping) else plugin
        if name not in {"web", "file-parser", "response-healing"}:
            raise BodyError(f"the plugin '{str(name)[:100]}' is not passed on to models")
