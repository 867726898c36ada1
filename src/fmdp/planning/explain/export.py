"""A policy as something to read, or to run without fmdp: CSV, a decision tree, a Python function.

The CSV has a row for every state, made and written block by block. The tree (trees.py) is printed
with its size and the states where it errs. The Python file is one function, `act`, that needs
nothing but Python: made of the tree, as nested ifs where these can be read, as a list of nodes
where they would be too deep; or of the table, packed, where the tree has too many leaves.

Names may be anything that can be printed, and none may become code. In CSV a cell that a
spreadsheet would take for a formula gets an apostrophe in front. In Python names stand in literals
alone, escaped to ASCII, never in comments or docstrings: a comment in the first lines of a file can
change how all of it is read.
"""

from __future__ import annotations

import base64
import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fmdp._base.memory import describe_count
from fmdp._base.numerals import short_number
from fmdp.errors import InvalidParameter, TooLarge, printable
from fmdp.model import FactoredMDP
from fmdp.model.naming import Naming, Value, Variables, are_numerals, listed_values
from fmdp.model.spaces import count, strides
from fmdp.planning.evaluate import POLICY_GAIN_STATES, evaluate_exactly
from fmdp.planning.explain.tree_growth import MOST_STATES, grow
from fmdp.planning.explain.tree_kernels import LEAF
from fmdp.planning.explain.trees import PolicyTree, Tree
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.timed import TimedPolicy

MOST_ROWS = 1 << 24
"""Of a CSV."""
_BLOCK = 1 << 12
_MANY_LEAVES = 10_000
"""Above so many the table is shorter than the tree."""
_DEEP = 40
"""Questions up to which ifs are nested; Python itself ends at 100."""
_LONG_LIST = 8
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_of(policy: Any, most: int = MOST_STATES) -> TablePolicy:
    """The policy as a table, or one line why not."""
    if isinstance(policy, RandomisedPolicy):
        raise InvalidParameter(
            "the policy draws its actions at random: there is no table to be written"
        )
    if isinstance(policy, TimedPolicy):
        raise InvalidParameter(
            "the policy depends on the time: there is one table a step, and not one to be written"
        )
    n_states = count(policy.state_sizes)
    if n_states > most:
        raise TooLarge(
            f"the policy is over {describe_count(n_states)} states; at most "
            f"{describe_count(most)} can be written out",
            n_states,
            most,
        )
    if isinstance(policy, TablePolicy):
        return policy
    found: TablePolicy = policy.tabulate()
    return found


# ---- CSV -----------------------------------------------------------------------------------------


def csv_parts(policy: TablePolicy) -> Iterator[str]:
    """The text of the CSV in parts: a header with the names of all variables, a row a state."""
    naming = policy.naming
    yield _csv_text([[*naming.states.names, *naming.actions.names]])
    n_states = len(policy.actions)
    for first in range(0, n_states, _BLOCK):
        places = np.arange(first, min(first + _BLOCK, n_states))
        joint = policy.actions[places].astype(np.int64)
        columns = [*_columns(naming.states, places), *_columns(naming.actions, joint)]
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
    """A name as a cell that no spreadsheet takes for a formula; numbers stay numbers."""
    if word.startswith(_FORMULA) and not _NUMBER.fullmatch(word):
        return f"'{word}"
    return word


# ---- the tree, to be read ------------------------------------------------------------------------


def tree_parts(tree: PolicyTree, gains: str = "") -> Iterator[str]:
    """Yield the trees as indented ifs, one line for each question or answer."""
    yield f"# {tree}{gains}\n"
    naming = tree.naming
    for one in tree.trees:
        for indent, head, node in _walk(one):
            pad = "    " * indent
            if one.variable[node] != LEAF:
                yield f"{pad}{head}if {_question(one, node, naming)}:\n"
                continue
            if head:
                yield f"{pad}else:\n"
                pad += "    "
            answers = [
                f"{naming.actions.names[action]} = {naming.actions.values[action][value]}"
                for action, value in zip(one.actions, one.values(node), strict=True)
            ]
            yield f"{pad}{', '.join(answers)}\n"


def _walk(tree: Tree) -> Iterator[tuple[int, str, int]]:
    """(indentation, "else " where it answers no, node), in the order in which it is read. By hand:
    a tree may be deeper than Python's own stack."""
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
    """Yield a Python file with the function `act`: of the tree, or of the table without one."""
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
        for one in tree.trees:
            yield from _python_ifs(one, naming)
        yield "    return {name: action[name] for name in ACTIONS}\n"
    else:
        yield from _python_nodes(tree)


def _python_names(title: str, variables: Variables) -> Iterator[str]:
    yield f"{title} = {{\n"
    for name, values in zip(variables.names, variables.values, strict=True):
        if are_numerals(values) and len(values) > _LONG_LIST:
            known = f"tuple(range({len(values)}))"
        else:
            known = _literal(tuple(listed_values(values)))
        yield f"    {_literal(name)}: {known},\n"
    yield "}\n"


def _literal(value: Any) -> str:
    """A Python literal in ASCII, whatever the names hold."""
    return ascii(value)


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
                yield f"{pad}action[{_literal(name)}] = {_literal(answer)}\n"
            continue
        variable, value = int(tree.variable[node]), int(tree.value[node])
        asked = naming.states.listed[variable]
        test = f"== {_literal(asked[value])}"
        if tree.upto[node]:
            place = f"STATES[{_literal(naming.states.names[variable])}][:{value + 1}]"
            test = f"in {_literal(tuple(asked[: value + 1])) if value < _LONG_LIST else place}"
        word = "elif" if head else "if"
        yield f"{pad}{word} state[{_literal(naming.states.names[variable])}] {test}:\n"


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
    for one in tree.trees:
        names = tuple(tree.naming.actions.names[action] for action in one.actions)
        yield f"    ({_literal(names)}, (\n"
        for node in range(len(one.variable)):
            if one.variable[node] == LEAF:
                yield f"        (None, {one.values(node)}),\n"
            else:
                asked = (one.variable, one.value, one.upto, one.yes, one.no)
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
    """Return the text of a policy in one of the kinds, in parts, and a line that says what it is.

    Parameters
    ----------
    policy
        A table, or a policy that can be written out as one.
    kind
        "csv", "tree" or "python".
    max_leaves
        Most leaves of the tree; None is as many as it takes to be right.
    max_error
        Largest share of states in which the tree may be wrong; None is what `max_leaves` takes, or
        no state at all.
    model
        Whose constraints a smaller tree keeps, and in which what it costs is evaluated; None takes
        the constraints that the policy knows, and evaluates nothing.

    Raises
    ------
    TooLarge
        Where there are too many states.
    InvalidParameter
        Where the policy draws its actions, no tree is as small as that, or a smaller tree is asked
        for and the constraints are not known.
    """
    if kind == "csv":
        table = table_of(policy, MOST_ROWS)
        return csv_parts(table), f"{len(table.actions):,} rows, one a state"
    table = table_of(policy)
    constraints = table.constraints if model is None else model.structure.constraints
    smaller = max_leaves is not None or max_error is not None
    if smaller and constraints is None:
        raise InvalidParameter(
            "the policy does not say which constraints its model has, and a smaller tree might "
            "break them; name the model (--problem), or leave the tree exact"
        )

    def tree_of() -> PolicyTree:
        return grow(
            table, max_leaves=max_leaves, max_error=max_error, constraints=constraints or ()
        )

    if kind == "tree":
        tree = tree_of()
        gains = _gains(tree, table, model)
        return _one_line_each(tree_parts(tree, gains)), f"{tree}{gains}"
    found: PolicyTree | None
    try:
        found = tree_of()
    except TooLarge:
        found = None
    if found is not None and found.leaves > _MANY_LEAVES and not found.wrong:
        found = None
    if found is None:
        return python_parts(table, None), f"the table of {len(table.actions):,} states, packed"
    gains = _gains(found, table, model)
    return python_parts(table, found, gains), f"{found}{gains}"


def _gains(tree: PolicyTree, policy: TablePolicy, model: FactoredMDP | None) -> str:
    """Return what a tree that errs gains beside its policy, in words; "" if it is not known.

    Both are evaluated exactly, from the initial state, where the model is small enough.
    """
    if model is None or not tree.wrong or tree.n_states > POLICY_GAIN_STATES:
        return ""
    gains = [evaluate_exactly(model, one).gain for one in (tree.table, policy)]
    if None in gains:
        return ""
    small, whole = map(short_number, gains)
    return f"; gain {small}, the policy's is {whole}"


def _one_line_each(parts: Iterator[str]) -> Iterator[str]:
    for part in parts:
        yield f"{printable(part[:-1])}\n"
