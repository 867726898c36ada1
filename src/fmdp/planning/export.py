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
from collections.abc import Iterator
from typing import Any

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge, printable
from fmdp.memory import describe_count
from fmdp.model.naming import Naming, Variables, numerals
from fmdp.model.spaces import count, strides
from fmdp.planning.policy import TablePolicy
from fmdp.planning.randomised import RandomisedPolicy
from fmdp.planning.timed import TimedPolicy
from fmdp.planning.trees import LEAF, MOST_STATES, PolicyTree, Tree, grow

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


def tree_parts(tree: PolicyTree) -> Iterator[str]:
    """The trees as indented ifs, one line a question or an answer."""
    yield f"# {tree}\n"
    naming = tree.naming
    for one in tree.trees:
        name = naming.actions.names[one.action]
        values = naming.actions.values[one.action]
        for indent, head, node in _walk(one):
            pad = "    " * indent
            if one.variable[node] != LEAF:
                yield f"{pad}{head}if {_question(one, node, naming)}:\n"
                continue
            if head:
                yield f"{pad}else:\n"
                pad += "    "
            yield f"{pad}{name} = {values[one.label[node]]}\n"


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
    if values == numerals(len(values)):
        return f"{name} <= {value}"
    if value < _LONG_LIST:
        return f"{name} is {' or '.join(values[: value + 1])}"
    return f"{name} is one of the first {value + 1}, {values[0]} to {values[value]}"


# ---- Python --------------------------------------------------------------------------------------


def python_parts(policy: TablePolicy, tree: PolicyTree | None) -> Iterator[str]:
    """A Python file with the function `act`: of the tree, or of the table where there is none."""
    naming = policy.naming
    how = "the whole table" if tree is None else f"a tree: {tree}"
    yield (
        '"""A policy as one function: act(state) gives the action. Needs nothing but Python.\n\n'
        "The state is a mapping from every name in STATES to one of its values, or the same as\n"
        "keyword arguments; the action is a dictionary by name.\n\n"
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
        yield "    return action\n"
    else:
        yield from _python_nodes(tree)


def _python_names(title: str, variables: Variables) -> Iterator[str]:
    yield f"{title} = {{\n"
    for name, values in zip(variables.names, variables.values, strict=True):
        if values == numerals(len(values)) and len(values) > _LONG_LIST:
            known = f"tuple(map(str, range({len(values)})))"
        else:
            known = _literal(tuple(values))
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
        if value not in STATES[name]:
            raise ValueError(f"{name!r} has no value {value!r}")
    missing = [name for name in STATES if name not in state]
    if missing:
        raise ValueError(f"no value is given for {missing}")
    action = {}
'''


def _python_ifs(tree: Tree, naming: Naming) -> Iterator[str]:
    name = naming.actions.names[tree.action]
    values = naming.actions.values[tree.action]
    for indent, head, node in _walk(tree):
        pad = "    " * (indent + 1)
        if tree.variable[node] == LEAF:
            if head:
                yield f"{pad}else:\n"
                pad += "    "
            yield f"{pad}action[{_literal(name)}] = {_literal(values[tree.label[node]])}\n"
            continue
        variable, value = int(tree.variable[node]), int(tree.value[node])
        asked = naming.states.values[variable]
        test = f"== {_literal(asked[value])}"
        if tree.upto[node]:
            place = f"STATES[{_literal(naming.states.names[variable])}][:{value + 1}]"
            test = f"in {_literal(tuple(asked[: value + 1])) if value < _LONG_LIST else place}"
        word = "elif" if head else "if"
        yield f"{pad}{word} state[{_literal(naming.states.names[variable])}] {test}:\n"


_BY_NODES = """    places = [STATES[name].index(state[name]) for name in STATES]
    for name, nodes in zip(ACTIONS, NODES):
        node = nodes[0]
        while len(node) > 1:
            variable, value, upto, yes, no = node
            place = places[variable]
            node = nodes[yes if place == value or (upto and place < value) else no]
        action[name] = ACTIONS[name][node[0]]
    return action
"""


def _python_nodes(tree: PolicyTree) -> Iterator[str]:
    """For trees too deep for ifs: a node is (variable, value, up to, yes, no), a leaf (action,)."""
    yield "NODES = (\n"
    for one in tree.trees:
        yield "    (\n"
        for node in range(len(one.variable)):
            if one.variable[node] == LEAF:
                yield f"        ({int(one.label[node])},),\n"
            else:
                asked = (one.variable, one.value, one.upto, one.yes, one.no)
                yield f"        ({', '.join(str(int(column[node])) for column in asked)}),\n"
        yield "    ),\n"
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
    policy: Any, kind: str, *, max_leaves: int | None = None, max_error: float | None = None
) -> tuple[Iterator[str], str]:
    """The text of a policy in one of the kinds, in parts, and in one line what it is.

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

    Raises
    ------
    TooLarge
        Where there are too many states.
    InvalidParameter
        Where the policy draws its actions, or no tree is as small as that.
    """
    if kind == "csv":
        table = table_of(policy, MOST_ROWS)
        return csv_parts(table), f"{len(table.actions):,} rows, one a state"
    table = table_of(policy)
    if kind == "tree":
        tree = grow(table, max_leaves=max_leaves, max_error=max_error)
        return _one_line_each(tree_parts(tree)), str(tree)
    found: PolicyTree | None
    try:
        found = grow(table, max_leaves=max_leaves, max_error=max_error)
    except TooLarge:
        found = None
    if found is not None and found.leaves > _MANY_LEAVES and not found.wrong:
        found = None
    if found is None:
        return python_parts(table, None), f"the table of {len(table.actions):,} states, packed"
    return python_parts(table, found), str(found)


def _one_line_each(parts: Iterator[str]) -> Iterator[str]:
    for part in parts:
        yield f"{printable(part[:-1])}\n"
