"""Machine code of compiled functions, kept beside Numba's cache and called without Numba.

To read one function from its own cache Numba imports its whole front end, which takes longer than
to plan for a small problem. The object code that it made is therefore kept a second time, with the
little that is needed to call it, and LLVM (llvmlite, a part of Numba) loads it in milliseconds. It
is the same machine code, so every result has the same bits.

Arguments are handed over as Numba's calling convention has it: an array as (0, 0, items, bytes an
item, data, *shape, *strides), a tuple as its members one after the other, behind the places for the
result and for an exception. That makes two hundred numbers for a sweep, and ctypes takes a tenth of
a microsecond for each; so they are put into one string of bytes, and a few instructions that are
kept with the function take them out of it. A function is kept only where Numba says the same of its
own code, for this very signature, and where that code needs nothing of Numba's runtime: no
allocation, nothing that calls into Python. What was kept is used only by the same versions of Numba
and LLVM on the same processor, for unchanged source files: its own, and those of the modules whose
compiled functions its module has, since they may be a part of it. Everywhere else, None: Numba does
it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

_FORMAT = 2
_SUFFIX = ".nbo"
_NOT_ABOUT_CODE = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER"}
"""Settings of Numba that machine code does not depend on; with any other it is not used."""
_DONE = (0, -2)
"""What a function of Numba's returns when it has ended: with a value, with None."""
_WHOLE = range(-(1 << 63), 1 << 63)
_UNREACHED = "NRT_MemInfo_call_dtor"
"""Called when the last reference to an array is dropped; arrays that are lent have none."""
_INLINE = re.compile(
    r"llvm\.(mem(set|cpy|move)|[su](max|min)|abs|fabs|fmuladd|assume|lifetime\.\w+|ct[lt]z|ctpop"
    r"|vector\.reduce\.\w+|masked\.\w+|x86\.[\w.]+|[su](add|sub|mul)\.with\.overflow)\b"
)
"""Operations of LLVM that are instructions, or calls of `_LIBRARY`."""
_LIBRARY = ["memcpy", "memmove", "memset"]

_lock = threading.RLock()


class Source(NamedTuple):
    """Of a compiled function: what its machine code is kept under."""

    name: str
    """With its module."""
    stamp: str
    """Of the files: it changes when one of them does."""


class Loaded(NamedTuple):
    """Machine code that can be called with the arguments as bytes."""

    call: Callable[[bytes], Any]


def source_of(function: Callable[..., Any]) -> Source:
    """Read when the function is defined: the files may be others later."""
    code = function.__code__
    name = f"{function.__module__}.{function.__qualname__}-{code.co_firstlineno}"
    own = _stamp(code.co_filename)
    files = _files(function.__module__) - {code.co_filename}
    return Source(name, own and "; ".join([own, *map(_stamp, sorted(files))]))


@cache
def _files(module: str) -> frozenset[str]:
    """Those that the machine code of a module's functions is made of.

    When it is first asked for, which is where its first function is compiled, what a module imports
    is there.
    """
    here = sys.modules.get(module)
    if here is None:
        return frozenset()
    named = (getattr(own, "__module__", None) for own in list(vars(here).values()))
    others = {own for own in named if isinstance(own, str) and own in _compiling} - {module}
    found = [_files(own) for own in others]
    _compiling.add(module)
    return frozenset({getattr(here, "__file__", None) or ""}.union(*found))


_compiling: set[str] = set()
"""Modules with compiled functions, or with what they are made of."""


def note_compiling(module: str) -> None:
    """Machine code is made of what is in this module."""
    _files(module)


def stamp_cache(source: Source, dispatcher: Any) -> None:
    """Numba's own cache looks at one file alone: let it look at all of them."""
    with suppress(AttributeError):  # no cache, or another one than expected: then it is as it was
        dispatcher._cache._cache_file._source_stamp = source.stamp


@cache
def _stamp(path: str) -> str:
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns} {found.st_size}"


# ---- arguments ----------------------------------------------------------------------------------


def flattened(arguments: Sequence[Any]) -> tuple[str, bytes] | None:
    """The types of some arguments as a text, and the numbers that are handed over, eight bytes
    each; None where one is neither an array nor a number nor a tuple of these."""
    import numpy as np

    key: list[str] = []
    numbers: list[bytes] = []
    array, whole, real, truth = np.ndarray, np.int64, np.float64, np.bool_

    def flatten(value: Any) -> bool:
        kind = type(value)
        if kind is array:
            lent = _lent(value)
            key.append(lent.text)
            numbers.append(lent.numbers)
            return lent.known
        if kind is int or kind is whole:
            number = int(value)  # a range looks for anything else one by one
            if number not in _WHOLE:
                return False
            key.append("<i8 ")
            numbers.append(_INTEGER.pack(number))
            return True
        if kind is float or kind is real:
            key.append("<f8 ")
            numbers.append(_FLOAT.pack(value))
            return True
        if kind is bool or kind is truth:
            key.append("|b1 ")
            numbers.append(_INTEGER.pack(bool(value)))
            return True
        if isinstance(value, tuple):
            key.append("(")
            done = all(map(flatten, value))
            key.append(")")
            return done
        return False

    return ("".join(key), b"".join(numbers)) if all(map(flatten, arguments)) else None


class _Lent(NamedTuple):
    """The descriptor of an array as it is passed to a compiled function."""

    array: weakref.ref[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    writeable: bool
    text: str
    """Of its type."""
    numbers: bytes
    known: bool
    """Whether there are functions for its type."""


_arrays: dict[int, _Lent] = {}
"""Descriptors by id, as long as the arrays live. A sweep is given the same thirty arrays, and
asking NumPy for the address of an array takes longer than sweeping a small model."""


def _lent(value: Any) -> _Lent:
    """Return the descriptor of an array, made anew where the array has changed in place.

    An array can be given another shape, other strides, another dtype and another flag. It cannot be
    given other memory: NumPy refuses to resize an array that has a weak reference, as these have.
    """
    own, known = id(value), _arrays  # the names of a module may be gone when the last array goes
    lent = known.get(own)
    flags = value.flags
    if (
        lent is not None
        and value.shape == lent.shape
        and value.strides == lent.strides
        and value.dtype is lent.dtype
        and flags.writeable is lent.writeable
        and lent.array() is value
    ):
        return lent
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    text = value.dtype.str
    numbers = (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
    lent = known[own] = _Lent(
        weakref.ref(value, lambda _: known.pop(own, None)),
        value.shape,
        value.strides,
        value.dtype,
        flags.writeable,
        f"{text}{value.ndim}{layout}{'' if flags.writeable else 'r'} ",
        b"".join(map(_INTEGER.pack, numbers)),
        text in _DTYPES and bool(flags.aligned),
    )
    return lent


_DTYPES = {"<i8", "<u8", "<i4", "<u4", "<i2", "<u2", "|i1", "|u1", "<f8", "<f4", "|b1"}
_INTEGER, _FLOAT = Struct("<q"), Struct("<d")
_SCALARS = {"<i8": "i64", "<f8": "double", "|b1": "i8"}
_RESULTS: dict[str, Any] = {
    "<i8": ctypes.c_int64,
    "<u8": ctypes.c_uint64,
    "<f8": ctypes.c_double,
    "|b1": ctypes.c_bool,
    "": ctypes.c_void_p,
}
"""By the type of the result; "" for none."""


def _llvm_types(key: str) -> list[str]:
    """Of the numbers that are handed over for arguments of these types."""
    types: list[str] = []
    for text in key.replace("(", "").replace(")", "").split():
        if len(text) == 3:
            types.append(_SCALARS[text])
        else:
            types += ["ptr", "ptr", "i64", "i64", "ptr"] + ["i64"] * (2 * int(text[3]))
    return types


# ---- places -------------------------------------------------------------------------------------


@cache
def usable() -> bool:
    """Whether the code of this process is what Numba makes where nothing is set."""
    own = {name for name in os.environ if name.startswith("NUMBA_")} - _NOT_ABOUT_CODE
    return not own and not Path(".numba_config.yaml").exists()


def _places() -> Iterator[Path]:
    """Where machine code may be, the best place first."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / "fmdp"
        return
    yield Path(__file__).parent / "__pycache__"
    try:
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fmdp"
    except RuntimeError:  # no home
        return


@cache
def _toolchain() -> str:
    """What the machine code depends on beside the source."""
    import llvmlite
    import llvmlite.binding as llvm

    spec = importlib.util.find_spec("numba")
    assert spec is not None
    assert spec.origin is not None
    version = (Path(spec.origin).parent / "_version.py").read_text()
    features = llvm.get_host_cpu_features().flatten()
    host = (llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
    return "\n".join([str(_FORMAT), version, llvmlite.__version__, *host])


def _file_name(source: Source, key: str) -> str:
    digest = blake2b(f"{_toolchain()}\n{key}".encode(), digest_size=12).hexdigest()
    return f"{source.name}-{digest}{_SUFFIX}"


def _read(source: Source, key: str) -> tuple[dict[str, Any], bytes] | None:
    """The head and the object code of a kept function."""
    name = _file_name(source, key)
    for place in _places():
        try:
            head, _, code = (place / name).read_bytes().partition(b"\n")
            found = json.loads(head)
        except (OSError, ValueError):
            continue
        made_for = (source.stamp, _digest(code))
        if isinstance(found, dict) and (found.get("stamp"), found.get("digest")) == made_for:
            return found, code
    return None


def _write(source: Source, key: str, head: dict[str, Any], code: bytes) -> None:
    head |= {"stamp": source.stamp, "digest": _digest(code)}
    for place in _places():
        try:
            place.mkdir(parents=True, exist_ok=True)
            beside = place / f"{_file_name(source, key)}.{os.getpid()}"
            beside.write_bytes(json.dumps(head).encode() + b"\n" + code)
            beside.replace(place / _file_name(source, key))
        except OSError:
            continue
        return


def _digest(code: bytes) -> str:
    return blake2b(code, digest_size=16).hexdigest()


# ---- loading ------------------------------------------------------------------------------------


def load(source: Source, key: str) -> Loaded | None:
    """The kept machine code for arguments of these types; None if there is none to be used."""
    if not usable() or not source.stamp:
        return None
    with _lock:
        try:
            found = _read(source, key)
            if found is None or not found[0]["callable"]:
                return None
            head, code = found
            result = _RESULTS[head["result"]]
            addresses = _linked(head, code)
        except (ImportError, OSError, KeyError, ValueError, RuntimeError, AttributeError):
            return None  # another LLVM than expected, or a file that says something else
        if addresses is None:
            return None
    return Loaded(_caller(source.name, *addresses, result, head["result"]))


def _linked(head: dict[str, Any], code: bytes) -> tuple[int, int] | None:
    """The addresses of the function and of what calls it. LLVM ends the process where a name has no
    meaning, so all of them are given one: what the code never comes to is `abort`."""
    import llvmlite.binding as llvm

    engine = _engine()  # from here on the names of the process are known
    nowhere = llvm.address_of_symbol("abort")
    if nowhere is None or any(llvm.address_of_symbol(name) is None for name in head["needs"]):
        return None
    for name in head["unreached"]:
        if llvm.address_of_symbol(name) is None:
            llvm.add_symbol(name, nowhere)
    symbol, border = head["symbol"], head["border"]
    for part in (code[:border], code[border:]):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    names = (symbol, _name_of_call(symbol))
    function, call = (int(engine.get_function_address(name)) for name in names)
    return (function, call) if function and call else None


@cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _caller(
    name: str, function: int, call: int, result: Any, result_type: str
) -> Callable[[bytes], Any]:
    pointer, pointer_to = ctypes.c_void_p, ctypes.byref
    handed_over = (pointer, pointer, pointer, ctypes.c_char_p)
    calling = ctypes.CFUNCTYPE(ctypes.c_int32, *handed_over)(call)

    def called(numbers: bytes) -> Any:
        value, exception = result(), pointer()
        status = calling(function, pointer_to(value), pointer_to(exception), numbers)
        if status not in _DONE:
            raise RuntimeError(f"the machine code of {name} ended with status {status}")
        return value.value if result_type else None

    return called


# ---- keeping ------------------------------------------------------------------------------------


def keep(source: Source, dispatcher: Any) -> None:
    """Keep what Numba's dispatcher has compiled, where that can be called without Numba."""
    if not usable() or not source.stamp:
        return
    for signature, compiled in dispatcher.overloads.items():
        texts = [_text_of(own) for own in signature]
        if any(text is None for text in texts):
            continue
        key = "".join(text or "" for text in texts)
        if _read(source, key) is None:
            head, code = _kept(dispatcher, compiled, signature, key)
            _write(source, key, head, code)


def _text_of(kind: Any) -> str | None:
    """As `flattened` writes a value of this type of Numba's; None for what it does not take."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.Array):
        text = as_dtype(kind.dtype).str
        known = text in _DTYPES and kind.aligned
        return f"{text}{kind.ndim}{kind.layout}{'' if kind.mutable else 'r'} " if known else None
    if isinstance(kind, types.BaseTuple):
        members = [_text_of(own) for own in getattr(kind, "types", [None])]
        return None if None in members else f"({''.join(own or '' for own in members)})"
    scalars = {types.int64: "<i8 ", types.float64: "<f8 ", types.boolean: "|b1 "}
    return scalars.get(kind)


def _kept(dispatcher: Any, compiled: Any, signature: Any, key: str) -> tuple[dict[str, Any], bytes]:
    """What is written for one signature; "callable" is False where the code needs Numba."""
    import llvmlite.binding as llvm
    from numba import types

    results = {types.int64: "<i8", types.uint64: "<u8", types.float64: "<f8", types.boolean: "|b1"}
    result = "" if compiled.signature.return_type == types.none else None
    result = results.get(compiled.signature.return_type, result)
    symbol = compiled.fndesc.llvm_func_name
    # As Numba has put it into its own cache: the object code, and what that was made of.
    cached = dispatcher._cache
    index = cached._index_key(signature, compiled.library.codegen)
    _, form, (code, bitcode) = cached._cache_file.load(index)[0]
    if form != "object":
        raise ValueError(f"Numba keeps {form}")
    module = llvm.parse_bitcode(bitcode)
    everything = {own.name for own in module.functions if own.is_declaration}
    for own in module.functions:
        if not own.is_declaration:
            own.linkage = "external" if own.name == symbol else "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    machine = llvm.Target.from_default_triple().create_target_machine()
    options = llvm.create_pipeline_tuning_options()
    passes.run(module, llvm.create_pass_builder(machine, options))
    reached = {own.name for own in module.functions if own.is_declaration}
    outside = {name for name in reached - {_UNREACHED} if not _INLINE.match(name)}
    unreached = sorted(
        name for name in (everything - reached) | {_UNREACHED} if not name.startswith("llvm.")
    )
    kind = str(module.get_function(symbol).global_value_type)
    if result is None or outside or kind != _llvm_type(key):
        return {"callable": False}, b""
    head = {
        "callable": True,
        "symbol": symbol,
        "result": result,
        "needs": _LIBRARY,
        "unreached": unreached,
        "border": len(code),
    }
    return head, code + _code_of_call(symbol, key)


def _llvm_type(key: str) -> str:
    """How LLVM writes the type of a function that `_code_of_call` can call."""
    return f"i32 ({', '.join(['ptr', 'ptr', *_llvm_types(key)])})"


def _name_of_call(symbol: str) -> str:
    return f"fmdp.call.{symbol}"


def _code_of_call(symbol: str, key: str) -> bytes:
    """Object code of a function that calls another one with the numbers that it is handed."""
    import llvmlite.binding as llvm

    lines, arguments = [], ["ptr %result", "ptr %exception"]
    for number, kind in enumerate(_llvm_types(key)):
        lines.append(f"%place{number} = getelementptr i64, ptr %numbers, i64 {number}")
        lines.append(f"%number{number} = load {kind}, ptr %place{number}")
        arguments.append(f"{kind} %number{number}")
    given = "ptr %function, ptr %result, ptr %exception, ptr %numbers"
    text = [
        f'define i32 @"{_name_of_call(symbol)}"({given}) nounwind {{',
        *lines,
        f"%status = call i32 %function({', '.join(arguments)})",
        "ret i32 %status",
        "}",
    ]
    module = llvm.parse_assembly("\n".join(text))
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    code: bytes = machine.emit_object(module)
    return code
