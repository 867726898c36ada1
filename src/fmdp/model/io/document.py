"""The model in a parsed model file.

Version 1 has one table of rows per factor. Version 2 also has rules, which declare alike rows
(factors.py reads its tables), constraints, effects, intervals, costs, and ranges that are computed
from the tables. Version 3 also has derived variables and budgets. Version 1 is read as a version 2
with fewer keys and (0, 1) as the default range. Error messages name the
place, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmdp.errors import FileProblem, InvalidModel, TooLarge
from fmdp.model.alike import Alike
from fmdp.model.builder import Contents, contents_from_factors, variables_of
from fmdp.model.conditions import Conditions, value_of
from fmdp.model.constraints import MOST_ROWS, AtMost, Budget, Constraint, Forbidden
from fmdp.model.effects import Effect, Effects, check_components
from fmdp.model.fields import (
    array,
    is_array,
    is_number,
    is_object,
    is_text,
    is_whole,
    keyed,
    show,
    text,
)
from fmdp.model.forbidding import budget
from fmdp.model.intervals import Intervals
from fmdp.model.io.derived import read_derived
from fmdp.model.io.factors import (
    REWARD,
    TRANSITION,
    Factor,
    FactorReader,
    read_scope,
    refuse_large_tables,
)
from fmdp.model.io.variables import FileVariable, read_variable
from fmdp.model.noise import Noise
from fmdp.model.rules import inside, owners
from fmdp.model.spaces import FloatArray, IndexArray, count, project, shown, strides
from fmdp.model.structure import Structure

FORMAT = "fmdp-model"
VERSIONS = (1, 2, 3)
_KEYS = {
    1: ("name", "rewards", "initial_state", "groups"),
    2: ("name", "rewards", "initial_state", "groups", "constraints", "effects"),
    3: (
        "name",
        "rewards",
        "initial_state",
        "groups",
        "constraints",
        "effects",
        "derived",
        "quantities",
    ),
}
"""Optional keys of each version."""


def read_document(document: Any) -> Contents:
    """Return the contents of the model in a document.

    Raise FileProblem if it is of another format or version, InvalidModel if it is no model.
    """
    version = _version(document)
    top = keyed(
        document,
        "the model",
        required=("format", "version", "states", "actions", "transitions"),
        optional=_KEYS[version],
    )
    variables = _variables_of(top)
    entries = array(top["transitions"], '"transitions"', is_object, "an object")
    if len(entries) != variables.m:
        raise InvalidModel(
            f'"transitions" has {len(entries)} entries for {variables.m} state variables; '
            f"must have one per state variable, in their order"
        )
    rewards = array(top.get("rewards", []), '"rewards"', is_object, "an object")
    groups = [
        read_scope(group, variables, f"group {index}: scope", f"group {index}")
        for index, group in enumerate(
            array(top.get("groups", []), '"groups"', is_array, "an array of names")
        )
    ]
    name = text(top.get("name", ""), '"name"')
    if version == 1:
        _check_version_1(entries, rewards, variables)
        rewards = [{"range": [0, 1]} | entry for entry in rewards]
    return _contents(top, entries, rewards, variables, groups, name)


def _check_version_1(entries: Sequence[Any], rewards: Sequence[Any], variables: Structure) -> None:
    """Raise InvalidModel if a factor does not have exactly the keys of version 1."""
    for i, entry in enumerate(entries):
        keyed(entry, variables.transition_label(i), ("scope", "rows"), ("state",))
    for k, entry in enumerate(rewards):
        keyed(entry, f"reward factor {k}", ("scope", "means"), ("name", "range", "noise"))


def _version(document: Any) -> int:
    if not isinstance(document, dict):
        raise FileProblem(f"is {show(document)}; must be a JSON object with format {show(FORMAT)}")
    if "format" not in document:
        raise FileProblem(f'key "format" is missing; must be {show(FORMAT)}')
    if document["format"] != FORMAT:
        raise FileProblem(f'"format" is {show(document["format"])}; must be {show(FORMAT)}')
    known = f"{', '.join(map(str, VERSIONS[:-1]))} or {VERSIONS[-1]}"
    if "version" not in document:
        raise FileProblem(f'key "version" is missing; must be {known}')
    version = document["version"]
    if type(version) is not int or version < 1:
        raise FileProblem(f'"version" is {show(version)}; must be {known}')
    if version > VERSIONS[-1]:
        raise FileProblem(
            f'"version" is {show(version)}; this fmdp reads up to version {VERSIONS[-1]}: '
            f"a newer fmdp is needed"
        )
    return version


def _variables_of(top: dict[str, Any]) -> Structure:
    states, actions = _variables(top["states"], "state"), _variables(top["actions"], "action")
    variables = variables_of(
        [variable.size for variable in states],
        [variable.size for variable in actions],
        [variable.name for variable in states],
        [variable.name for variable in actions],
        [variable.values for variable in states],
        [variable.values for variable in actions],
    )
    return read_derived(top["derived"], variables) if "derived" in top else variables


def _check_state_key(entries: Sequence[dict[str, Any]], variables: Structure) -> None:
    for i, (entry, state) in enumerate(zip(entries, variables.state_names, strict=True)):
        if entry.get("state", state) != state:
            raise InvalidModel(
                f'{variables.transition_label(i)}: "state" is {show(entry["state"])}; must be '
                f"{show(state)}, as transitions are in the order of the states"
            )


def _contents(
    top: dict[str, Any],
    entries: Sequence[Any],
    reward_entries: Sequence[Any],
    variables: Structure,
    groups: Sequence[tuple[int, ...]],
    name: str,
) -> Contents:
    parts = _components(top["effects"], variables) if "effects" in top else None
    names = [
        text(entry.get("name", f"r{k}"), f'reward factor {k}: "name"')
        for k, entry in enumerate(reward_entries)
    ]
    labels = [f"reward factor {k} ({show(name)})" for k, name in enumerate(names)]
    readers = (
        FactorReader(
            TRANSITION,
            entries,
            variables,
            parts,
            variables.state_names,
            [variables.transition_label(i) for i in range(variables.m)],
            variables.state_sizes,
        ),
        FactorReader(REWARD, reward_entries, variables, parts, names, labels, [None] * len(names)),
    )
    _check_state_key(entries, variables)
    refuse_large_tables(readers)
    of_transitions, of_rewards = (reader.read() for reader in readers)
    noise = _noise_of(readers[1], labels)
    ranges = _ranges_of(readers[1], of_rewards, noise, labels)
    effects = _effects_of(parts, readers, of_rewards, variables, labels)
    joint, joint_rewards = (
        [factor.over_joint(parts, variables.sizes) for factor in factors]
        for factors in (of_transitions, of_rewards)
    )
    shared = any(reader.classes.any_shared for reader in readers) or effects is not None
    return contents_from_factors(
        variables,
        [(factor.scope, factor.table) for factor in joint],
        [(factor.scope, factor.table) for factor in joint_rewards],
        reward_ranges=ranges,
        reward_names=names,
        noise=noise,
        initial_state=_initial_state(top.get("initial_state", [0] * variables.m)),
        alike=Alike(
            tuple(factor.classes for factor in joint),
            tuple(factor.classes for factor in joint_rewards),
        )
        if shared
        else None,
        constraints=_constraints(top.get("constraints", []), variables, top["version"]),
        effects=effects,
        intervals=_intervals(joint, joint_rewards),
        groups=groups,
        name=name,
        quantities=_quantities(top.get("quantities", []), variables),
    )


def _quantities(given: Any, variables: Structure) -> list[tuple[str, tuple[int, ...], list[float]]]:
    """Return name, scope and means of the quantities of a file."""
    entries = []
    for number, entry in enumerate(array(given, '"quantities"', is_object, "an object")):
        label = f"quantity {number}"
        keyed(entry, label, ("name", "scope", "means"), ())
        name = text(entry["name"], f'{label}: "name"')
        scope = read_scope(entry["scope"], variables, f"{label}: scope", label)
        means = array(entry["means"], f'{label}: "means"', is_number, "a number")
        entries.append((name, tuple(scope), means))
    return entries


def _intervals(transitions: Sequence[Factor], rewards: Sequence[Factor]) -> Intervals | None:
    if all(factor.ends is None for factor in (*transitions, *rewards)):
        return None

    def end(factors: Sequence[Factor], which: int) -> tuple[FloatArray, ...]:
        return tuple(
            factor.table if factor.ends is None else factor.ends[which] for factor in factors
        )

    return Intervals(end(transitions, 0), end(transitions, 1), end(rewards, 0), end(rewards, 1))


def _noise_of(reader: FactorReader, labels: Sequence[str]) -> list[Noise]:
    """Return the noise of each reward, by default that of the factor that it is like."""
    noise: dict[int, Noise] = {}
    for k in reader.order:
        fields, source = reader.entries[k], reader.source.get(k)
        if "noise" in fields or source is None:
            noise[k] = _noise(fields.get("noise", {"kind": "deterministic"}), labels[k])
        else:
            noise[k] = noise[source]
    return [noise[k] for k in range(len(labels))]


def _ranges_of(
    reader: FactorReader, factors: Sequence[Factor], noise: Sequence[Noise], labels: Sequence[str]
) -> list[tuple[float, float]]:
    """Return the range of each reward: given, that of the factor it is like, or computed."""
    ranges: dict[int, tuple[float, float]] = {}
    for k in reader.order:
        fields, factor, label = reader.entries[k], factors[k], labels[k]
        source = reader.source.get(k)
        if "range" in fields:
            lo, hi = _range(fields["range"], label)
            ranges[k] = (-hi, -lo) if factor.costs else (lo, hi)
        elif source is not None:
            ranges[k] = ranges[source]
        else:
            ranges[k] = _default_range(factor, noise[k], label)
    return [ranges[k] for k in range(len(labels))]


def _default_range(factor: Factor, law: Noise, label: str) -> tuple[float, float]:
    if law.kind == "gaussian":
        raise InvalidModel(
            f'{label}: gaussian noise, and no "range"; must have one, as the noise is cut where '
            f"the range ends"
        )
    if law.kind == "bernoulli":
        return (-1.0, 0.0) if factor.costs else (0.0, 1.0)
    tables = (factor.table, *(factor.ends or ()))
    lo = min(float(table.min()) for table in tables)
    hi = max(float(table.max()) for table in tables)
    if not (np.isfinite(lo) and np.isfinite(hi)):
        raise InvalidModel(f"{label}: has an entry that is no finite number")
    return lo, hi


def _components(value: Any, variables: Structure) -> Effects:
    """Return the components of the effects, whose scopes and rewards are not known yet."""
    components: list[Effect] = []
    used: set[int] = set()
    for number, entry in enumerate(array(value, '"effects"', is_object, "an object")):
        label = f"effect {number}"
        fields = keyed(entry, label, required=("states", "actions", "outcome"), optional=())
        scopes = [
            tuple(sorted(read_scope(fields[key], variables, f'{label}: "{key}"', label)))
            for key in ("states", "actions")
        ]
        states, actions = scopes
        if any(v >= variables.m for v in states) or any(v < variables.m for v in actions):
            raise InvalidModel(
                f'{label}: "states" must be names of state variables, "actions" of action variables'
            )
        if not states or not actions:
            raise InvalidModel(f"{label}: must have a state and an action variable")
        if used & {*states, *actions}:
            raise InvalidModel(
                f"{label}: {show(variables.names[min(used & {*states, *actions})])} is in two "
                f"effects; must be in one"
            )
        used |= {*states, *actions}
        components.append(
            Effect(states, actions, _outcome(fields["outcome"], states, actions, variables, label))
        )
    effects = Effects(tuple(components), ((),) * variables.m)
    check_components(effects, variables.m, variables.sizes, variables.names)
    return effects


def _outcome(
    value: Any, states: Sequence[int], actions: Sequence[int], variables: Structure, label: str
) -> IndexArray:
    """Return the states after the actions of a component: by rules, or one joint index per row."""
    scope = (*states, *actions)
    rows = count(variables.scope_sizes(scope))
    if rows > MOST_ROWS:
        raise TooLarge(
            f"{label}: has {shown(rows)} assignments of its states and actions; at most "
            f"{MOST_ROWS}",
            rows,
            MOST_ROWS,
        )
    entries = array(value, f'{label}: "outcome"')
    if not entries or not all(map(is_whole, entries)):
        return _outcome_of_rules(entries, scope, len(states), variables, label)
    joint = count(variables.scope_sizes(states))
    if len(entries) != rows:
        raise InvalidModel(
            f'{label}: "outcome" has {len(entries)} numbers; must have {rows}, each '
            f"in 0..{joint - 1}"
        )
    for row, entry in enumerate(entries):
        if not 0 <= entry < joint:
            raise InvalidModel(
                f'{label}: "outcome", entry {row} is {show(entry)}; must be in 0..{joint - 1}'
            )
    return np.array(entries, dtype=np.int64)


def _outcome_of_rules(
    entries: Sequence[Any], scope: Sequence[int], n_states: int, variables: Structure, label: str
) -> IndexArray:
    conditions = Conditions(variables, scope, label)
    sizes = conditions.sizes
    boxes = []
    targets: list[dict[int, int]] = []
    for number, entry in enumerate(entries):
        place = f"{label}, rule {number}"
        fields = keyed(entry, place, required=("to",), optional=("when",))
        boxes.append(conditions.boxes(fields["when"], place) if "when" in fields else ({},))
        if not isinstance(fields["to"], dict):
            raise InvalidModel(f'{place}: "to" is {show(fields["to"])}; must be an object')
        target: dict[int, int] = {}
        for name, new in fields["to"].items():
            axis = conditions.axis(name, f'{place}: "to"')
            if axis >= n_states:
                raise InvalidModel(f'{place}: "to" has {show(name)}; must be of its states alone')
            target[axis] = value_of(variables, scope[axis], new, f'{place}: "to"')
        targets.append(target)
    owner = owners(sizes, boxes)
    idle = np.flatnonzero(np.bincount(owner[owner >= 0], minlength=len(boxes)) == 0)
    if idle.size:
        raise InvalidModel(
            f"{label}, rule {idle[0]}: can never fit, as earlier rules fit all of it"
        )
    outcome = np.zeros(count(sizes), dtype=np.int64)
    for axis, step in enumerate(strides(sizes[:n_states])):
        # Rows without a rule (-1) take the last entry, which does not change the state.
        new = np.array([target.get(axis, -1) for target in targets] + [-1])[owner]
        outcome += np.where(new >= 0, new, project(sizes, [axis])) * step
    return outcome


def _effects_of(
    parts: Effects | None,
    readers: Sequence[FactorReader],
    rewards: Sequence[Factor],
    variables: Structure,
    labels: Sequence[str],
) -> Effects | None:
    """Return the components with the scopes and rewards over the state after them."""
    reader = readers[1]
    kinds: dict[int, str] = {}
    for k in reader.order:
        fields, label = reader.entries[k], labels[k]
        if "kind" in fields and parts is None:
            raise InvalidModel(f'{label}: key "kind", but the model has no "effects"')
        if reader.after[k] is not None:
            default = "after"
        elif k in reader.source:
            default = kinds[reader.source[k]]
        else:
            base = variables.origins(rewards[k].scope)[0]
            default = "before" if all(v < variables.m for v in base) else "cost"
        kind = text(fields.get("kind", default), f'{label}: "kind"')
        if (kind == "after") != (reader.after[k] is not None):
            raise InvalidModel(
                f'{label}: "kind" is {show(kind)}; must be "after" exactly where there is a '
                f'key "after"'
            )
        kinds[k] = kind
    if parts is None:
        return None
    return Effects(
        parts.components,
        tuple(tuple(sorted(after or ())) for after in readers[0].after),
        tuple(kinds[k] for k in range(len(labels))),  # type: ignore[misc]  # Effects checks them
        tuple(tuple(sorted(after or ())) for after in reader.after),
    )


def _constraints(value: Any, variables: Structure, version: int) -> list[Constraint]:
    constraints: list[Constraint] = []
    for number, entry in enumerate(array(value, '"constraints"', is_object, "an object")):
        name = text(entry.get("name", ""), f'constraint {number}: "name"')
        label = f"constraint {number}{f' ({show(name)})' if name else ''}"
        if "at_most" in entry:
            fields = keyed(entry, label, required=("at_most",), optional=("name", "of", "idle"))
            constraints.append(_at_most(fields, variables, name, label))
        elif "budget" in entry:
            if version < 3:
                raise InvalidModel(
                    f'{label}: a budget needs "version": 3 of the model file; it is {version}'
                )
            fields = keyed(entry, label, required=("budget", "costs"), optional=("name",))
            constraints.append(_budget(fields, variables, name, label))
        else:
            fields = keyed(entry, label, required=("forbid",), optional=("name", "scope"))
            constraints.append(_forbidden(fields, variables, name, label))
    return constraints


def _forbidden(fields: dict[str, Any], variables: Structure, name: str, label: str) -> Forbidden:
    entries = array(fields["forbid"], f'{label}: "forbid"', is_object, "an object")
    named = fields.get("scope", list(dict.fromkeys(key for entry in entries for key in entry)))
    scope = tuple(sorted(read_scope(named, variables, f"{label}: scope", label)))
    sizes = variables.scope_sizes(scope)
    if count(sizes) > MOST_ROWS:
        raise TooLarge(
            f"{label}: speaks of variables with {shown(count(sizes))} joint values; at most "
            f"{MOST_ROWS} in one constraint",
            count(sizes),
            MOST_ROWS,
        )
    conditions = Conditions(variables, scope, label)
    boxes = [
        conditions.box(entry, f'{label}: "forbid", entry {number}')
        for number, entry in enumerate(entries)
    ]
    return Forbidden(scope, inside(sizes, boxes), name)


def _at_most(fields: dict[str, Any], variables: Structure, name: str, label: str) -> AtMost:
    named = fields.get("of", list(variables.action_names))
    of = read_scope(named, variables, f'{label}: "of"', label)
    idle = fields.get("idle", [variables.values[v][0] for v in of])
    each = idle if isinstance(idle, list) else [idle] * len(of)
    if len(each) != len(of):
        raise InvalidModel(
            f'{label}: "idle" has {len(each)} values for {len(of)} variables; must be one for all, '
            f"or one for each"
        )
    pairs = sorted(
        (variable, value_of(variables, variable, value, f'{label}: "idle"'))
        for variable, value in zip(of, each, strict=True)
    )
    try:
        return AtMost(
            tuple(variable for variable, _ in pairs),
            fields["at_most"],
            tuple(value for _, value in pairs),
            name,
        )
    except InvalidModel as error:
        raise InvalidModel(f"{label}: {error}") from None


def _budget(fields: dict[str, Any], variables: Structure, name: str, label: str) -> Budget:
    for key in fields["costs"] if is_object(fields["costs"]) else ():
        read_scope([key], variables, f'{label}: "costs"', label)
    try:
        return budget(variables, fields["budget"], fields["costs"], name=name)
    except InvalidModel as error:
        raise InvalidModel(f"{label}: {error}") from None


def _range(value: Any, label: str) -> tuple[float, float]:
    pair = array(value, f'{label}: "range"', is_number, "a number")
    if len(pair) != 2:
        raise InvalidModel(f'{label}: "range" is {show(pair)}; must be [lo, hi]')
    return pair[0], pair[1]


def _initial_state(value: Any) -> Any:
    if is_object(value):
        return value
    if not is_array(value):
        raise InvalidModel(
            f'"initial_state" is {show(value)}; must be an array, or an object by name'
        )
    allowed = "a whole number or the name of a value"
    return array(value, '"initial_state"', lambda v: is_whole(v) or is_text(v), allowed)


def _variables(value: Any, kind: str) -> list[FileVariable]:
    return [
        read_variable(entry, f"{kind} variable {index}")
        for index, entry in enumerate(array(value, f'"{kind}s"', is_object, "an object"))
    ]


def _noise(value: Any, label: str) -> Noise:
    fields = keyed(value, f"{label}, noise", required=("kind",), optional=("scale",))
    scale = fields.get("scale", 0.0)
    if not is_number(scale):
        raise InvalidModel(f'{label}, noise: "scale" is {show(scale)}; must be a number')
    try:
        return Noise(text(fields["kind"], f'{label}, noise: "kind"'), scale)  # type: ignore[arg-type]
    except InvalidModel as error:
        raise InvalidModel(f"{label}: {error}") from None
