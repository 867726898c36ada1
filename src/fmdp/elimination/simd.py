"""Explicit 4- and 8-wide SIMD intrinsics on doubles: load, store, broadcast, add, multiply, and
blocks of eight rows that are transposed on their way between memory and registers.

The inner loops of an elimination step are short, 8 to 64 numbers. In loops that the compiler
vectorises it checks before each one whether input and output overlap. With these intrinsics there
is no check, and a vector that was loaded stays in its register for all rows. On processors with
narrower vectors the compiler splits one operation into several.

Without them (one thread, AVX-512) a sweep takes 2.0 times as long on directed rings of 10 and 16
machines, 1.4 on a ring of 7, 1.7 on a tree of 14 and a star of 12, 1.5 on a grid and 1.2 on a
two-way ring of 12; it takes as long on RiverSwim and on machines with variables of 3 values.

A product and a sum may be contracted into one instruction, as in all kernels.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

from fmdp._base.compiled import Deferred, deferred

FOUR_LANES, EIGHT_LANES = 4, 8
_CONTRACT = ("contract",)


class Operation(Deferred):
    """A stand-in for an intrinsic (compiled.py); only compiled code can call it."""

    def __init__(self, name: str, width: int) -> None:
        self._name, self._width = name, width

    @property
    def for_numba(self) -> Any:
        return _made(self._width)[self._name]


def operations(width: int) -> tuple[Any, ...]:
    """Return load(array, at), store(array, at, lanes), spread(number), plus(lanes, lanes) and
    times(number, lanes) for vectors of `width` doubles."""
    names = ("load", "store", "spread", "plus", "times")
    return tuple(deferred(Operation(name, width)) for name in names)


def block_operations() -> tuple[Any, ...]:
    """Return operations on several vectors of eight doubles at once, which are tuples here. They
    could be written with `operations`, but Numba would take much longer to compile them.

    load_rows_2, load_rows_3, load_rows_4, load_rows_8(array, at, stride) -> rows
    weights_2, weights_3, weights_4, weights_8(array, at, stride) -> numbers
    add(lanes, weights, rows) -> lanes + sum of weights * rows, in pairs if there are 4 or 8
    load_columns(array, at, stride) -> the columns of eight rows of eight doubles
    products_2, products_4, products_8(array, at, columns) -> the columns times a matrix [8, n]
    plus_each(columns, array, at) -> every column plus its number
    store_columns(array, at, stride, columns), which writes eight rows of 2, 4 or 8 doubles
    """
    names = [f"{name}_{n}" for name in ("load_rows", "weights") for n in (2, 3, 4, 8)]
    names += [f"products_{n}" for n in (2, 4, 8)]
    names += ["add", "load_columns", "plus_each", "store_columns"]
    return tuple(deferred(Operation(name, EIGHT_LANES)) for name in names)


@cache
def _made(width: int) -> dict[str, Any]:
    """Return Numba's intrinsics by name."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic, models, register_model

    class Lanes(types.Type):
        def __init__(self) -> None:
            super().__init__(name=f"fmdp.Lanes({width})")

    vector = ir.VectorType(ir.DoubleType(), width)

    @register_model(Lanes)
    class _Model(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, vector)  # type: ignore[no-untyped-call]

    lanes = Lanes()

    def address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        data = context.make_array(kind)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())

    @intrinsic
    def load(typing: Any, array: Any, at: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            value = builder.load(address(context, builder, signature.args[0], *given))
            value.align = 8  # of a double: a run begins anywhere
            return value

        return lanes(array, types.uint64), code

    @intrinsic
    def store(typing: Any, array: Any, at: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            where = address(context, builder, signature.args[0], *given[:2])
            builder.store(given[2], where).align = 8
            return context.get_dummy_value()

        return types.none(array, types.uint64, lanes), code

    @intrinsic
    def spread(typing: Any, number: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return _spread_out(builder, given[0], width)

        return lanes(types.float64), code

    @intrinsic
    def plus(typing: Any, value: Any, other: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.fadd(*given, flags=_CONTRACT)

        return lanes(lanes, lanes), code

    @intrinsic
    def times(typing: Any, number: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.fmul(_spread_out(builder, given[0], width), given[1], flags=_CONTRACT)

        return lanes(types.float64, lanes), code

    made = {"load": load, "store": store, "spread": spread, "plus": plus, "times": times}
    return made | (_made_for_blocks(lanes) if width == EIGHT_LANES else {})


def _made_for_blocks(lanes: Any) -> dict[str, Any]:
    """Return the intrinsics of `block_operations` by name; `lanes` is the type of eight doubles."""
    made = {f"load_rows_{n}": _loading_rows(lanes, n) for n in (2, 3, 4, 8)}
    made |= {f"weights_{n}": _loading_weights(n) for n in (2, 3, 4, 8)}
    made |= {f"products_{n}": _multiplying(lanes, n) for n in (2, 4, 8)}
    made["add"] = _adding(lanes)
    made["load_columns"] = _loading_rows(lanes, 8, transpose=True)
    made["plus_each"] = _adding_to_each()
    made["store_columns"] = _storing_columns()
    return made


def _loading_rows(lanes: Any, n: int, transpose: bool = False) -> Any:
    from numba import types
    from numba.extending import intrinsic

    rows = types.UniTuple(lanes, n)  # type: ignore[no-untyped-call]

    @intrinsic
    def load_rows(typing: Any, array: Any, at: Any, stride: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            values = []
            for k in range(n):
                where = _pointer(context, builder, array, given, given[2], k)
                values.append(builder.load(_as_vector(builder, where, 8)))
                values[-1].align = 8  # of a double: a run begins anywhere
            values = _transposed(builder, values) if transpose else values
            return context.make_tuple(builder, rows, values)

        return rows(array, types.uint64, types.uint64), code

    return load_rows


def _loading_weights(n: int) -> Any:
    from numba import types
    from numba.extending import intrinsic

    numbers = types.UniTuple(types.float64, n)  # type: ignore[no-untyped-call]

    @intrinsic
    def weights(typing: Any, array: Any, at: Any, stride: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            places = [_pointer(context, builder, array, given, given[2], k) for k in range(n)]
            return context.make_tuple(builder, numbers, [builder.load(where) for where in places])

        return numbers(array, types.uint64, types.uint64), code

    return weights


def _adding(lanes: Any) -> Any:
    from numba.extending import intrinsic

    @intrinsic
    def add(typing: Any, value: Any, weights: Any, rows: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            numbers, vectors = (_unpacked(builder, values, len(rows)) for values in given[1:])
            return _total(builder, given[0], numbers, vectors)

        return lanes(lanes, weights, rows), code

    return add


def _multiplying(lanes: Any, n: int) -> Any:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    totals = types.UniTuple(lanes, n)  # type: ignore[no-untyped-call]
    one = ir.Constant(ir.IntType(64), 1)

    @intrinsic
    def products(typing: Any, array: Any, at: Any, columns: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            values, vectors = [], _unpacked(builder, given[2], 8)
            for u in range(n):
                places = [
                    _pointer(context, builder, array, given, one, v * n + u) for v in range(8)
                ]
                weights = [builder.load(where) for where in places]
                values.append(_total(builder, None, weights, vectors))
            return context.make_tuple(builder, totals, values)

        return totals(array, types.uint64, columns), code

    return products


def _adding_to_each() -> Any:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    one = ir.Constant(ir.IntType(64), 1)

    @intrinsic
    def plus_each(typing: Any, columns: Any, array: Any, at: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            values = []
            for k, value in enumerate(_unpacked(builder, given[0], len(columns))):
                number = builder.load(_pointer(context, builder, array, given[1:], one, k))
                values.append(builder.fadd(value, _spread_out(builder, number), flags=_CONTRACT))
            return context.make_tuple(builder, columns, values)

        return columns(columns, array, types.uint64), code

    return plus_each


def _storing_columns() -> Any:
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def store_columns(typing: Any, array: Any, at: Any, stride: Any, columns: Any) -> Any:
        n = len(columns)

        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            for k, value in enumerate(_transposed(builder, _unpacked(builder, given[3], n))):
                for row in range(k, 8, n):
                    part = _shuffle(builder, value, value, list(range(row - k, row - k + n)))
                    where = _pointer(context, builder, array, given, given[2], row)
                    builder.store(part, _as_vector(builder, where, n)).align = 8
            return context.get_dummy_value()

        return types.none(array, types.uint64, types.uint64, columns), code

    return store_columns


def _pointer(context: Any, builder: Any, kind: Any, given: Any, stride: Any, k: int) -> Any:
    """Return the address of array[at + k * stride]; `given` begins with the array and `at`."""
    from llvmlite import ir

    data = context.make_array(kind)(context, builder, given[0]).data
    offset = builder.mul(stride, ir.Constant(ir.IntType(64), k))
    return builder.gep(data, [builder.add(given[1], offset)])


def _as_vector(builder: Any, where: Any, width: int) -> Any:
    from llvmlite import ir

    return builder.bitcast(where, ir.VectorType(ir.DoubleType(), width).as_pointer())


def _shuffle(builder: Any, first: Any, second: Any, wanted: list[int]) -> Any:
    from llvmlite import ir

    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(wanted)), wanted)
    return builder.shuffle_vector(first, second, mask)


def _spread_out(builder: Any, number: Any, width: int = EIGHT_LANES) -> Any:
    from llvmlite import ir

    nothing = ir.Constant(ir.VectorType(ir.DoubleType(), width), ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return _shuffle(builder, first, nothing, [0] * width)


def _total(builder: Any, start: Any, weights: list[Any], rows: list[Any]) -> Any:
    """Return start (or nothing) + w0 y0 + w1 y1 + ..., in pairs if there are 4 or 8."""
    terms = [
        builder.fmul(_spread_out(builder, weight), row, flags=_CONTRACT)
        for weight, row in zip(weights, rows, strict=True)
    ]
    if len(terms) > 3:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [builder.fadd(*pair, flags=_CONTRACT) for pair in pairs]
    if start is not None:
        terms.insert(0, start)
    return reduce(lambda x, y: builder.fadd(x, y, flags=_CONTRACT), terms)


def _unpacked(builder: Any, values: Any, n: int) -> list[Any]:
    return [builder.extract_value(values, k) for k in range(n)]


def _transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """Transpose every n x n block of n vectors: swap the bits of the numbers of vector and lane."""
    bit = 1
    while bit < len(vectors):
        low = [lane ^ bit | 8 if lane & bit else lane for lane in range(8)]
        high = [lane | 8 if lane & bit else lane | bit for lane in range(8)]
        pairs = [(vectors[k & ~bit], vectors[k | bit]) for k in range(len(vectors))]
        vectors = [
            _shuffle(builder, *pair, high if k & bit else low) for k, pair in enumerate(pairs)
        ]
        bit *= 2
    return vectors
