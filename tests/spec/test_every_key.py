"""Each key that a person can write has a test of its effect, or is refused. A new one without fails here."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from proctor.agents.registry import BUILT_IN, find_class
from proctor.model.spec import Iterations, Retries, SandboxSpec
from proctor.runs.perf import scenario
from proctor.spec import bodies, grammar
from proctor.tasks import overrides, prepared

TESTS = Path(__file__).parents[1]
WRITTEN = "integration/test_what_the_user_wrote.py"
EXPAND = "plan/test_expand.py"
MEASURE = "trial/experiment/test_measuring.py"
CALIBRATE = "trial/point/test_calibrate.py"
OVERRIDES = "tasks/test_overrides.py"
WORKSPACE = "trial/task/test_workspace.py"
TRIAL = "trial/test_task_trial.py"
ROLLOUTS = "integration/test_rollouts.py"
THERE = "integration/test_never_there.py"
SCENARIO = "runs/perf/test_scenario.py"

JUDGES = "integration/test_judges.py"
PREPARED = "tasks/test_prepared.py"
MODELS = "integration/test_models.py"
PROOF: dict[str, dict[str, tuple[str, str]]] = {
    "shared": {
        "name": ("cli/test_run.py", "test_a_run_ends_with_a_table_and_the_path_of_its_report"),
        "seed": (MEASURE, "test_the_same_seed_draws_the_same_and_every_point_is_fresh"),
        "tags": ("spec/test_round_trip.py", ""),
        "notes": ("spec/test_round_trip.py", ""),
        "pass_env": ("runs/test_secrets.py", "test_a_default_a_grant_and_a_variable_of_the_spec_are_enough"),
        "parallel": (MEASURE, "test_parallel_points_say_that_their_timings_are_contended"),
        "output_dir": (
            "cli/test_run.py",
            "test_a_read_only_results_folder_is_said_and_nothing_is_half_written",
        ),
        "timeout_s": (
            "trial/experiment/test_faults.py",
            "test_a_hang_ends_with_its_whole_tree_at_the_time_limit",
        ),
        "retries": ("runs/test_worker.py", "test_retries_come_to_an_end"),
        "budget_usd": (MODELS, "test_a_budget_in_dollars_without_a_price_is_refused_by_the_plan"),
        "budget_tokens": (MODELS, "test_a_run_stops_at_its_budget_of_tokens_or_dollars"),
        "budget_requests": (MODELS, "test_a_run_stops_at_its_budget_and_goes_on_with_a_larger_one"),
        "attempt_budget_usd": (MODELS, "test_an_attempt_is_ended_at_its_budget_of_tokens_or_dollars"),
        "attempt_budget_tokens": (MODELS, "test_an_attempt_is_ended_at_its_budget_of_tokens_or_dollars"),
        "attempt_budget_requests": (MODELS, "test_an_attempt_is_ended_at_its_budget_and_judged"),
        "tape": (MODELS, "test_a_tape_file_makes_a_run_free_and_offline"),
        "tape_speed": (MODELS, "test_a_replay_can_be_as_slow_as_the_models_were"),
        "engine": ("runs/test_ready.py", "test_the_engine_is_what_was_asked_for_else_by_the_broker"),
        "labels": ("runs/test_serve.py", "test_a_run_with_labels_waits_for_a_worker_that_has_them"),
        "sandbox": ("runs/test_ready.py", "test_an_unknown_sandbox_is_refused"),
        "gates": (WRITTEN, "test_a_field_that_will_be_there_is_accepted"),
        "sources": (WRITTEN, "test_an_experiment_with_a_built_in_name_wins_with_a_note"),
        "base_dir": ("spec/test_load.py", ""),
        "$schema": ("spec/test_load.py", ""),
    },
    "experiment": {
        "experiment": (WRITTEN, "test_an_experiment_with_a_built_in_name_wins_with_a_note"),
        "params": (WRITTEN, "test_a_union_with_a_list_takes_a_list_as_a_value"),
        "sweep": ("spec/test_sweep.py", "test_a_full_sweep_is_the_product_of_its_axes_in_order"),
        "strategy": (
            "spec/test_sweep.py",
            "test_random_points_are_distinct_members_of_the_grid_in_its_order",
        ),
        "samples": ("spec/test_sweep.py", "test_a_larger_draw_keeps_the_smaller_one"),
        "iterations": (MEASURE, "test_measuring_by_itself_says_why_it_stopped"),
        "instrumentation": (WRITTEN, "test_a_short_iteration_has_figures_of_psutil"),
        "isolation": (MEASURE, "test_without_isolation_points_share_a_process"),
        "loops": (MEASURE, "test_fixed_loops_are_made_as_often_as_asked"),
        "gc": (MEASURE, "test_the_collector_is_off_in_slots_unless_asked_for"),
        "python": ("runs/test_suites.py", "test_an_interpreter_without_proctor_runs_a_suite"),
        "better": ("cli/test_compare.py", "test_what_spec_and_class_declare_to_be_better_decides"),
    },
    "iterations": {
        "warmup": (CALIBRATE, "test_warm_up_of_a_fixed_number_is_that_number"),
        "measured": (CALIBRATE, "test_a_fixed_number_counts_failures_too"),
        "max_time_s": (CALIBRATE, "test_auto_stops_by_time_by_count_and_when_nothing_works"),
        "target_width": (CALIBRATE, "test_auto_stops_when_the_interval_is_narrow"),
        "min_measured": (CALIBRATE, "test_auto_stops_by_time_by_count_and_when_nothing_works"),
        "max_measured": (CALIBRATE, "test_auto_stops_by_time_by_count_and_when_nothing_works"),
        "calm": (CALIBRATE, "test_disturbed_times_do_not_count_until_all_are_taken"),
    },
    "task": {
        "path": (THERE, "test_an_agent_that_works_and_then_ends_with_127_keeps_its_zero"),
        "prepared_dir": ("spec/test_dialects.py", "test_a_rollouts_file_is_read_with_every_key"),
        "dataset": (ROLLOUTS, "test_every_sample_task_passes_with_its_oracle_and_fails_with_nop"),
        "zip": ("integration/test_format.py", "test_a_zip_is_run_under_the_name_of_its_task"),
        "agent": (EXPAND, "test_tasks_are_crossed_with_agents_models_variables_and_rollouts"),
        "model": (EXPAND, "test_tasks_are_crossed_with_agents_models_variables_and_rollouts"),
        "rollouts": (EXPAND, "test_tasks_are_crossed_with_agents_models_variables_and_rollouts"),
        "include": ("tasks/test_dataset.py", "test_patterns_match_the_folder_the_path_and_the_name"),
        "exclude": ("tasks/test_dataset.py", "test_patterns_match_the_folder_the_path_and_the_name"),
        "agent_options": (
            "integration/test_options_are_identity.py",
            "test_a_run_and_its_comparison_keep_them_apart",
        ),
        "apply_overrides": (EXPAND, "test_overrides_that_are_not_applied_do_not_matter"),
        "overrides": (WORKSPACE, "test_the_plan_sees_the_content_of_overrides_and_not_their_path"),
        "environment_variables": (TRIAL, "test_variables_come_from_the_run_and_the_machine"),
        "sweep": (EXPAND, "test_tasks_are_crossed_with_agents_models_variables_and_rollouts"),
        "judge": (JUDGES, "test_unit_and_judge_scores_stand_side_by_side_and_the_reward_stays_the_tests"),
    },
    "retries": {
        "infrastructure": ("engine/test_retry.py", "test_no_retries_means_none"),
        "provider": ("engine/test_retry.py", "test_no_retries_means_none"),
        "backoff_s": ("engine/test_retry.py", "test_the_delay_doubles_up_to_its_limit_and_then_ends"),
        "max_backoff_s": ("engine/test_retry.py", "test_the_delay_doubles_up_to_its_limit_and_then_ends"),
    },
    "sandbox": {
        "backend": ("runs/test_ready.py", "test_an_unknown_sandbox_is_refused"),
        "network": ("cli/test_run.py", "test_the_network_on_the_command_line_is_part_of_the_stored_spec"),
        "allowed_hosts": (
            "sandbox/test_network.py",
            "test_an_allow_list_reaches_its_hosts_and_nobody_else",
        ),
        "network_allow": (
            "sandbox/test_network.py",
            "test_network_allow_opens_what_it_names_and_no_more",
        ),
        "host_root": (
            ROLLOUTS,
            "test_host_root_is_said_first_and_without_it_a_missing_image_is_no_agent_s_fault",
        ),
        "cpus": (EXPAND, "test_network_root_and_every_limit_are_in_the_key"),
        "memory_bytes": (
            "faults/test_sandbox_attacks.py",
            "test_a_memory_bomb_is_ended_and_told_from_a_crash",
        ),
        "storage_bytes": (
            "sandbox/test_storage.py",
            "test_who_is_over_the_limit_is_ended_and_others_are_not",
        ),
        "pids": (EXPAND, "test_network_root_and_every_limit_are_in_the_key"),
    },
    "overrides": {
        "remove_repo_paths": (WORKSPACE, "test_files_are_laid_out_in_order_and_the_source_is_only_read"),
        "inject_files": (OVERRIDES, "test_files_come_as_content_or_from_beside_the_overrides"),
        "overlay_files": (OVERRIDES, "test_files_come_as_content_or_from_beside_the_overrides"),
        "overlay_repo_files": (
            PREPARED,
            "test_overlays_go_around_and_into_the_repository_and_the_tests_stay_hidden",
        ),
        "prompt": (PREPARED, "test_overrides_change_the_prompt_the_rubrics_and_the_scripts"),
        "rubrics": (PREPARED, "test_overrides_change_the_prompt_the_rubrics_and_the_scripts"),
        "test_scripts": (PREPARED, "test_overrides_change_the_prompt_the_rubrics_and_the_scripts"),
        "repo": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
        "lm_instructions": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
        "environment_variables": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
        "evaluation": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
    },
    "evaluation of overrides": {
        "timeout_sec": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
        "environment_variables": (OVERRIDES, "test_a_task_is_changed_in_a_copy"),
        "rubrics": (PREPARED, "test_rubrics_of_overrides_are_for_prepared_tasks"),
        "test_scripts": (PREPARED, "test_overrides_change_the_prompt_the_rubrics_and_the_scripts"),
    },
    "judge": {
        "model": (JUDGES, "test_unit_and_judge_scores_stand_side_by_side_and_the_reward_stays_the_tests"),
        "rubrics": (JUDGES, "test_unit_and_judge_scores_stand_side_by_side_and_the_reward_stays_the_tests"),
        "votes": (JUDGES, "test_what_the_agent_writes_stays_inside_its_fence"),
        "reward": (JUDGES, "test_the_reward_is_the_judges_where_the_spec_says_so"),
        "max_bytes": (
            "trial/judge/test_prompt.py",
            "test_what_is_cut_is_said_outside_of_the_fence_and_in_the_record",
        ),
        "timeout_s": ("trial/judge/test_ask.py", "test_a_vote_has_a_time_limit"),
        "budget_usd": (JUDGES, "test_a_judge_that_cannot_be_asked_stops_the_run_before_it_starts"),
        "budget_tokens": (JUDGES, "test_a_judge_has_a_budget_of_its_own"),
        "budget_requests": (JUDGES, "test_a_judge_has_a_budget_of_its_own"),
    },
    "repo": {
        "git_url": (WORKSPACE, "test_a_repository_is_fetched_once_at_its_start_commit"),
        "branch": (WORKSPACE, "test_a_repository_is_fetched_once_at_its_start_commit"),
        "start_commit_sha": (WORKSPACE, "test_a_repository_is_fetched_once_at_its_start_commit"),
        "end_commit_sha": (
            "trial/test_verify_scripts.py",
            "test_a_python_script_without_a_first_line_judges",
        ),
        "subdir": (WORKSPACE, "test_a_folder_of_the_repository_can_be_the_workspace"),
        "sparse_checkout": (WORKSPACE, "test_a_repository_is_fetched_once_at_its_start_commit"),
    },
    "prepared task": {
        "task_id": (OVERRIDES, "test_a_prepared_task_describes_itself"),
        "name": (OVERRIDES, "test_a_prepared_task_has_a_repository_and_rubrics"),
        "description": (OVERRIDES, "test_a_prepared_task_describes_itself"),
        "repo": (OVERRIDES, "test_a_prepared_task_has_a_repository_and_rubrics"),
        "instructions": (OVERRIDES, "test_a_prepared_task_has_a_repository_and_rubrics"),
        "lm_instructions": (OVERRIDES, "test_a_prepared_task_has_a_repository_and_rubrics"),
        "lm": (PREPARED, "test_the_dialect_is_read_whole"),
        "rubrics": (TRIAL, "test_a_prepared_task_is_scored_by_its_rubrics"),
        "test_scripts": (OVERRIDES, "test_test_scripts_may_stand_apart_from_the_rubrics"),
        "environment_variables": (TRIAL, "test_a_prepared_task_is_scored_by_its_rubrics"),
        "docker_image": (OVERRIDES, "test_a_wrong_prepared_task_is_refused"),
        "workdir": (OVERRIDES, "test_a_prepared_task_has_a_repository_and_rubrics"),
        "timeout_sec": (OVERRIDES, "test_a_wrong_prepared_task_is_refused"),
        "evaluation": (OVERRIDES, "test_the_evaluation_of_a_prepared_task_is_honoured"),
        "metadata": (OVERRIDES, "test_a_prepared_task_describes_itself"),
        "sensitivity": (
            PREPARED,
            "test_the_authors_own_change_is_not_shown_and_what_he_says_of_sharing_is_kept",
        ),
    },
    "scenario": {
        "name": (SCENARIO, "test_weights_and_own_seeds_are_kept"),
        "seed": (SCENARIO, "test_weights_and_own_seeds_are_kept"),
        "scenario": (SCENARIO, "test_weights_and_own_seeds_are_kept"),
        "task": (SCENARIO, "test_a_task_or_an_agent_that_is_not_there_stops_before_the_run"),
        "task_ref": (
            "runs/perf/test_stepwise.py",
            "test_rows_of_agent_task_ref_and_seed_are_found_and_planned",
        ),
        "agent": (SCENARIO, "test_a_task_or_an_agent_that_is_not_there_stops_before_the_run"),
        "model": (SCENARIO, ""),
        "options": (
            "integration/test_options_are_identity.py",
            "test_two_deterministic_agents_of_the_harness_are_each_deterministic",
        ),
        "weight": (SCENARIO, "test_weights_and_own_seeds_are_kept"),
        "repeat": (SCENARIO, "test_what_is_wrong_with_a_scenario_is_said_with_its_place"),
        "expect": (SCENARIO, "test_a_nop_is_expected_to_fail"),
    },
    "agent options": {
        "command.command": (THERE, "test_an_agent_that_works_and_then_ends_with_127_keeps_its_zero"),
        "command.install": (THERE, "test_an_install_step_that_brings_the_program_is_believed_after_it_ran"),
        "command.env": ("agents/test_command.py", "test_its_variables_reach_the_command"),
        "command.install_timeout_s": (
            "agents/test_command.py",
            "test_an_install_step_that_takes_too_long_is_its_authors_mistake",
        ),
        "command.apis": (MODELS, "test_an_agent_and_a_provider_that_do_not_fit_are_refused_by_the_plan"),
        "replay.trajectory": ("agents/test_replay.py", "test_a_recording_that_is_none_is_refused"),
        "replay.pause_s": (
            "agents/test_replay.py",
            "test_commands_come_in_order_with_a_pause_before_each",
        ),
        "episode.file": ("agents/episodes/test_agent.py", "test_its_version_is_over_its_files"),
        "terminal.options": ("agents/terminal/test_agent.py", ""),
        "terminal.system": (
            "agents/terminal/test_agent.py",
            "test_the_system_text_and_the_time_limit_of_a_request_are_options",
        ),
        "terminal.request_timeout_s": (
            "agents/terminal/test_agent.py",
            "test_the_system_text_and_the_time_limit_of_a_request_are_options",
        ),
        "terminal.context_tokens": (
            "agents/terminal/test_agent.py",
            "test_a_conversation_that_grows_is_shortened_and_the_trajectory_says_so",
        ),
    },
}


HARBOR = "agents/harbor/test_harbor_agent.py"
PROOF["agent options"] |= {
    "terminus-2.version": (HARBOR, "test_a_harbor_that_is_not_installed_is_missing"),
    "terminus-2.env": (HARBOR, "test_variables_of_a_spec_reach_its_commands_and_not_its_process"),
    "terminus-2.api": (HARBOR, "test_what_an_agent_says_of_itself"),
    "terminus-2.setup_timeout_s": (
        HARBOR,
        "test_setting_up_that_does_not_end_is_ended_before_the_agent_begins",
    ),
}
INSTALLED = "agents/installed/test_base.py"
GIVEN = "test_every_agent_is_given_the_instruction_the_model_and_no_key_on_its_command_line"
for _name, (_module, _, _) in BUILT_IN.items():
    if ".installed." in _module:
        PROOF["agent options"] |= {
            f"{_name}.args": (INSTALLED, GIVEN),
            f"{_name}.env": (INSTALLED, GIVEN),
            f"{_name}.version": (INSTALLED, "test_the_version_is_part_of_the_agent_and_must_be_one"),
        }


def _options() -> set[str]:
    return {
        f"{name}.{option}"
        for name in BUILT_IN
        for option, each in inspect.signature(find_class(name)).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }


def _names(model: type) -> set[str]:
    return {each.name for each in fields(model)}


GRAMMAR: dict[str, Iterable[str]] = {
    "shared": grammar.SHARED_KEYS,
    "experiment": bodies.EXPERIMENT_KEYS,
    "iterations": _names(Iterations),
    "task": bodies.TASK_KEYS,
    "retries": _names(Retries),
    "sandbox": _names(SandboxSpec),
    "overrides": overrides.KEYS,
    "evaluation of overrides": overrides.EVALUATION_KEYS,
    "judge": bodies.JUDGE,
    "repo": overrides.REPO_KEYS,
    "prepared task": prepared.KEYS,
    "scenario": {*scenario._KEYS, *scenario._ENTRY_KEYS},
    "agent options": _options(),
}


@pytest.mark.parametrize("part", GRAMMAR)
def test_every_key_of_the_grammar_has_its_proof_and_no_proof_is_left_over(part):
    assert set(PROOF[part]) == set(GRAMMAR[part])


@cache
def _text(file: str) -> str:
    return (TESTS / file).read_text()


@pytest.mark.parametrize(("part", "key"), [(part, key) for part, keys in PROOF.items() for key in keys])
def test_the_proof_of_a_key_exists(part, key):
    file, name = PROOF[part][key]
    if name:
        assert f"def {name}(" in _text(file), f"{key}: {file} has no {name}"
    else:
        word = key.rpartition(".")[2]
        assert word in _text(file), f"{key}: {file} never mentions it"
