"""`fmdp show`: variables, scopes, sizes, the network as text, or the table of one factor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp._base.parameters import Integer
from fmdp.cli.network import draw
from fmdp.cli.options import Json, Problem
from fmdp.cli.output import columns, console, print_json, print_people, short_number, table
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fmdp.model import Constraint, FactoredMDP, Structure

# Longer drawings say less than the table of scopes above them.
MOST_LINES_OF_NETWORK = 60
MOST_VALUES_SHOWN = 6


def show(
    problem: Problem,
    factor: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="FACTOR",
            help="Print the table of one factor instead: the name of a state variable or reward "
            "factor.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="N", help="Rows of --table to print; 0 for all. Default: 40."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="List instead what may be a mistake: unread parents, values never left or "
            "reached, factors and actions that are equal or without effect.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show the variables, scopes and tables of a problem.

    The file of a saved learner is shown with the scopes that it learned.
    """
    from fmdp.problems import problem as problem_of

    if rows is not None and (factor is None or json):
        raise InvalidParameter(
            "--rows is for a printed table (--table without --json); JSON has all rows"
        )
    if check and factor:
        raise InvalidParameter("--check lists findings, --table one table; give one of them")
    limit = Integer("rows", 40, "rows of the table", low=0).check(rows or 40, "fmdp show")
    if is_archive(Path(problem)):
        if factor or check:
            raise InvalidParameter("--table and --check are for models; a learner has neither")
        show_learner(problem, json)
        return
    with progress(f"reading {problem}", compiles=False):
        model = problem_of(problem)
    if check:
        print_check(model, json)
    elif json:
        print_json(description(model) | ({"table": table_json(model, factor)} if factor else {}))
    elif factor:
        print_table(model, factor, limit)
    else:
        print_model(model)


def is_archive(path: Path) -> bool:
    """Return whether there is such a file and it begins as the files of saved learners do."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except (OSError, ValueError):
        return False


def show_learner(path: str, json: bool) -> None:
    """Show a saved learner: its settings, its steps, and the scopes that it learned."""
    from fmdp.learning.files import load_agent

    with progress(f"reading {path}"):
        agent = load_agent(path)
        scopes = agent.learner.learned_scopes(agent)
    planner = None if agent.planner is None else agent.planner.name
    if json:
        settings = {
            p.name: p.show(getattr(agent.learner, p.name)) for p in agent.learner.parameters
        }
        print_json(
            {
                "learner": agent.learner.name,
                "parameters": settings,
                "planner": planner,
                "steps": agent.steps,
                "episodes": agent.episodes,
                "planner_calls": agent.planner_calls,
                "scopes": scopes,
                "scope_findings": [finding._asdict() for finding in agent.scope_findings],
            }
        )
        return
    rows = [
        ("learner", ", ".join((agent.learner.name, *agent.learner.words()))),
        ("planner", planner or "-"),
        ("steps", f"{agent.steps:,}"),
        ("episodes", f"{agent.episodes:,}, {agent.planner_calls:,} plans"),
    ]
    if scopes is None:
        print_people(columns([*rows, ("scopes", "known")]))
        return
    rows.append(("scopes changed", f"{scopes['preparations']:,} times"))
    print_people(columns(rows))
    parents = [(name, used, scopes["edges"][name]) for name, used in scopes["scopes"].items()]
    lines = [
        (
            name,
            edges_text([(p, edges.get(p, 0.0)) for p in used]),
            edges_text([edge for edge in edges.items() if edge[0] not in used and edge[1] > 0.01]),
        )
        for name, used, edges in parents
    ]
    print_people(table(("state variable", "depends on (probability)", "or perhaps on"), lines))
    for finding in agent.scope_findings:
        print_people(f"{finding}")
    print_network(agent.statistics.structure)


def edges_text(edges: Sequence[tuple[str, float]]) -> str:
    """Return, e.g., "machine_0 1.00, restart .98", the most probable ones first."""
    ranked = sorted(edges, key=lambda edge: -round(edge[1], 2))
    return ", ".join(f"{name} {probability:.2f}" for name, probability in ranked) or "-"


def print_check(model: FactoredMDP, json: bool) -> None:
    """Print the findings about a model, one per line."""
    findings = model.check()
    if json:
        print_json({"problem": model.name, "findings": [asdict(finding) for finding in findings]})
        return
    rows = [(finding.kind.replace("_", " "), finding.text) for finding in findings]
    print_people(columns(rows or [("check", "nothing found")]))


def description(model: FactoredMDP) -> dict[str, Any]:
    structure = model.structure
    return {
        "problem": model.name,
        "states": structure.n_states,
        "actions": structure.n_actions,
        "m": structure.m,
        "l": structure.l,
        "L": structure.max_scope_size,
        "W": structure.max_state_size,
        "transition_classes": classes_or_none(structure, structure.n_transition_classes),
        "reward_classes": classes_or_none(structure, structure.n_reward_classes),
        "initial_state": model.initial_state,
        "remarks": model.remarks,
        "state_variables": [
            {
                "name": structure.state_names[i],
                "size": structure.state_sizes[i],
                "values": names_json(structure.state_values[i]),
                "scope": scope_names(structure, structure.transition_scopes[i]),
                "rows": structure.transition_rows[i],
                "classes": classes_or_none(structure, structure.transition_classes_of(i)),
            }
            for i in range(structure.m)
        ],
        "action_variables": [
            {"name": name, "size": size, "values": names_json(values)}
            for name, size, values in zip(
                structure.action_names, structure.action_sizes, structure.action_values, strict=True
            )
        ],
        "derived_variables": [
            {
                "name": variable.name,
                "size": variable.size,
                "values": names_json(variable.values),
                "scope": scope_names(structure, variable.scope),
                "drawn": not variable.deterministic,
                "partial": variable.partial,
            }
            for variable in structure.derived
        ],
        "quantities": [
            {
                "name": quantity.name,
                "scope": scope_names(structure, quantity.scope),
                "rows": len(quantity.table),
                "range": (float(quantity.table.min()), float(quantity.table.max())),
            }
            for quantity in model.quantities
        ],
        "reward_factors": [
            {
                "name": structure.reward_names[k],
                "scope": scope_names(structure, structure.reward_scopes[k]),
                "rows": structure.reward_rows[k],
                "classes": classes_or_none(structure, structure.reward_classes_of(k)),
                "range": structure.reward_ranges[k],
                "noise": model.noise[k].kind,
                "noise_scale": model.noise[k].scale,
            }
            for k in range(structure.l)
        ],
        "groups": [[structure.state_names[i] for i in group] for group in structure.groups],
        "constraints": [constraint_json(structure, cap) for cap in structure.constraints],
        "effects": None
        if structure.effects is None
        else [
            {
                "states": scope_names(structure, component.states),
                "actions": scope_names(structure, component.actions),
            }
            for component in structure.effects.components
        ],
        "intervals": model.intervals is not None,
        "content_hash": model.content_hash,
    }


def classes_or_none(structure: Structure, classes: Any) -> int | None:
    """Return the number of classes of alike rows, or None if the model declares none."""
    if structure.alike is None:
        return None
    return classes if isinstance(classes, int) else len(set(classes.tolist()))


def constraint_json(structure: Structure, constraint: Constraint) -> dict[str, Any]:
    """Return a constraint by names: a cap, a budget with its costs, or what is forbidden."""
    from fmdp.model import AtMost, Budget

    common = {"name": constraint.name, "scope": scope_names(structure, constraint.scope)}
    if isinstance(constraint, AtMost):
        idle = [structure.values[v][value] for v, value in constraint.pairs()]
        return common | {"at_most": constraint.most, "idle": idle}
    if isinstance(constraint, Budget):
        return common | {"budget": constraint.limit, "costs": constraint.costs}
    table = constraint.forbidden_table(structure.sizes)
    return common | {"forbidden": int(table.sum()), "rows": len(table)}


def constraint_text(structure: Structure, constraint: Constraint) -> str:
    """Return a constraint in words: a cap, a budget, or the first assignments that it forbids."""
    from fmdp.model import AtMost, Budget

    if isinstance(constraint, AtMost):
        pairs = constraint.pairs()
        idle = {structure.values[v][value] for v, value in pairs}
        rest = idle.pop() if len(idle) == 1 else "their idle value"
        return f"at most {constraint.most} of {len(pairs)} not at {rest}"
    if isinstance(constraint, Budget):
        return f"costs of {len(constraint.actions)} actions at most {constraint.limit}"
    table = constraint.forbidden_table(structure.sizes)
    first = [
        " ".join(assignment_names(structure, constraint.scope, int(row)))
        for row in table.nonzero()[0][:3]
    ]
    more = int(table.sum()) - len(first)
    return "; ".join(first + ([f"{more:,} more"] if more else [])) or "nothing"


def assignment_names(structure: Structure, scope: tuple[int, ...], row: int) -> list[str]:
    """Return the names of the values of a row of a table."""
    from fmdp.model.spaces import decode

    values = decode(row, structure.scope_sizes(scope))
    return [structure.values[v][value] for v, value in zip(scope, values, strict=True)]


def scope_names(structure: Structure, scope: tuple[int, ...]) -> list[str]:
    return [structure.names[variable] for variable in scope]


def scope_text(structure: Structure, scope: tuple[int, ...]) -> str:
    return ", ".join(scope_names(structure, scope))


def alike_text(structure: Structure) -> str:
    """Return, e.g., "5 classes of 224 transition rows, 2 of 14 reward rows"."""
    return (
        f"{structure.n_transition_classes:,} classes of {structure.row_starts[-1]:,} transition "
        f"rows, {structure.n_reward_classes:,} of {structure.reward_starts[-1]:,} reward rows"
    )


def rows_text(structure: Structure, rows: int, classes: Any) -> tuple[str, ...]:
    """Return the number of rows and, if some are alike, of their classes."""
    if structure.alike is None:
        return (describe_count(rows),)
    return describe_count(rows), f"{classes_or_none(structure, classes):,}"


def print_model(model: FactoredMDP) -> None:
    structure = model.structure
    print_people(sizes_table(model), *factor_tables(model))
    for remark in model.remarks:
        print(f"\nremark: {remark}")
    if structure.constraints:
        rows = [
            (
                constraint.name or "-",
                scope_text(structure, constraint.scope),
                constraint_text(structure, constraint),
            )
            for constraint in structure.constraints
        ]
        print()
        print_people(table(("constraint", "on", "allows or forbids"), rows))
    if structure.effects is not None:
        effects = [
            (scope_text(structure, component.actions), scope_text(structure, component.states))
            for component in structure.effects.components
        ]
        print()
        print_people(table(("immediate effect of", "on"), effects))
    if model.intervals is not None:
        print("\nthe numbers are known within intervals: --robust plans for the worst case")
    print_network(structure)


def sizes_table(model: FactoredMDP) -> RenderableType:
    structure = model.structure
    alike = structure.alike is not None
    start = " ".join(
        values[value]
        for values, value in zip(structure.state_values, model.initial_state, strict=True)
    )
    rows = "classes of rows" if alike else "rows"
    return columns(
        [
            ("problem", model.name),
            ("states", describe_count(structure.n_states)),
            ("actions", describe_count(structure.n_actions)),
            ("state variables (m)", f"{structure.m:,}"),
            ("reward factors (l)", f"{structure.l:,}"),
            (f"{rows} of the largest table (L)", describe_count(structure.max_scope_size)),
            ("values of the largest variable (W)", describe_count(structure.max_state_size)),
            *([("alike rows", alike_text(structure))] if alike else []),
            ("initial state", start),
        ]
    )


def factor_tables(model: FactoredMDP) -> Iterator[RenderableType]:
    """Yield the tables of state, action and derived variables and of reward factors."""
    s = model.structure
    counts = ("rows",) if s.alike is None else ("rows", "classes")
    yield table(
        ("state variable", "values", "depends on", *counts),
        [
            (
                s.state_names[i],
                values_text(s.state_values[i]),
                scope_text(s, s.transition_scopes[i]),
                *rows_text(s, s.transition_rows[i], s.transition_classes_of(i)),
            )
            for i in range(s.m)
        ],
        right=counts,
    )
    yield table(
        ("action variable", "values"),
        [
            (name, values_text(values))
            for name, values in zip(s.action_names, s.action_values, strict=True)
        ],
    )
    if s.derived:
        yield table(
            ("derived variable", "values", "computed from"),
            [
                (
                    variable.name,
                    values_text(variable.values),
                    scope_text(s, origins_shown(s, variable.scope))
                    + ("" if variable.deterministic else " (drawn)"),
                )
                for variable in s.derived
                if not variable.partial
            ],
        )
    yield table(
        ("reward factor", "range", "noise", "depends on", *counts),
        [
            (
                s.reward_names[k],
                f"[{short_number(low)}, {short_number(high)}]",
                model.noise[k].kind,
                scope_text(s, s.reward_scopes[k]) or "-",
                *rows_text(s, s.reward_rows[k], s.reward_classes_of(k)),
            )
            for k, (low, high) in enumerate(s.reward_ranges)
        ],
        right=counts,
    )
    if model.quantities:
        yield table(
            ("quantity", "range", "depends on", "rows"),
            [
                (
                    quantity.name,
                    f"[{short_number(quantity.table.min())}, {short_number(quantity.table.max())}]",
                    scope_text(s, quantity.scope) or "-",
                    f"{len(quantity.table):,}",
                )
                for quantity in model.quantities
            ],
            right=("rows",),
        )


def origins_shown(s: Structure, scope: Sequence[int]) -> tuple[int, ...]:
    """Return a scope with partial sums replaced by the variables that they add up."""
    n = len(s.sizes)
    shown: list[int] = []
    for v in scope:
        partial = v >= n and s.derived[v - n].partial
        shown += origins_shown(s, s.derived[v - n].scope) if partial else (v,)
    return tuple(sorted(shown))


def print_network(structure: Structure) -> None:
    parents = [structure.state_scope(i) for i in range(structure.m)]
    lines = draw(structure.state_names, parents, min(console().width, 100))
    print("\nnetwork (a → b: a influences b; (a): drawn elsewhere)")
    for line in lines[:MOST_LINES_OF_NETWORK]:
        print(f"  {line}")
    if len(lines) > MOST_LINES_OF_NETWORK:
        print(f"  ... {len(lines) - MOST_LINES_OF_NETWORK} more lines")


def names_json(values: Sequence[str]) -> Sequence[str] | None:
    """Return the names of values, or None for a long range of numbers."""
    return values if isinstance(values, tuple) else None


def values_text(values: Sequence[str]) -> str:
    """Return, e.g., "2: down, up"; the middle of a long list is left out."""
    if len(values) > MOST_VALUES_SHOWN:
        shown = [*values[: MOST_VALUES_SHOWN - 2], "...", values[-1]]
    else:
        shown = list(values)
    return f"{len(values)}: {', '.join(shown)}"


def find_factor(structure: Structure, name: str) -> tuple[str, int]:
    """Return ("transition", i) or ("reward", k); a prefix distinguishes a name that both have."""
    from fmdp.errors import UnknownName, did_you_mean

    kinds = {"transition": structure.state_names, "reward": structure.reward_names}
    kind, colon, rest = name.partition(":")
    if colon and kind in kinds and rest in kinds[kind]:
        return kind, kinds[kind].index(rest)
    matches = [(kind, names.index(name)) for kind, names in kinds.items() if name in names]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownName(
            f'"{name}" is a state variable and a reward factor; '
            f'write "transition:{name}" or "reward:{name}"'
        )
    known = [*structure.state_names, *structure.reward_names]
    shown = known if len(known) <= 12 else [*known[:6], "...", *known[-5:]]
    raise UnknownName(
        f'no factor "{name}"; there are {", ".join(shown)}{did_you_mean(name, known)}'
    )


def table_json(model: FactoredMDP, name: str) -> dict[str, Any]:
    structure = model.structure
    kind, index = find_factor(structure, name)
    transition = kind == "transition"
    scopes = structure.transition_scopes if transition else structure.reward_scopes
    return {
        "factor": (structure.state_names if transition else structure.reward_names)[index],
        "kind": kind,
        "scope": scope_names(structure, scopes[index]),
        "scope_sizes": structure.scope_sizes(scopes[index]),
        "values": names_json(structure.state_values[index]) if transition else None,
        "rows": (model.transitions if transition else model.rewards)[index],
    }


def print_table(model: FactoredMDP, name: str, limit: int) -> None:
    structure = model.structure
    kind, index = find_factor(structure, name)
    if kind == "transition":
        scope = structure.transition_scopes[index]
        numbers = model.transitions[index]
        heads = [f"next {value}" for value in structure.state_values[index]]
    else:
        scope = structure.reward_scopes[index]
        numbers = model.rewards[index].reshape(-1, 1)
        heads = ["mean reward"]
    shown = min(limit or len(numbers), len(numbers))
    rows = [
        [
            *assignment_names(structure, scope, row),
            *(short_number(float(number)) for number in numbers[row]),
        ]
        for row in range(shown)
    ]
    print_people(table([*scope_names(structure, scope), *heads], rows, right=heads))
    if shown < len(numbers):
        print(f"... {len(numbers) - shown:,} more rows (--rows 0 prints all)")
