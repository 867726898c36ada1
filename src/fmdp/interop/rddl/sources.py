"""Where the text of a problem is, and its syntax tree: files, or the instances of rddlrepository.

In `rddl:NAME:INSTANCE` the name is looked for without regard to case, "_" and "-". The end that
tells the competition may be left out where one problem alone is meant, and so may MDP where the
repository has the problem with observations too: `rddl:sysadmin:1` is SysAdmin_MDP_ippc2011.
Of several competitions the first is taken. The archive is read as files: nothing is imported from
it or written into it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from fmdp._base.archives import read_file
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, UnknownName, did_you_mean

PREFIX = "rddl:"


class MissingRDDL(FmdpError, ImportError):
    """pyRDDLGym or rddlrepository is not installed; the message names the extra that brings it."""


def _needed(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whatever is deprecated in what it imports
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingRDDL(
            f"RDDL is read with pyRDDLGym and rddlrepository: pip install 'fmdp[rddl]' ({error})"
        ) from None


@cache
def archive() -> dict[str, Path]:
    """The problems of rddlrepository by name, each with its folder; those of competitions first,
    in the order of their years."""
    root = Path(_needed("rddlrepository").__file__).parent / "archive"
    found = {}
    for domain in sorted(root.rglob("domain.rddl")):
        about = domain.with_name("__init__.py")
        if not about.is_file():
            continue
        for node in ast.parse(about.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                info = ast.literal_eval(node.value)
                found["_".join(filter(None, (info["name"], info["context"])))] = domain.parent
    return dict(sorted(found.items(), key=lambda one: ("ippc" not in one[0], one[0][-4:], one[0])))


def instances(folder: Path) -> list[str]:
    """The instances of a problem of the archive, in order."""
    names = [one.stem.removeprefix("instance") for one in folder.glob("instance*.rddl")]
    return sorted(names, key=lambda one: (len(one), one))


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).casefold()


def _named(name: str) -> str:
    """The name in the archive that a user means."""
    known = archive()
    wanted = _folded(name)
    without_end = {_folded(one.rpartition("_")[0]): one for one in reversed(known)}
    bare = {
        _folded(re.sub(r"_MDP(_|$)", "_", one).rpartition("_")[0]): one
        for one in reversed(known)
        if "_POMDP" not in one
    }
    competition = {_folded(re.sub(r"_MDP(_|$)", r"\1", one)): one for one in reversed(known)}
    exact = {_folded(one): one for one in known}
    for names in (exact, competition, bare, without_end):
        if wanted in names:
            return names[wanted]
    near = did_you_mean(name, [*known, *(one.partition("_")[0] for one in known)])
    raise UnknownName(
        f"rddlrepository has no problem {quoted(name)}; it has {len(known)}, such as "
        f"SysAdmin_MDP_ippc2011{near}"
    )


def files_of(text: str, folder: Path | None = None) -> tuple[Path, Path, str]:
    """The domain, the instance, and the name of a problem: its canonical id, or the text."""
    if text.startswith(PREFIX):
        name, colon, number = text.removeprefix(PREFIX).partition(":")
        if not name or not colon or not number:
            raise InvalidParameter(
                f"{quoted(text)} must be like rddl:SysAdmin_MDP_ippc2011:1, NAME:INSTANCE"
            )
        name = _named(name)
        where = archive()[name]
        known = instances(where)
        if number not in known:
            shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise UnknownName(
                f"{name} has no instance {quoted(number)}; it has {shown}"
                f"{did_you_mean(number, known)}"
            )
        return where / "domain.rddl", where / f"instance{number}.rddl", f"{PREFIX}{name}:{number}"
    paths = re.split(r"(?<=\.rddl)\+", text)
    if len(paths) != 2:
        raise InvalidParameter(
            f"{quoted(text)}: RDDL is read from two files, must be like DOMAIN.rddl+INSTANCE.rddl"
        )
    domain, instance = (_placed(one, folder) for one in paths)
    return domain, instance, text


def _placed(name: str, folder: Path | None) -> Path:
    if folder is not None and not Path(name).is_file() and (folder / name).is_file():
        return folder / name
    return Path(name)


@cache
def _parser() -> Any:
    """pyRDDLGym's parser, its tables made once and written nowhere."""
    made = _needed("pyRDDLGym.core.parser.parser").RDDLParser(lexer=None, verbose=False)
    made.build(debug=False, write_tables=False, errorlog=_needed("ply.yacc").NullLogger())
    return made


def _uncommented(path: Path) -> str:
    """The text without its comments, in which files of the competitions have bytes of any kind."""
    lines = read_file(path, "RDDL").decode("utf-8-sig", errors="replace").splitlines()
    kept = [line.partition("//")[0] for line in lines]
    for number, line in enumerate(kept, start=1):
        if "\ufffd" in line:
            raise FileProblem(f"{path}: line {number} is not UTF-8 text; must be RDDL")
    return "\n".join(kept) + "\n"


def parsed(domain: Path, instance: Path) -> Any:
    """pyRDDLGym's syntax tree of a domain with an instance."""
    text = "\n".join(_uncommented(path) for path in (domain, instance))
    for block in ("domain", "instance"):
        if not re.search(rf"\b{block}\s+[\w-]+\s*\{{", text):
            where = domain if block == "domain" else instance
            raise FileProblem(f"{where}: has no block '{block} NAME {{ ... }}'; must be RDDL")
    if not re.search(r"\bnon-fluents\b[^={;]*\{", text):
        text += "\nnon-fluents none { domain = none; }\n"
    parser = _parser()
    parser.lexer._lexer.lineno = 1
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            tree = parser.parse(text)
    except Exception as error:  # the parser has classes of its own, and fails on a missing end
        _parser.cache_clear()
        told = re.sub(r"\x1b\[\d*m", "", str(error)) or "it ends too early"
        said = " ".join(told.split())
        raise FileProblem(f"{domain} with {instance}: is not RDDL: {said[:300]}") from None
    if tree is None:
        raise FileProblem(f"{domain} with {instance}: holds no RDDL")
    return tree
