"""Export of policies as CSV, as a decision tree to read, or as a Python function without fmdp.

The CSV has one row per state and is generated in blocks. The tree (trees.py) is printed with its
size and the number of wrong states. The Python file contains one function, `act`, and imports only
the standard library. It is made from the tree, as nested ifs, or as a list of nodes if the tree is
too deep; or from the compressed table if the tree has too many leaves.

Names may contain any printable characters and must not become code. In CSV, a cell that a
spreadsheet would read as a formula gets a leading apostrophe. In Python, names occur only in
literals, escaped to ASCII, never in comments or docstrings, because a comment in the first lines of
a file can declare its encoding.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp._base.numerals import short_number
from fmdp.errors import InvalidParameter, TooLarge, printable
from fmdp.model import FactoredMDP
from fmdp.model.expansion import expand, shared_draws
from fmdp.model.naming import Naming, Value, Variables, are_numerals, listed_values
from fmdp.model.spaces import count, decode, strides
from fmdp.planning.evaluate import POLICY_GAIN_STATES, evaluate_exactly
from fmdp.planning.explain.tree_growth import MOST_STATES, grow
from fmdp.planning.explain.tree_kernels import LEAF
from fmdp.planning.explain.trees import PolicyTree, Tree
from fmdp.planning.occupancy.law import NotCertified, long_run_law
from fmdp.planning.policies.mixed import MixedPolicy, one_table
from fmdp.planning.policies.policy import TablePolicy, has_sizes_of
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.timed import TimedPolicy

MOST_ROWS = 1 << 24
"""Most rows of a CSV."""
_BLOCK = 1 << 12
"""Rows of a CSV that are generated at once."""
_MANY_LEAVES = 10_000
"""Number of leaves above which the table is shorter than the tree."""
_DEEP = 40
"""Largest depth of nested ifs; Python's own limit is 100."""
_LONG_LIST = 8
"""Most values that are listed one by one."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_of(policy: Any, most: int = MOST_STATES) -> TablePolicy:
    """Return the policy as a table; raise InvalidParameter or TooLarge if it has none."""
    if isinstance(policy, RandomisedPolicy):
        raise InvalidParameter(
            "the policy draws its actions at random: there is no table to be written"
        )
    if isinstance(policy, TimedPolicy):
        raise InvalidParameter(
            "the policy depends on the time: there is one table a step, and not one to be written"
        )
    refuse_many_states(policy, most)
    if isinstance(policy, TablePolicy):
        return policy
    table: TablePolicy = policy.tabulate()
    return table


def refuse_many_states(policy: Any, most: int) -> None:
    """Raise TooLarge if a policy has more states than can be written out."""
    n_states = count(policy.state_sizes)
    if n_states > most:
        raise TooLarge(
            f"the policy is over {describe_count(n_states)} states; at most "
            f"{describe_count(most)} can be written out",
            n_states,
            most,
        )


# ---- CSV -----------------------------------------------------------------------------------------


def csv_parts(policy: TablePolicy) -> Iterator[str]:
    """Yield the text of the CSV: a header with the names of all variables, one row per state."""
    naming = policy.naming
    yield _csv_text([[*naming.states.names, *naming.actions.names]])
    n_states = len(policy.actions)
    for first in range(0, n_states, _BLOCK):
        places = np.arange(first, min(first + _BLOCK, n_states))
        joint = policy.actions[places].astype(np.int64)
        columns = [*_columns(naming.states, places), *_columns(naming.actions, joint)]
        yield _csv_text(zip(*columns, strict=True))


def mixed_csv_parts(policy: MixedPolicy) -> Iterator[str]:
    """Yield the text of the CSV of a randomised policy: one row per state and possible action.

    The last column is the probability of the action in the state.
    """
    naming = policy.naming
    yield _csv_text([[*naming.states.names, *naming.actions.names, "probability"]])
    n_states = len(policy.base.actions)
    lengths = np.diff(policy.starts)
    for first in range(0, n_states, _BLOCK):
        places = np.arange(first, min(first + _BLOCK, n_states))
        inside = (policy.states >= first) & (policy.states < first + _BLOCK)
        alone = np.setdiff1d(places, policy.states[inside])
        chosen = np.repeat(inside, lengths)
        states = np.concatenate([alone, np.repeat(policy.states, lengths)[chosen]])
        joint = np.concatenate(
            [policy.base.actions[alone].astype(np.int64), policy.choices[chosen]]
        )
        chances = np.concatenate([np.ones(len(alone)), policy.probabilities[chosen]])
        order = np.lexsort((-chances, states))
        columns = [*_columns(naming.states, states[order]), *_columns(naming.actions, joint[order])]
        columns.append([repr(chance) for chance in chances[order].tolist()])
        yield _csv_text(zip(*columns, strict=True))


def _columns(variables: Variables, index: Any) -> Iterator[list[str]]:
    for values, step, size in zip(
        variables.values, strides(variables.sizes), variables.sizes, strict=True
    ):
        yield [values[place] for place in (index // step % size).tolist()]


def _csv_text(rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(word) for word in row] for row in rows)
    return text.getvalue()


def _cell(word: str) -> str:
    """Return a name as a cell that spreadsheets do not read as a formula, numbers unchanged."""
    if word.startswith(_FORMULA) and not _NUMBER.fullmatch(word):
        return f"'{word}"
    return word


# ---- the tree, to be read ------------------------------------------------------------------------


def tree_parts(tree: PolicyTree, gains: str = "") -> Iterator[str]:
    """Yield the trees as indented ifs, one line per split or leaf."""
    yield f"# {tree}{gains}\n"
    naming = tree.naming
    for part in tree.trees:
        for indent, head, node in _walk(part):
            pad = "    " * indent
            if part.variable[node] != LEAF:
                yield f"{pad}{head}if {_question(part, node, naming)}:\n"
                continue
            if head:
                yield f"{pad}else:\n"
                pad += "    "
            answers = [
                f"{naming.actions.names[action]} = {naming.actions.values[action][value]}"
                for action, value in zip(part.actions, part.values(node), strict=True)
            ]
            yield f"{pad}{', '.join(answers)}\n"


def _walk(tree: Tree) -> Iterator[tuple[int, str, int]]:
    """Yield (indentation, "else " for a second child, node) in reading order.

    It is not recursive, because a tree may be deeper than Python's stack.
    """
    stack = [(0, "", 0)]
    while stack:
        indent, head, node = stack.pop()
        yield indent, head, node
        if tree.variable[node] != LEAF:
            stack.append((indent, "else ", int(tree.no[node])))
            stack.append((indent + 1, "", int(tree.yes[node])))


def _question(tree: Tree, node: int, naming: Naming) -> str:
    variable, value = int(tree.variable[node]), int(tree.value[node])
    name, values = naming.states.names[variable], naming.states.values[variable]
    if not tree.upto[node]:
        return f"{name} = {values[value]}"
    if _ascend(listed_values(values)):
        return f"{name} <= {values[value]}"
    if value < _LONG_LIST:
        return f"{name} is {' or '.join(values[: value + 1])}"
    return f"{name} is one of the first {value + 1}, {values[0]} to {values[value]}"


def _ascend(values: Sequence[Value]) -> bool:
    """Return whether the values are numbers in ascending order."""
    if isinstance(values, range):
        return True
    numbers = [value for value in values if not isinstance(value, str)]
    return len(numbers) == len(values) and numbers == sorted(numbers)


# ---- Python --------------------------------------------------------------------------------------


def python_parts(policy: TablePolicy, tree: PolicyTree | None, gains: str = "") -> Iterator[str]:
    """Yield a Python file with the function `act`, from the tree or, if it is None, the table."""
    naming = policy.naming
    how = "the whole table" if tree is None else f"a tree: {tree}{gains}"
    yield (
        '"""A policy as one function: act(state) gives the action. Needs nothing but Python.\n\n'
        "The state is a mapping from every name in STATES to one of its values, or to the text of\n"
        "the value, or the same as keyword arguments; the action is a dictionary by name.\n\n"
        f"Made of {how}.\n"
        '"""\n\n'
    )
    if tree is None:
        yield "import base64\nimport zlib\n\n"
    yield from _python_names("STATES", naming.states)
    yield from _python_names("ACTIONS", naming.actions)
    if tree is None:
        yield from _python_table(policy)
    elif tree.depth <= _DEEP:
        yield _CHECKED
        for part in tree.trees:
            yield from _python_ifs(part, naming)
        yield "    return {name: action[name] for name in ACTIONS}\n"
    else:
        yield from _python_nodes(tree)


def _python_names(title: str, variables: Variables) -> Iterator[str]:
    yield f"{title} = {{\n"
    for name, values in zip(variables.names, variables.values, strict=True):
        if are_numerals(values) and len(values) > _LONG_LIST:
            known = f"tuple(range({len(values)}))"
        else:
            known = ascii(tuple(listed_values(values)))
        yield f"    {name!a}: {known},\n"
    yield "}\n"


_CHECKED = '''

def act(state=None, /, **values):
    """The action in a state, both by name; ValueError where it is no state."""
    state = {**({} if state is None else state), **values}
    for name, value in state.items():
        if name not in STATES:
            raise ValueError(f"no state variable is called {name!r}; known are {[*STATES]}")
        known = [one for one in STATES[name] if one == value or str(one) == str(value)]
        if not known:
            raise ValueError(f"{name!r} has no value {value!r}; known are {STATES[name]}")
        state[name] = known[0]
    missing = [name for name in STATES if name not in state]
    if missing:
        raise ValueError(f"no value is given for {missing}")
    action = {}
'''


def _python_ifs(tree: Tree, naming: Naming) -> Iterator[str]:
    for indent, head, node in _walk(tree):
        pad = "    " * (indent + 1)
        if tree.variable[node] == LEAF:
            if head:
                yield f"{pad}else:\n"
                pad += "    "
            for action, chosen in zip(tree.actions, tree.values(node), strict=True):
                name = naming.actions.names[action]
                answer = naming.actions.listed[action][chosen]
                yield f"{pad}action[{name!a}] = {answer!a}\n"
            continue
        variable, value = int(tree.variable[node]), int(tree.value[node])
        asked = naming.states.listed[variable]
        test = f"== {asked[value]!a}"
        if tree.upto[node]:
            place = f"STATES[{naming.states.names[variable]!a}][:{value + 1}]"
            test = f"in {ascii(tuple(asked[: value + 1])) if value < _LONG_LIST else place}"
        word = "elif" if head else "if"
        yield f"{pad}{word} state[{naming.states.names[variable]!a}] {test}:\n"


_BY_NODES = """    places = [STATES[name].index(state[name]) for name in STATES]
    for names, nodes in NODES:
        node = nodes[0]
        while node[0] is not None:
            variable, value, upto, yes, no = node
            place = places[variable]
            node = nodes[yes if place == value or (upto and place < value) else no]
        for name, place in zip(names, node[1]):
            action[name] = ACTIONS[name][place]
    return {name: action[name] for name in ACTIONS}
"""


def _python_nodes(tree: PolicyTree) -> Iterator[str]:
    """Yield trees that are too deep for ifs as tables of nodes.

    A node is (variable, value, up to, yes, no), a leaf (None, positions of the actions).
    """
    yield "NODES = (\n"
    for part in tree.trees:
        names = tuple(tree.naming.actions.names[action] for action in part.actions)
        yield f"    ({names!a}, (\n"
        for node in range(len(part.variable)):
            if part.variable[node] == LEAF:
                yield f"        (None, {part.values(node)}),\n"
            else:
                asked = (part.variable, part.value, part.upto, part.yes, part.no)
                yield f"        ({', '.join(str(int(column[node])) for column in asked)}),\n"
        yield "    )),\n"
    yield ")\n"
    yield _CHECKED
    yield _BY_NODES


_BY_TABLE = """    place = 0
    for name, known in STATES.items():
        place = place * len(known) + known.index(state[name])
    joint = int.from_bytes(TABLE[place * WIDTH : (place + 1) * WIDTH], "little")
    for name in reversed(ACTIONS):
        joint, value = divmod(joint, len(ACTIONS[name]))
        action[name] = ACTIONS[name][value]
    return {name: action[name] for name in ACTIONS}
"""


def _python_table(policy: TablePolicy) -> Iterator[str]:
    table = policy.actions.astype(policy.actions.dtype.newbyteorder("<"), copy=False)
    packed = base64.b85encode(zlib.compress(table.tobytes(), 9)).decode("ascii")
    yield f"WIDTH = {table.dtype.itemsize}\n"
    yield "TABLE = zlib.decompress(\n    base64.b85decode(\n"
    for first in range(0, len(packed), 80):
        yield f"        {packed[first : first + 80]!r}\n"
    yield "    )\n)\n"
    yield _CHECKED
    yield _BY_TABLE


_MIXED = """

_always = act


def act(state=None, number=None, /, **values):
    \"\"\"An action in a state, drawn by a number in [0, 1), which is random by default.\"\"\"
    action = _always(state, **values)
    state = {**({} if state is None else state), **values}
    place = 0
    for name, known in STATES.items():
        place = place * len(known) + [str(one) for one in known].index(str(state[name]))
    choices = MIXED.get(place, ())
    number = random.random() if number is None and choices else number
    for chance, positions in choices:
        action = {name: ACTIONS[name][p] for name, p in zip(ACTIONS, positions)}
        if number < chance:
            break
        number -= chance
    return action
"""


def _python_mixed(policy: MixedPolicy) -> Iterator[str]:
    """Yield what follows the function of the base policy: the states that randomise."""
    yield "\n\nimport random\n\n"
    yield "# The index of a state -> pairs of a probability and the positions of the action.\n"
    yield "MIXED = {\n"
    for row, state in enumerate(policy.states.tolist()):
        some = slice(policy.starts[row], policy.starts[row + 1])
        pairs = [
            (chance, decode(joint, policy.action_sizes))
            for chance, joint in zip(
                policy.probabilities[some].tolist(), policy.choices[some].tolist(), strict=True
            )
        ]
        yield f"    {state}: {tuple(pairs)!a},\n"
    yield "}\n"
    yield _MIXED


def _exported_mixed(policy: MixedPolicy, kind: str) -> tuple[Iterator[str], str]:
    mixed = f"{len(policy.states):,} states randomise"
    if kind == "tree":
        raise InvalidParameter(
            f"a tree has one action in each leaf, but {mixed}; export the policy as csv or python"
        )
    if kind == "csv":
        rows = len(policy.base.actions) + len(policy.choices) - len(policy.states)
        refuse_many_states(policy, MOST_ROWS)
        return mixed_csv_parts(policy), f"{rows:,} rows, one per state and possible action"
    parts, what = exported(policy.base, kind)
    return itertools.chain(parts, _python_mixed(policy)), f"{what}; {mixed}"


# ---- all of them ---------------------------------------------------------------------------------

KINDS = ("csv", "tree", "python")


def exported(
    policy: Any,
    kind: str,
    *,
    max_leaves: int | None = None,
    max_error: float | None = None,
    model: FactoredMDP | None = None,
) -> tuple[Iterator[str], str]:
    """Return the text of a policy in parts, and one line that describes it.

    `kind` is one of `KINDS`; for `max_leaves` and `max_error` see `grow`. The model provides the
    constraints of a smaller tree and is used to evaluate it. None uses the constraints that the
    policy stores and evaluates nothing. Raises TooLarge if there are too many states, and
    InvalidParameter if the policy is randomised, no tree is small enough, or a smaller tree is
    requested and the constraints are not known.
    """
    if isinstance(policy, MixedPolicy):
        if max_leaves is not None or max_error is not None:
            raise InvalidParameter("a policy that randomises has no smaller tree")
        return _exported_mixed(policy, kind)
    if kind == "csv":
        table = table_of(policy, MOST_ROWS)
        return csv_parts(table), f"{len(table.actions):,} rows, one per state"
    table = table_of(policy)
    constraints = table.constraints if model is None else model.structure.constraints
    smaller = max_leaves is not None or max_error is not None
    if smaller and constraints is None:
        raise InvalidParameter(
            "the policy does not say which constraints its model has, and a smaller tree might "
            "break them; name the model (--problem), or leave the tree exact"
        )

    # An error is a share of states; only the number of leaves leaves a choice of what to lose.
    visits = max_leaves is not None and max_error is None
    shares = _visits(table, model) if visits and model is not None else None

    def tree_of() -> PolicyTree:
        limits: dict[str, Any] = {"max_leaves": max_leaves, "constraints": constraints or ()}
        tree = grow(table, max_error=max_error, **limits)
        if shares is None or model is None or not tree.wrong:
            return tree
        return _better(model, tree, grow(table, shares=shares, **limits))

    tree: PolicyTree | None
    if kind == "tree":
        tree = tree_of()
        gains = _gains(tree, table, model)
        return _one_line_each(tree_parts(tree, gains)), f"{tree}{gains}"
    try:
        tree = tree_of()
    except TooLarge:
        tree = None
    if tree is None or (tree.leaves > _MANY_LEAVES and not tree.wrong):
        return python_parts(table, None), f"the table of {len(table.actions):,} states, packed"
    gains = _gains(tree, table, model)
    return python_parts(table, tree, gains), f"{tree}{gains}"


def _visits(policy: TablePolicy, model: FactoredMDP) -> NDArray[np.float64] | None:
    """Return the share of time that the policy spends in every state; None if it is not known."""
    if len(policy.actions) > POLICY_GAIN_STATES or shared_draws(model.structure):
        return None
    has_sizes_of(policy, model.structure)
    tables = one_table(policy.actions.astype(np.int64))
    try:
        law = long_run_law(expand(model), tables)
    except (NotCertified, TooLarge):
        return None
    shares = np.zeros(len(policy.actions))
    shares[law.states] = law.shares
    return shares


def _better(model: FactoredMDP, by_states: PolicyTree, by_time: PolicyTree) -> PolicyTree:
    """Return the tree with the larger gain; the one that is weighted by time if they are equal.

    Neither is always better: a state that is seldom visited may be costly to be wrong in.
    """
    gains = [evaluate_exactly(model, tree.table).gain for tree in (by_states, by_time)]
    if gains[0] is not None and gains[1] is not None and gains[0] > gains[1]:
        return by_states
    return by_time


def _gains(tree: PolicyTree, policy: TablePolicy, model: FactoredMDP | None) -> str:
    """Return a text that compares the gain of a wrong tree with its policy's; "" if not known.

    Both are evaluated exactly from the initial state, if the model is small enough.
    """
    if model is None or not tree.wrong or tree.n_states > POLICY_GAIN_STATES:
        return ""
    gains = [evaluate_exactly(model, table).gain for table in (tree.table, policy)]
    if None in gains:
        return ""
    small, whole = map(short_number, gains)
    loss = gains[1] - gains[0]  # type: ignore[operator]
    share = f" (loses {100 * loss / abs(gains[1]):.2g} %)" if gains[1] and loss > 0 else ""
    return f"; gain {small}, the policy's is {whole}{share}"


def _one_line_each(parts: Iterator[str]) -> Iterator[str]:
    for part in parts:
        yield f"{printable(part[:-1])}\n"
