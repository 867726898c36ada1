"""PCG64 in compiled code (O'Neill 2014), with the same doubles as NumPy's generator.

A linear congruence of 128 bits, with a double of each state (XSL-RR 128/64),

    state <- a state + c  (mod 2^128),    u = (rotate(high ^ low, high >> 58) >> 11) 2^-53.

A state, and so a and c, is two words of 64 bits, high and low. Several steps of the congruence are
one of the same form: k of them are state <- a^k state + c (a^(k-1) + ... + 1). A step takes three
multiplications.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fmdp._base.compiled import Deferred, deferred, njit

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
ALL_BITS = (1 << 128) - 1
_WORD = (1 << 64) - 1
_0, _1, _11, _58, _63, _64 = (np.uint64(n) for n in (0, 1, 11, 58, 63, 64))
_UNIT = 1.0 / (1 << 53)


def halves(number: int) -> tuple[int, int]:
    """Return the high and the low word of a 128-bit number."""
    return number >> 64, number & _WORD


class _HighHalf(Deferred):
    """The high word of the product of two words, in one instruction; Numba has no 128-bit integers
    and would need four products."""

    @cached_property
    def for_numba(self) -> Any:
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        @intrinsic
        def high_half(typing: Any, a: Any, b: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                wide = ir.IntType(128)
                product = builder.mul(*(builder.zext(word, wide) for word in given))
                return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

            return types.uint64(types.uint64, types.uint64), code

        return high_half


_high_half = deferred(_HighHalf())


@njit(nogil=True)
def times_plus(high, low, a_high, a_low, c_high, c_low):  # type: ignore[no-untyped-def]
    """Return (high, low) * a + c modulo 2^128, as words."""
    product_low = low * a_low
    product_high = _high_half(low, a_low) + high * a_low + low * a_high
    sum_low = product_low + c_low
    carry = _1 if sum_low < product_low else _0
    return product_high + c_high + carry, sum_low


@njit(nogil=True)
def double(high, low):  # type: ignore[no-untyped-def]
    """Return the double of a state."""
    word, turn = high ^ low, high >> _58
    word = (word >> turn) | (word << ((_64 - turn) & _63))
    return np.float64(word >> _11) * _UNIT
