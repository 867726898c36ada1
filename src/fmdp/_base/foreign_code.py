"""Digests of third-party code: learners, planners and rules that users write.

A stored run must identify the code that made it, and must be repeated when that code changes, but
not when only comments or layout change. `code_digest` therefore hashes the syntax tree of the code,
not its text:

    digest = SHA-256 of the syntax trees of the class or function and of what it uses in its module

Positions, comments, quotes, redundant parentheses, docstrings and other statements without effect
are not part of the hashed tree. Empty fields are left out, so that fields which newer versions of
Python add to a node do not change the digest. Code without source (typed into a prompt) is hashed
in compiled form; that digest is valid for one version of Python only.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter

_NOT_WRITTEN = ("ctx", "kind", "type_comment")
"""Fields of syntax nodes that do not change what the code does."""


@dataclass
class _Visit:
    """State of the traversal while one piece of code is identified."""

    ids: set[int] = field(default_factory=set)
    """Identities of the classes and functions already written out."""
    modules: set[str] = field(default_factory=set)
    """Modules whose classes and functions are written out wherever they are referred to."""
    texts: dict[str, str] = field(default_factory=dict)
    """Source texts by module name, or by file name for `__main__`."""


def place_of(thing: Any) -> str:
    """Return "module:Class" of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def is_own(thing: Any) -> bool:
    """Return True for code of fmdp itself, whose results RESULTS_VERSION identifies."""
    return str(thing.__module__).partition(".")[0] == "fmdp"


def code_digest(thing: Any) -> str:
    """Return a digest of a third-party class or function.

    It covers the class and its base classes, or the function; for a bound method the object too. It
    follows default arguments, closures, and the variables, functions and classes of the same module
    that the code names. It does not see functions and variables of other modules, nor files that
    are read.
    """
    return _identified(thing)[0]


def source_texts(thing: Any) -> dict[str, str]:
    """Return the source texts of the files that `code_digest` covers, by module name. Code of a
    script or a notebook is named after its file. Code without source has no text."""
    return _identified(thing)[1]


def content_digest(value: Any) -> str:
    """Return a digest of a value: equal for equal values, as far as their content is visible."""
    return f"sha256:{hashlib.sha256(_content(value, _Visit())).hexdigest()}"


def _identified(thing: Any) -> tuple[str, dict[str, str]]:
    visit = _Visit()
    digest = hashlib.sha256()
    for part in _code_of(thing, visit):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest(), visit.texts


def _is_code(value: Any) -> bool:
    return isinstance(value, type) or hasattr(value, "__code__")


def _is_followed(value: Any, modules: set[str]) -> bool:
    """Return True if the code of a class or function that is referred to belongs to the digest."""
    return _is_code(value) and value.__module__ in modules and not is_own(value)


def _code_of(thing: Any, visit: _Visit) -> Iterator[bytes]:
    """Write out a class, a function or a bound method with everything it uses, each once."""
    thing = getattr(thing, "py_func", thing)  # the function that Numba compiled
    if id(thing) in visit.ids:
        return
    visit.ids.add(id(thing))
    if isinstance(thing, type):
        for kind in thing.__mro__[:-1]:
            if not is_own(kind) and kind.__module__ not in sys.stdlib_module_names:
                visit.ids.add(id(kind))
                visit.modules.add(kind.__module__)
                yield _source(kind, visit)
                for name, value in sorted(vars(kind).items()):
                    yield from _member(kind, name, value, visit)
    elif hasattr(thing, "__func__"):
        visit.modules.add(type(thing.__self__).__module__)
        yield _content(thing.__self__, visit)
        yield from _code_of(thing.__func__, visit)
    elif hasattr(thing, "__code__"):
        visit.modules.add(thing.__module__)
        yield _source(thing, visit)
        yield from _used(thing, visit)
    else:
        yield _content(thing, visit)


def _function_in(value: Any) -> Any:
    """Return the function inside a static method, class method or property, or the value itself."""
    for name in ("__func__", "fget", "func"):
        inner = getattr(value, name, None)
        if inner is not None:
            return inner
    return value


def _member(kind: type, name: str, value: Any, visit: _Visit) -> Iterator[bytes]:
    """Write out what an attribute of a class adds to the source of the class. That is what its
    methods use, the code of methods written elsewhere (by a decorator, or assigned later), and
    plain values, which may have been assigned later."""
    inner = _function_in(value)
    code = getattr(inner, "__code__", None)
    if isinstance(code, CodeType):
        # Code generated by dataclasses and annotations follows from the source of the class, and
        # differs between versions of Python.
        if code.co_filename == "<string>" or name.startswith("__annotate"):
            return
        inside = code.co_qualname.startswith(f"{kind.__qualname__}.")
        written_here = inside and inner.__module__ == kind.__module__
        for part in _used(inner, visit) if written_here else _code_of(inner, visit):
            yield name.encode() + part
    elif _is_value(name, value):
        yield name.encode() + _content(value, visit)


_MADE_OF_SOURCE = ("parameters", "summary")
"""Attributes that fmdp.Settings derives from the declarations and the docstring of a class."""


def _is_value(name: str, value: Any) -> bool:
    plain = isinstance(value, bool | int | float | str | bytes | tuple)
    return plain and not name.startswith("__") and name not in _MADE_OF_SOURCE


def _used(function: Any, visit: _Visit) -> Iterator[bytes]:
    """Write out what a function uses: defaults, closed-over values, and names of its module."""
    if is_own(function):
        return
    if function.__defaults__ or function.__kwdefaults__:
        yield _content((function.__defaults__, function.__kwdefaults__), visit)
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not set yet, as `__class__` while a class is being made
            continue
        if _is_code(content) and not is_own(content):
            yield from _code_of(content, visit)
        else:
            yield _content(content, visit)
    module = function.__globals__
    for name in sorted(_names_in(function.__code__) & module.keys()):
        value = module[name]
        if isinstance(value, ModuleType):
            continue
        if _is_code(value):
            if _is_followed(value, {function.__module__}):
                yield name.encode()
                yield from _code_of(value, visit)
        else:
            # Values without visible content are not part of the digest.
            with contextlib.suppress(InvalidParameter):
                yield name.encode() + _content(value, visit)


def _names_in(code: CodeType) -> set[str]:
    """Return the names that a function and the functions inside it use."""
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*(_names_in(inner) for inner in inside))


# ---- values ----------------------------------------------------------------------------------


def _content(value: Any, visit: _Visit) -> bytes:
    """Write out a value. Its repr would not do: it may abbreviate an array, and be the same for two
    objects."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value).encode()
    if isinstance(value, tuple | list):
        inside = b",".join(_content(item, visit) for item in value)
        return type(value).__name__.encode() + b"(" + inside + b")"
    if isinstance(value, set | frozenset):
        # The order of a set depends on the hash seed of the process.
        inside = b",".join(sorted(_content(item, visit) for item in value))
        return type(value).__name__.encode() + b"{" + inside + b"}"
    if isinstance(value, dict):
        return b"dict" + _content([part for pair in value.items() for part in pair], visit)
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        head = repr((str(value.dtype), getattr(value, "shape", ()))).encode()
        return head + bytes(value.tobytes())
    if _is_code(value):
        name = place_of(value).encode()
        return name if is_own(value) else name + b"".join(_code_of(value, visit))
    return place_of(type(value)).encode() + _pickled(value, visit)


def _pickled(value: Any, visit: _Visit) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, visit).dump(value)
    except Exception:
        raise InvalidParameter(
            f"{quoted(value)} cannot be told from others by its content, so that a learner or rule "
            f"which holds it cannot be compared; hand over what is inside it"
        ) from None
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Pickle an object with sets in a fixed order, and with the code of classes of its module."""

    def __init__(self, file: io.BytesIO, visit: _Visit) -> None:
        super().__init__(file, protocol=5)
        self._visit = visit

    def persistent_id(self, value: Any) -> bytes | None:
        if isinstance(value, set | frozenset) or _is_followed(value, self._visit.modules):
            return _content(value, self._visit)
        return None


# ---- source ----------------------------------------------------------------------------------


def _source(thing: Any, visit: _Visit) -> bytes:
    """Write out the syntax tree of a class or function, or its compiled code if it has no source.
    If the file has changed since it was imported, the tree has another name or line and is not
    used."""
    try:
        lines, line = inspect.findsource(thing)
        tree = _tree("".join(lines))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return _compiled(thing, visit)
    code = getattr(thing, "__code__", None)
    first = line + 1 if code is None else code.co_firstlineno
    name = thing.__name__ if code is None else code.co_name
    nodes = [
        node for node in ast.walk(tree) if _name_of(node) == name and _first_line(node) == first
    ]
    if len(nodes) != 1:  # such as two lambdas on one line
        return _compiled(thing, visit)
    file = inspect.getsourcefile(thing) or inspect.getfile(thing)
    module = thing.__module__
    visit.texts[Path(file).name if module == "__main__" else module] = "".join(lines)
    return _written(nodes[0]).encode()


@lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Lambda):
        return "<lambda>"
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    return None


def _first_line(node: Any) -> int:
    """Return the line of a definition, or of its first decorator."""
    decorators = getattr(node, "decorator_list", [])
    return min(part.lineno for part in [node, *decorators])  # type: ignore[no-any-return]


def _written(value: Any) -> str:
    """Write out a syntax node, a list of nodes, or a constant.

    >>> _written(ast.parse("def f(a):  # comment\\n    'docstring'\\n    return (a)").body[0])
    "FunctionDef(name='f',args=arguments(args=[arg(arg='a')]),body=[Return(value=Name(id='a'))])"
    """
    if isinstance(value, ast.AST):
        fields = ",".join(
            f"{name}={_written(inner)}"
            for name, inner in ast.iter_fields(value)
            if name not in _NOT_WRITTEN and inner is not None and inner != []
        )
        return f"{type(value).__name__}({fields})"
    if isinstance(value, list):
        return f"[{','.join(_written(item) for item in value if not _has_no_effect(item))}]"
    # hex, because Python refuses to write decimal numbers of thousands of digits.
    return hex(value) if type(value) is int else ascii(value)


def _has_no_effect(node: Any) -> bool:
    """Return True for a statement that does nothing: a docstring, `...` or `pass`."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass)


def _compiled(thing: Any, visit: _Visit) -> bytes:
    """Write out code without source: compiled functions; for a class its methods."""
    if not isinstance(thing, type):
        code = getattr(thing, "__code__", None)
        if isinstance(code, CodeType):
            return _bytecode(code, visit)
        return place_of(type(thing)).encode()
    parts = [_content(vars(thing).get("__annotations__"), visit)]
    for name, value in vars(thing).items():
        inner = _function_in(value)
        if isinstance(getattr(inner, "__code__", None), CodeType):
            # In a notebook cell a method can have source although its class has none.
            parts.append(name.encode() + _source(inner, visit))
    return b"\n".join(parts)


def _bytecode(code: CodeType, visit: _Visit) -> bytes:
    """Write out a compiled function with the functions inside it."""
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    others = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    head = bytes(code.co_code) + _content([others, code.co_names], visit)
    return head + b"".join(_bytecode(inner, visit) for inner in inside)
