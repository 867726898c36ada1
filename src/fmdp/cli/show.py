"""`fmdp show`: variables, scopes, sizes, the network drawn in text; one table on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp.cli.network import draw
from fmdp.cli.options import Json, Problem
from fmdp.cli.output import (
    columns,
    console,
    print_json,
    print_people,
    short_number,
    table,
)
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.model import Constraint, FactoredMDP, Structure

# A picture longer than a screen or two says less than the table of scopes above it.
MOST_LINES_OF_NETWORK = 60
MOST_VALUES_SHOWN = 6


def show(
    problem: Problem,
    factor: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="FACTOR",
            help="Print the table of a factor: a state variable or a reward factor, by name.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Rows of the table to print; 0 for all. Default: 40.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Variables, scopes, the network; a table on request."""
    from fmdp._base.parameters import Integer
    from fmdp.problems import problem as problem_of

    if rows is not None and (factor is None or json):
        raise InvalidParameter(
            "--rows is for a table that is printed (--table without --json); the object has all"
        )
    limit = Integer("rows", 40, "rows of the table", low=0).check(rows or 40, "fmdp show")
    with progress(f"reading {problem}", compiles=False):
        model = problem_of(problem)
    if json:
        print_json(description(model) | ({"table": table_json(model, factor)} if factor else {}))
    elif factor:
        print_table(model, factor, limit)
    else:
        print_model(model)


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
        "constraints": [constraint_json(structure, own) for own in structure.constraints],
        "effects": None
        if structure.effects is None
        else [
            {
                "states": scope_names(structure, own.states),
                "actions": scope_names(structure, own.actions),
            }
            for own in structure.effects.components
        ],
        "intervals": model.intervals is not None,
        "content_hash": model.content_hash,
    }


def classes_or_none(structure: Structure, classes: Any) -> int | None:
    """How many classes of alike rows; none where every row is its own."""
    if structure.alike is None:
        return None
    return classes if isinstance(classes, int) else len(set(classes.tolist()))


def constraint_json(structure: Structure, constraint: Constraint) -> dict[str, Any]:
    """A constraint by names: a cap with its idle values, or how many assignments it forbids."""
    from fmdp.model import AtMost

    common = {"name": constraint.name, "scope": scope_names(structure, constraint.scope)}
    if isinstance(constraint, AtMost):
        idle = [structure.values[v][value] for v, value in constraint.pairs()]
        return common | {"at_most": constraint.most, "idle": idle}
    table = constraint.forbidden_table(structure.sizes)
    return common | {"forbidden": int(table.sum()), "rows": len(table)}


def constraint_text(structure: Structure, constraint: Constraint) -> str:
    """What a constraint says, in a few words: a cap, or the first assignments that it forbids."""
    from fmdp.model import AtMost
    from fmdp.model.spaces import decode

    if isinstance(constraint, AtMost):
        pairs = constraint.pairs()
        idle = {structure.values[v][value] for v, value in pairs}
        rest = idle.pop() if len(idle) == 1 else "their idle value"
        return f"at most {constraint.most} of {len(pairs)} not at {rest}"
    table = constraint.forbidden_table(structure.sizes)
    sizes = structure.scope_sizes(constraint.scope)
    first = [
        " ".join(
            structure.values[v][value]
            for v, value in zip(constraint.scope, decode(int(row), sizes), strict=True)
        )
        for row in table.nonzero()[0][:3]
    ]
    more = int(table.sum()) - len(first)
    return "; ".join(first + ([f"{more:,} more"] if more else [])) or "nothing"


def scope_names(structure: Structure, scope: tuple[int, ...]) -> list[str]:
    return [structure.names[variable] for variable in scope]


def alike_text(structure: Structure) -> str:
    """ "5 classes of 224 transition rows, 2 of 14 reward rows"."""
    return (
        f"{structure.n_transition_classes:,} classes of {structure.row_starts[-1]:,} transition "
        f"rows, {structure.n_reward_classes:,} of {structure.reward_starts[-1]:,} reward rows"
    )


def rows_text(structure: Structure, rows: int, classes: Any) -> tuple[str, ...]:
    """How many rows, and how many classes of them where some are alike."""
    if structure.alike is None:
        return (describe_count(rows),)
    return describe_count(rows), f"{classes_or_none(structure, classes):,}"


def print_model(model: FactoredMDP) -> None:
    structure = model.structure
    alike = structure.alike
    counted = ("rows",) if alike is None else ("rows", "classes")
    start = " ".join(
        values[value]
        for values, value in zip(structure.state_values, model.initial_state, strict=True)
    )
    print_people(
        columns(
            [
                ("problem", model.name),
                ("states", describe_count(structure.n_states)),
                ("actions", describe_count(structure.n_actions)),
                ("state variables (m)", f"{structure.m:,}"),
                ("reward factors (l)", f"{structure.l:,}"),
                (
                    f"{'rows' if alike is None else 'classes of rows'} of the largest table (L)",
                    describe_count(structure.max_scope_size),
                ),
                ("values of the largest variable (W)", describe_count(structure.max_state_size)),
                *([] if alike is None else [("alike rows", alike_text(structure))]),
                ("initial state", start),
            ]
        ),
        table(
            ("state variable", "values", "depends on", *counted),
            [
                (
                    structure.state_names[i],
                    values_text(structure.state_values[i]),
                    ", ".join(scope_names(structure, structure.transition_scopes[i])),
                    *rows_text(
                        structure, structure.transition_rows[i], structure.transition_classes_of(i)
                    ),
                )
                for i in range(structure.m)
            ],
            right=counted,
        ),
        table(
            ("action variable", "values"),
            [
                (name, values_text(values))
                for name, values in zip(
                    structure.action_names, structure.action_values, strict=True
                )
            ],
        ),
        table(
            ("reward factor", "range", "noise", "depends on", *counted),
            [
                (
                    structure.reward_names[k],
                    f"[{short_number(lo)}, {short_number(hi)}]",
                    model.noise[k].kind,
                    ", ".join(scope_names(structure, structure.reward_scopes[k])) or "-",
                    *rows_text(structure, structure.reward_rows[k], structure.reward_classes_of(k)),
                )
                for k, (lo, hi) in enumerate(structure.reward_ranges)
            ],
            right=counted,
        ),
    )
    if structure.constraints:
        rows = [
            (
                own.name or "-",
                ", ".join(scope_names(structure, own.scope)),
                constraint_text(structure, own),
            )
            for own in structure.constraints
        ]
        print()
        print_people(table(("constraint", "on", "forbids, or allows"), rows))
    if structure.effects is not None:
        acting = [
            tuple(", ".join(scope_names(structure, part)) for part in (own.actions, own.states))
            for own in structure.effects.components
        ]
        print()
        print_people(table(("acting first, surely", "on"), acting))
    if model.intervals is not None:
        print("\nthe numbers are known within intervals: --robust plans for the worst of them")
    parents = [structure.state_scope(i) for i in range(structure.m)]
    lines = draw(structure.state_names, parents, min(console().width, 100))
    print("\nnetwork (a → b: a influences b; (a): drawn elsewhere)")
    for line in lines[:MOST_LINES_OF_NETWORK]:
        print(f"  {line}")
    if len(lines) > MOST_LINES_OF_NETWORK:
        print(f"  ... {len(lines) - MOST_LINES_OF_NETWORK} more lines")


def names_json(values: Sequence[str]) -> Sequence[str] | None:
    """The names of values; none where thousands are called by their numbers, which say nothing."""
    return values if isinstance(values, tuple) else None


def values_text(values: Sequence[str]) -> str:
    """ "2: down, up", with the middle left out of a long list."""
    if len(values) > MOST_VALUES_SHOWN:
        shown = [*values[: MOST_VALUES_SHOWN - 2], "...", values[-1]]
    else:
        shown = list(values)
    return f"{len(values)}: {', '.join(shown)}"


def find_factor(structure: Structure, name: str) -> tuple[str, int]:
    """("transition", i) or ("reward", k); a name that both have is told apart by a prefix."""
    from fmdp.errors import UnknownName, did_you_mean

    kinds = {"transition": structure.state_names, "reward": structure.reward_names}
    kind, colon, rest = name.partition(":")
    if colon and kind in kinds and rest in kinds[kind]:
        return kind, kinds[kind].index(rest)
    found = [(kind, names.index(name)) for kind, names in kinds.items() if name in names]
    if len(found) == 1:
        return found[0]
    if found:
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
    if kind == "transition":
        return {
            "factor": structure.state_names[index],
            "kind": kind,
            "scope": scope_names(structure, structure.transition_scopes[index]),
            "scope_sizes": structure.scope_sizes(structure.transition_scopes[index]),
            "values": names_json(structure.state_values[index]),
            "rows": model.transitions[index],
        }
    return {
        "factor": structure.reward_names[index],
        "kind": kind,
        "scope": scope_names(structure, structure.reward_scopes[index]),
        "scope_sizes": structure.scope_sizes(structure.reward_scopes[index]),
        "values": None,
        "rows": model.rewards[index],
    }


def print_table(model: FactoredMDP, name: str, limit: int) -> None:
    from fmdp.model.spaces import decode

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
            *(
                structure.values[variable][value]
                for variable, value in zip(
                    scope, decode(row, structure.scope_sizes(scope)), strict=True
                )
            ),
            *(short_number(float(number)) for number in numbers[row]),
        ]
        for row in range(shown)
    ]
    print_people(table([*scope_names(structure, scope), *heads], rows, right=heads))
    if shown < len(numbers):
        print(f"... {len(numbers) - shown:,} more rows (--rows 0 prints all)")
