"""Cost networks: the maximum over all assignments of a sum of functions of few variables each.

Variables are eliminated one at a time in a min-fill order (Bertelè & Brioschi 1972). Node k takes
the functions and messages that mention its variable and sends up U_k(separator), the maximum over
the variable. Time and memory are the sum of the joint tables. They are predicted, and refused if
too large, before anything is allocated.

A variable in most of the functions, such as the one action variable of SysAdmin, is a *context*: it
is conditioned on instead of eliminated. `classes` maps the contexts of a function to slices of its
table. Contexts share every message below which they see slice 0 only, and a context whose other
slices all lie below node t is closed there by a message from above, D_t. So a thousand actions that
affect one function each cost a few passes, and a thousand that affect all functions cost a thousand
passes. The maximum is exact in either case.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory, describe_bytes
from fmdp.elimination import maxsum, tuning
from fmdp.elimination.maxsum import Floats, Ints, Messages, Packed, Schedule, ShortInts
from fmdp.errors import TooLarge
from fmdp.model.groups import Groups
from fmdp.model.spaces import project, starts
from fmdp.model.structure import Scope

ROOT = -1
"""Parent of the last node of a component."""


@dataclass(frozen=True)
class Function:
    """Location of one function's table in the buffer: [slices, rows], rows in C order."""

    scope: Scope
    """Variables of the function without the context."""
    context: int
    """The variable that selects the slice, or -1."""
    slices: int
    rows: int
    offset: int

    @property
    def entries(self) -> int:
        return self.slices * self.rows


@dataclass(frozen=True)
class Node:
    """One elimination: the joint table is over (*separator, variable), the variable fastest."""

    variable: int
    separator: Scope
    functions: tuple[int, ...]
    children: tuple[int, ...]
    parent: int

    @property
    def joint(self) -> Scope:
        return (*self.separator, self.variable) if self.variable >= 0 else ()


@dataclass(frozen=True)
class Component:
    """A connected part of the network: its context and its nodes, children first, root last."""

    context: int
    nodes: tuple[Node, ...]


def min_fill(
    neighbours: Mapping[int, Iterable[int]], sizes: Sequence[int], deadline: Deadline = NEVER
) -> list[int]:
    """Return an elimination order by fewest added edges, then smallest table, then index. The edges
    of a variable with many neighbours are not counted: it is postponed until it has fewer."""
    graph = {v: set(others) - {v} for v, others in neighbours.items()}

    def price(v: int) -> tuple[int, float, int]:
        around = graph[v]
        degree = len(around)
        weight = sizes[v] * math.prod(float(sizes[u]) for u in around)
        if degree > tuning.MANY_NEIGHBOURS:
            return degree * (degree - 1) // 2, weight, v
        present = sum(len(graph[u] & around) for u in around)
        return (degree * (degree - 1) - present) // 2, weight, v

    current = {v: price(v) for v in graph}
    heap = list(current.values())
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        deadline.check()
        best = heapq.heappop(heap)
        v = best[2]
        if current.get(v) != best:
            continue
        del current[v]
        order.append(v)
        around = graph.pop(v)
        changed = set(around)
        for u in around:
            graph[u].discard(v)
        for u in around:
            for added in around - graph[u] - {u}:
                graph[u].add(added)
                graph[added].add(u)
                changed |= graph[u] & graph[added]
        for u in changed:
            now = price(u)
            if now != current[u]:
                current[u] = now
                heapq.heappush(heap, now)
    return order


def choose_contexts(
    sizes: Sequence[int], scopes: Sequence[Scope], prefer: int = -1
) -> tuple[int, ...]:
    """Return for every function the context variable of its component, or -1. The context is the
    variable in most functions of the component, if those are more than half and at least three (of
    equals the one with most values, then the lowest index), or the preferred variable in the
    component that has it."""
    owner = _components(sizes, scopes)
    members: dict[int, list[int]] = {}
    for f, component in enumerate(owner):
        members.setdefault(component, []).append(f)
    contexts = [-1] * len(scopes)
    for functions in members.values():
        uses: dict[int, int] = {}
        for f in functions:
            for v in scopes[f]:
                uses[v] = uses.get(v, 0) + 1
        if not uses:
            continue
        chosen = max(uses, key=lambda v: (uses[v], sizes[v], -v))
        if prefer in uses:
            chosen = prefer
        if chosen == prefer or (uses[chosen] >= 3 and 2 * uses[chosen] > len(functions)):
            for f in functions:
                contexts[f] = chosen
    return tuple(contexts)


class FunctionTables:
    """Tables of functions, end to end in `buffer`; `functions[f]` locates the table of f."""

    def __init__(
        self,
        sizes: Sequence[int],
        scopes: Sequence[Scope],
        contexts: Sequence[int],
        classes: Mapping[int, NDArray[Any]],
    ) -> None:
        """Allocate the tables; arguments as in `Network`."""
        self.sizes = tuple(int(size) for size in sizes)
        self.functions, self._classes = _lay_out(self.sizes, scopes, contexts, classes)
        self.n_functions = sum(function.entries for function in self.functions)
        """Entries of all function tables: the head of the buffer."""
        self.buffer: Floats = np.zeros(self.n_functions)

    def table(self, f: int) -> Floats:
        """Return the writable table of function f in the buffer, [slices, rows]."""
        function = self.functions[f]
        flat = self.buffer[function.offset : function.offset + function.entries]
        return flat.reshape(function.slices, function.rows)

    def slices_of(self, f: int) -> Ints | None:
        """Return the slice of function f per context value; None if f does not mention it."""
        return self._classes[f]


class Network(FunctionTables):
    """A prepared cost network: index arrays and buffers, filled and maximised many times."""

    def __init__(
        self,
        sizes: Sequence[int],
        scopes: Sequence[Scope],
        *,
        contexts: Sequence[int] | None = None,
        classes: Mapping[int, NDArray[Any]] | None = None,
        close_inside: bool = False,
        memory_limit: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        """Prepare the network; raise TooLarge above the memory limit, TimeUp after the deadline.

        `contexts` is as from `choose_contexts`; `classes[f][value of the context]` is the slice of
        function f, numbered from 0. A function that mentions the context and has no classes has one
        slice per value. With `close_inside`, contexts that see slice 0 alone are closed where
        another one is, instead of at the root, so that they have `rivals` too.
        """
        chosen = choose_contexts(sizes, scopes) if contexts is None else tuple(contexts)
        super().__init__(sizes, scopes, chosen, classes or {})
        self.components = _trees(
            self.sizes, self.functions, chosen, _components(sizes, scopes), deadline
        )
        joints = [
            (_product(self.sizes, node.joint), node, component)
            for component in self.components
            for node in component.nodes
        ]
        self.width = max(
            (len(node.joint) - 1 + (component.context >= 0) for _, node, component in joints),
            default=0,
        )
        """Induced width of the order, the context included: variables in a joint table less one."""
        limit = memory_limit if memory_limit is not None else available_memory() // 2
        builder = _Builder(self, close_inside, deadline)
        self.bytes = builder.predicted_bytes()
        if self.bytes > limit:
            largest, node, _ = max(joints, key=lambda joint: joint[0])
            raise TooLarge(
                f"the cost network has induced width {self.width} (largest table: {largest} "
                f"entries over variables {_short(node.joint)}) and needs "
                f"{describe_bytes(self.bytes)}; the memory limit is {describe_bytes(limit)}",
                self.bytes,
                limit,
            )
        builder.build()
        deadline.check()
        self.schedule: Schedule = builder.schedule()
        self.kinds: tuple[str, ...] = tuple(builder.kinds)
        """Kind of message of every block: "up", "down", "close", "contexts" or "sum"."""
        self.n_messages = len(self.schedule.owner)
        self.root = self.n_functions + self.n_messages - 1
        """Position of the maximum itself: the last message."""
        self.closing: tuple[tuple[int, int], ...] = tuple(builder.closing)
        """Per component, the positions [first, end) of its maxima, one per context."""
        self.maxima: tuple[int, ...] = tuple(builder.maxima)
        """Per component, the position of its maximum over the contexts."""
        self._size_array = np.array(self.sizes, dtype=np.int64)
        self.buffer = np.zeros(self.n_functions + self.n_messages)
        self.best: ShortInts = np.zeros(self.n_messages, dtype=np.int32)
        stack = np.zeros(len(self.kinds) + len(self.functions) + 2, dtype=np.int64)
        messages = Messages(self.buffer, self.best, stack)
        self.packed: Packed = tuple(self.schedule), tuple(messages)
        """The arrays of the compiled passes (maxsum.py)."""

    def maximise(self) -> float:
        """Return the maximum of the sum of the functions in the buffer."""
        maxsum.evaluate(self.packed)
        return float(self.buffer[self.root])

    def rivals(self, head: int, most: int) -> Ints:
        """Return at most `most` second-best joint entries of the item that writes `head` alone.
        Rivals are best for some values of the item's first variables, or of its last, but not best
        of all. They are sorted by their sums, best first."""
        schedule = self.schedule
        item = schedule.owner[head - self.n_functions]
        block = schedule.item_block[item]
        joint = int(schedule.block_joint[block])
        sums = np.zeros(joint)
        maps = schedule.input_map[schedule.block_inputs[block] : schedule.block_inputs[block + 1]]
        for q, first_entry in enumerate(maps):
            where = schedule.input_at[schedule.item_input[item] + q]
            sums += self.buffer[where + schedule.maps[first_entry : first_entry + joint]]
        first, end = schedule.first_variable[block : block + 2]
        sizes = [self.sizes[v] for v in schedule.variables[first:end]]
        leading, trailing = (
            max((g for g in itertools.accumulate(order, mul) if g <= tuning.RIVALS), default=1)
            for order in (sizes, sizes[::-1])
        )
        by_first = np.arange(leading) * (joint // leading) + sums.reshape(leading, -1).argmax(
            axis=1
        )
        by_last = np.arange(trailing) + sums.reshape(-1, trailing).argmax(axis=0) * trailing
        rivals: Ints = np.unique(np.concatenate([by_first, by_last]))
        rivals = rivals[np.isfinite(sums[rivals]) & (rivals != self.best[head - self.n_functions])]
        return rivals[np.argsort(-sums[rivals], kind="stable")][:most]

    def maximiser(self, start: int | None = None) -> Ints:
        """Return an assignment that attains the last maximum, or the message entry at `start`.
        Variables that no function mentions are 0."""
        values = np.zeros(len(self.sizes), dtype=np.int64)
        start = self.root if start is None else start
        maxsum.assign(self.packed, start, self._size_array, values)
        return values


def _product(sizes: Sequence[int], scope: Scope) -> int:
    return math.prod(sizes[v] for v in scope)


def _short(variables: Scope) -> str:
    shown = ", ".join(str(v) for v in variables[:8])
    return f"({shown}{', ...' if len(variables) > 8 else ''})"


def _components(sizes: Sequence[int], scopes: Sequence[Scope]) -> list[int]:
    """Return for every function the number of its connected component, by first function. A
    function without variables is a component by itself."""
    joined = Groups(len(sizes))
    joined.join_all(scopes)
    numbers: dict[tuple[str, int], int] = {}
    return [
        numbers.setdefault(("of", joined.leader(scope[0])) if scope else ("alone", f), len(numbers))
        for f, scope in enumerate(scopes)
    ]


def _lay_out(
    sizes: Sequence[int],
    scopes: Sequence[Scope],
    contexts: Sequence[int],
    classes: Mapping[int, NDArray[Any]],
) -> tuple[tuple[Function, ...], list[NDArray[np.int64] | None]]:
    """Return the locations of the tables, and for every function the slice of each context."""
    functions: list[Function] = []
    slices_of: list[NDArray[np.int64] | None] = []
    offset = 0
    for f, (scope, context) in enumerate(zip(scopes, contexts, strict=True)):
        ordinary = tuple(v for v in scope if v != context)
        slice_numbers: NDArray[np.int64] | None = None
        if context in scope:
            given = classes.get(f)
            slice_numbers = (
                np.arange(sizes[context]) if given is None else np.asarray(given, dtype=np.int64)
            )
        slices = 1 if slice_numbers is None else int(slice_numbers.max()) + 1
        rows = _product(sizes, ordinary)
        functions.append(Function(ordinary, context, slices, rows, offset))
        slices_of.append(slice_numbers)
        offset += slices * rows
    return tuple(functions), slices_of


def _trees(
    sizes: Sequence[int],
    functions: Sequence[Function],
    contexts: Sequence[int],
    owner: Sequence[int],
    deadline: Deadline,
) -> tuple[Component, ...]:
    members: dict[int, list[int]] = {}
    for f, component in enumerate(owner):
        members.setdefault(component, []).append(f)
    return tuple(
        Component(contexts[inside[0]], _tree(sizes, functions, inside, deadline))
        for inside in members.values()
    )


def _tree(
    sizes: Sequence[int], functions: Sequence[Function], inside: Sequence[int], deadline: Deadline
) -> tuple[Node, ...]:
    """Return the nodes of one component; a last node without a variable adds up the rest."""
    neighbours: dict[int, set[int]] = {}
    for f in inside:
        for v in functions[f].scope:
            neighbours.setdefault(v, set()).update(functions[f].scope)
    order = min_fill(neighbours, sizes, deadline)
    turn = {v: k for k, v in enumerate(order)}
    last = len(order)
    homes: list[list[int]] = [[] for _ in range(last + 1)]
    for f in inside:
        homes[min((turn[v] for v in functions[f].scope), default=last)].append(f)
    children: list[list[int]] = [[] for _ in range(last + 1)]
    separators: list[set[int]] = [set() for _ in range(last + 1)]
    nodes: list[Node] = []
    for k, v in enumerate(order):
        separator = separators[k]
        for f in homes[k]:
            separator.update(functions[f].scope)
        separator.discard(v)
        parent = min((turn[u] for u in separator), default=last)
        separators[parent] |= separator
        children[parent].append(k)
        nodes.append(Node(v, tuple(sorted(separator)), tuple(homes[k]), tuple(children[k]), parent))
    nodes.append(Node(-1, (), tuple(homes[last]), tuple(children[last]), ROOT))
    return tuple(nodes)


class _Builder:
    """Builder of the schedule from the trees: first the counts, then the arrays."""

    def __init__(self, network: Network, close_inside: bool, deadline: Deadline) -> None:
        self.network = network
        self._close_inside = close_inside
        self._deadline = deadline
        self.sizes = network.sizes
        self.kinds: list[str] = []
        self._block_variables: list[Scope] = []
        self.closing: list[tuple[int, int]] = []
        self.maxima: list[int] = []
        self._maps: dict[tuple[Any, ...], int] = {}
        self._map_arrays: list[NDArray[np.int64]] = []
        self._map_end = 0
        self._position = network.n_functions
        self._blocks: list[tuple[int, int, int, int]] = []  # items, joint, out map, out size
        self._inputs: list[list[int]] = []
        self._reads: list[NDArray[np.int64]] = []
        self._outs: list[NDArray[np.int64]] = []
        self._counts = [self._special(component) for component in network.components]

    # -- what each context sees ---------------------------------------------------------------

    def _special(self, component: Component) -> NDArray[np.int32]:
        """Return [nodes, contexts]: functions at or below a node that show a slice other than 0."""
        n_contexts = self._n_contexts(component)
        counts = np.zeros((len(component.nodes), n_contexts), dtype=np.int32)
        for k, node in enumerate(component.nodes):
            self._deadline.check()
            for f in node.functions:
                slices = self.network.slices_of(f)
                if slices is not None:
                    counts[k] += slices != 0
            for child in node.children:
                counts[k] += counts[child]
        return counts

    def _n_contexts(self, component: Component) -> int:
        return self.sizes[component.context] if component.context >= 0 else 1

    def predicted_bytes(self) -> int:
        """Return the bytes of tables, messages, maximisers, items and index maps. Maps are counted
        as if none were shared. Python integers do not overflow at any width."""
        joint_entries = messages = items = reads = 0
        for component, counts in zip(self.network.components, self._counts, strict=True):
            total = counts[-1]
            for k, node in enumerate(component.nodes):
                joint = _product(self.sizes, node.joint)
                inputs = len(node.functions) + len(node.children) + 1
                joint_entries += joint * (inputs + 1)
                shared = int(((counts[k] > 0) & (counts[k] < total)).sum())
                written = shared + 2
                messages += written * _product(self.sizes, node.separator)
                items += written
                reads += written * inputs
            messages += len(total) + 1
            items += len(total) + 1
            reads += len(total) * 4
        return (
            8 * (self.network.n_functions + messages + reads + 2 * items)
            + 8 * messages
            + 8 * joint_entries
        )

    # -- pieces ----------------------------------------------------------------------------------

    def _map(self, joint: Scope, target: Scope) -> int:
        """Return the index map from the entries of a joint table to those of a table over
        `target`."""
        shape = tuple(self.sizes[v] for v in joint)
        axes = tuple(joint.index(v) for v in target)
        key = (shape, axes)
        if key not in self._maps:
            entries = project(shape, axes)
            self._maps[key] = self._map_end
            self._map_arrays.append(entries)
            self._map_end += len(entries)
        return self._maps[key]

    def _block(
        self,
        kind: str,
        joint: Scope,
        input_maps: list[int],
        reads: NDArray[np.int64],  # [items, inputs]
        out_map: int,
        out_size: int,
        outs: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Append a block; return the positions of its messages, [items]."""
        items = len(reads)
        if outs is None:
            outs = self._position + out_size * np.arange(items)
            self._position += items * out_size
        self.kinds.append(kind)
        self._block_variables.append(joint)
        self._blocks.append((items, _product(self.sizes, joint), out_map, out_size))
        self._inputs.append(input_maps)
        self._reads.append(np.ascontiguousarray(reads, dtype=np.int64))
        self._outs.append(outs)
        return outs

    # -- the schedule ----------------------------------------------------------------------------

    def build(self) -> None:
        for component, counts in zip(self.network.components, self._counts, strict=True):
            self._component(component, counts)
        sum_reads = np.array(self.maxima, dtype=np.int64).reshape(1, -1)
        nothing = self._map((), ())
        self._block("sum", (), [nothing] * len(self.maxima), sum_reads, nothing, 1)

    def _component(self, component: Component, counts: NDArray[np.int32]) -> None:
        nodes = component.nodes
        n_contexts = counts.shape[1]
        total = counts[-1]
        # A context closes at the first node that has all its special functions at or below it.
        closes = np.full(n_contexts, len(nodes) - 1)
        special = np.flatnonzero(total > 0)
        closes[special] = np.argmax(counts[:, special] == total[special], axis=0)
        if self._close_inside and len(special):
            closes[total == 0] = closes[special].min()

        up: dict[int, NDArray[np.int64]] = {}  # node -> position of U for each context
        default: list[int] = []  # node -> position of U for slices 0
        closings: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
        own_maps: list[list[int]] = []
        for k, node in enumerate(nodes):
            self._deadline.check()
            columns = [self._seen(f, n_contexts) for f in node.functions]
            columns += [up[child] for child in node.children]
            seen = np.array(columns, dtype=np.int64).reshape(len(columns), n_contexts)
            maps = [self._map(node.joint, self.network.functions[f].scope) for f in node.functions]
            maps += [self._map(node.joint, nodes[child].separator) for child in node.children]
            own_maps.append(maps)
            closed = np.flatnonzero(closes == k)
            if len(closed):
                closings.append((k, closed, seen[:, closed].T))
            for child in node.children:
                del up[child]
            if node.parent == ROOT:
                continue
            # Item 0 is the message for slices 0; one more for each context that differs below k
            # and does not close there.
            passing = np.flatnonzero((counts[k] > 0) & (counts[k] < total))
            plain = [self.network.functions[f].offset for f in node.functions]
            plain += [default[child] for child in node.children]
            reads = np.vstack([np.array(plain, dtype=np.int64)[None, :], seen[:, passing].T])
            out_size = _product(self.sizes, node.separator)
            outs = self._block(
                "up", node.joint, maps, reads, self._map(node.joint, node.separator), out_size
            )
            default.append(int(outs[0]))
            of_context = np.full(n_contexts, outs[0])
            of_context[passing] = outs[1:]
            up[k] = of_context

        down = self._down(nodes, default, own_maps, [k for k, _, _ in closings])
        first = self._position
        self._position += n_contexts
        for k, closed, reads in closings:
            node = nodes[k]
            maps = own_maps[k]
            if node.parent != ROOT:
                maps = [*maps, self._map(node.joint, node.separator)]
                reads = np.hstack([reads, np.full((len(closed), 1), down[k])])
            self._block(
                "close", node.joint, maps, reads, self._map(node.joint, ()), 1, first + closed
            )
        variables = (component.context,) if component.context >= 0 else ()
        straight = self._map(variables, variables)
        maximum = self._block(
            "contexts", variables, [straight], np.array([[first]]), self._map(variables, ()), 1
        )
        self.closing.append((first, first + n_contexts))
        self.maxima.append(int(maximum[0]))

    def _seen(self, f: int, n_contexts: int) -> NDArray[np.int64]:
        """Return the position of the slice of function f that each context sees."""
        function = self.network.functions[f]
        slices = self.network.slices_of(f)
        if slices is None:
            return np.full(n_contexts, function.offset)
        return function.offset + function.rows * slices

    def _down(
        self,
        nodes: Sequence[Node],
        default: Sequence[int],
        own_maps: Sequence[list[int]],
        wanted: Sequence[int],
    ) -> dict[int, int]:
        """Return the positions of D_k for the wanted nodes and those above them. D_k is the maximum
        of everything outside the subtree of k under slices 0."""
        needed: set[int] = set()
        for k in wanted:
            while nodes[k].parent != ROOT and k not in needed:
                needed.add(k)
                k = nodes[k].parent
        down: dict[int, int] = {}
        for k in sorted(needed, reverse=True):
            p = nodes[k].parent
            above = nodes[p]
            reads = [self.network.functions[f].offset for f in above.functions]
            maps = own_maps[p][: len(reads)]
            for position, child in enumerate(above.children):
                if child != k:
                    reads.append(default[child])
                    maps.append(own_maps[p][len(above.functions) + position])
            if above.parent != ROOT:
                reads.append(down[p])
                maps.append(self._map(above.joint, above.separator))
            out_size = _product(self.sizes, nodes[k].separator)
            outs = self._block(
                "down",
                above.joint,
                maps,
                np.array(reads, dtype=np.int64).reshape(1, -1),
                self._map(above.joint, nodes[k].separator),
                out_size,
            )
            down[k] = int(outs[0])
        return down

    def schedule(self) -> Schedule:
        items = np.array([block[0] for block in self._blocks], dtype=np.int64)
        n_inputs = np.array([len(inputs) for inputs in self._inputs], dtype=np.int64)
        item_block = np.repeat(np.arange(len(items), dtype=np.int32), items)
        per_item = n_inputs[item_block]
        outs = np.concatenate(self._outs)
        n_messages = self._position - self.network.n_functions
        owner = np.zeros(n_messages, dtype=np.int32)
        out_sizes = np.array([block[3] for block in self._blocks], dtype=np.int64)[item_block]
        entries = np.repeat(outs, out_sizes) + _ramps(out_sizes)
        owner[entries - self.network.n_functions] = np.repeat(np.arange(len(outs)), out_sizes)
        return Schedule(
            maps=np.concatenate(self._map_arrays).astype(np.int32),
            block_items=starts(items),
            block_joint=np.array([block[1] for block in self._blocks], dtype=np.int64),
            block_inputs=starts(n_inputs),
            block_out_map=np.array([block[2] for block in self._blocks], dtype=np.int64),
            block_out_size=np.array([block[3] for block in self._blocks], dtype=np.int64),
            input_map=np.array([m for maps in self._inputs for m in maps], dtype=np.int64),
            item_block=item_block,
            item_input=starts(per_item)[:-1],
            input_at=np.concatenate([reads.ravel() for reads in self._reads]),
            item_out=outs,
            owner=owner,
            variables=np.array(
                [v for variables in self._block_variables for v in variables], dtype=np.int32
            ),
            first_variable=starts([len(variables) for variables in self._block_variables]),
        )


def _ramps(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ..., counts[0] - 1, 0, 1, ..., counts[1] - 1, ...."""
    starts = np.cumsum(counts) - counts
    ramps: NDArray[np.int64] = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return ramps
