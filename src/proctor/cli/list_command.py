"""`proctor list`: the experiments that specs may name, and what parameters each takes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.spec_options import takes_sources
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.experiments.base import Registered
    from proctor.experiments.discover import Loaded
    from proctor.model.subject import ParamInfo


@click.command("list")
@click.argument("slug", required=False)
@takes_sources
@click.option("--tag", "tags", multiple=True, help="Only experiments with this tag. May be repeated.")
@click.option("--params", "all_params", is_flag=True, help="Show every experiment's parameters in full.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    slug: str | None, sources: tuple[str, ...], tags: tuple[str, ...], all_params: bool, as_json: bool
) -> int:
    """List experiments, or show the parameters of the one called SLUG.

    A module that cannot be imported is named on standard error; the others are listed all the same.
    """
    from proctor.experiments.discover import discover, find

    found = discover(sources)
    chosen = [find(slug, sources)] if slug else list(found.experiments.values())
    chosen = [each for each in chosen if set(tags) <= set(each.tags)]
    if as_json:
        _print_json(chosen, found.broken)
    elif slug or all_params:
        _print_in_full(chosen)
    else:
        _print_overview(chosen)
    if not slug and not as_json:
        for each in found.broken:
            print(f"proctor: not loaded: {each.error}", file=sys.stderr)
    return Exit.OK


def _print_overview(chosen: Iterable[Registered]) -> None:
    from proctor.cli.table import print_table
    from proctor.experiments.describe import parameters

    rows = [
        (each.slug, each.summary, ", ".join(each.tags), ", ".join(parameters(each)[0])) for each in chosen
    ]
    if rows:
        print_table(
            ("experiment", "summary", "tags", "params"),
            rows,
            whole=(0,),
            spare=(2, 3),
            wrap=(1,),
            more="'proctor list NAME'",
        )
    else:
        print("No experiment matches.", file=sys.stderr)


def _print_in_full(chosen: Iterable[Registered]) -> None:
    from proctor.cli.table import print_table, say
    from proctor.experiments.describe import parameters

    for number, each in enumerate(chosen):
        params, takes_others = parameters(each)
        title = f"{each.slug}  {each.summary}".rstrip()
        if number:
            print()
        say(title, heading=True)
        say(f"defined at {each.place}" + (f"; tags {', '.join(each.tags)}" if each.tags else ""))
        if params:
            rows = [(p.name, _type(p), _default(p), _range(p), _meaning(p)) for p in params.values()]
            print_table(("param", "type", "default", "values", "meaning"), rows, whole=(2,), wrap=(3, 4))
        print("other parameters are accepted too" if takes_others else "no other parameters")


def _print_json(chosen: Iterable[Registered], broken: Iterable[Loaded]) -> None:
    from proctor.cli.table import print_json
    from proctor.experiments.describe import info

    experiments = []
    for each in chosen:
        about = info(each)
        experiments.append(
            {
                "slug": about.slug,
                "summary": about.summary,
                "tags": list(about.tags),
                "source": about.source,
                "digest": about.digest,
                "open_params": about.open_params,
                "params": _params_as_json(about.params),
            }
        )
    print_json(
        {
            "experiments": experiments,
            "broken": [{"source": each.source, "error": each.error} for each in broken],
        }
    )


def _params_as_json(params: Mapping[str, ParamInfo]) -> dict[str, Any]:
    return {
        name: {
            "type": param.type,
            "required": param.required,
            "default": None if param.required else param.default,
            "choices": list(param.choices),
            "minimum": param.minimum,
            "maximum": param.maximum,
            "nullable": param.nullable,
            "description": param.description,
            "each": param.each,
            "aliases": list(param.aliases),
        }
        for name, param in params.items()
    }


def _type(param: ParamInfo) -> str:
    return f"list of {param.each}" if param.each else param.type


def _meaning(param: ParamInfo) -> str:
    return param.description + (f"; older name: {', '.join(param.aliases)}" if param.aliases else "")


def _default(param: ParamInfo) -> str:
    import json

    return "required" if param.required else json.dumps(param.default)


def _range(param: ParamInfo) -> str:
    if param.choices:
        return " | ".join(map(str, param.choices))
    low, high = (
        "" if bound is None else (f"{sign} {bound:g}")
        for sign, bound in (("≥", param.minimum), ("≤", param.maximum))
    )
    return ", ".join(filter(None, (low, high)))
