"""Explicit 4- and 8-wide SIMD intrinsics on doubles: load, store, broadcast, add, multiply.

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

from functools import cache
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
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)

    def address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        data = context.make_array(kind)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())

    def spread_out(builder: Any, number: Any) -> Any:
        nothing = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, nothing, everywhere)

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
            return spread_out(builder, given[0])

        return lanes(types.float64), code

    @intrinsic
    def plus(typing: Any, value: Any, other: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.fadd(*given, flags=_CONTRACT)

        return lanes(lanes, lanes), code

    @intrinsic
    def times(typing: Any, number: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.fmul(spread_out(builder, given[0]), given[1], flags=_CONTRACT)

        return lanes(types.float64, lanes), code

    return {"load": load, "store": store, "spread": spread, "plus": plus, "times": times}
