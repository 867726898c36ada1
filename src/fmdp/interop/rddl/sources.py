"""Files and syntax trees of RDDL problems, including those of rddlrepository.

In `rddl:NAME:INSTANCE` the case of the name, "_" and "-" do not matter. The competition may be left
out (the first one is then taken), and so may MDP if the repository also has the problem as a POMDP:
`rddl:sysadmin:1` is SysAdmin_MDP_ippc2011. The archive is read as files: nothing is imported from
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
from fmdp.interop.paths import located

PREFIX = "rddl:"


class MissingRDDL(FmdpError, ImportError):
    """pyRDDLGym or rddlrepository is not installed; the message names the extra to install."""


def _needed(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations in its dependencies
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingRDDL(
            f"RDDL is read with pyRDDLGym and rddlrepository: pip install 'fmdp[rddl]' ({error})"
        ) from None


@cache
def archive() -> dict[str, Path]:
    """Return the folder of each problem of rddlrepository, competitions first, by year."""
    root = Path(_needed("rddlrepository").__file__).parent / "archive"
    folders = {}
    for domain in sorted(root.rglob("domain.rddl")):
        about = domain.with_name("__init__.py")
        if not about.is_file():
            # Some problems have a domain per instance: IPPC2018/WildlifePreserve/p1/instance1.rddl.
            problem, competition = domain.parents[1], domain.parents[2]
            folders[f"{problem.name}_{competition.name.lower()}"] = problem
            continue
        for node in ast.parse(about.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                info = ast.literal_eval(node.value)
                folders["_".join(filter(None, (info["name"], info["context"])))] = domain.parent
    return dict(
        sorted(folders.items(), key=lambda entry: ("ippc" not in entry[0], entry[0][-4:], entry[0]))
    )


def instances(folder: Path) -> list[str]:
    """Return the instances of a problem of the archive, in order."""
    names = [path.stem.removeprefix("instance") for path in folder.rglob("instance*.rddl")]
    return sorted(names, key=lambda name: (len(name), name))


def _folded(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).casefold()


def _named(name: str) -> str:
    """Return the full name in the archive of a possibly abbreviated name."""
    known = archive()
    wanted = _folded(name)
    without_end = {_folded(entry.rpartition("_")[0]): entry for entry in reversed(known)}
    bare = {
        _folded(re.sub(r"_MDP(_|$)", "_", entry).rpartition("_")[0]): entry
        for entry in reversed(known)
        if "_POMDP" not in entry
    }
    competition = {_folded(re.sub(r"_MDP(_|$)", r"\1", entry)): entry for entry in reversed(known)}
    exact = {_folded(entry): entry for entry in known}
    for names in (exact, competition, bare, without_end):
        if wanted in names:
            return names[wanted]
    near = did_you_mean(name, [*known, *(entry.partition("_")[0] for entry in known)])
    raise UnknownName(
        f"rddlrepository has no problem {quoted(name)}; it has {len(known)}, such as "
        f"SysAdmin_MDP_ippc2011{near}"
    )


def files_of(text: str, folder: Path | None = None) -> tuple[Path, Path, str]:
    """Return the domain and instance files of a problem and its canonical id, or the text."""
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
        (instance,) = where.rglob(f"instance{number}.rddl")
        return instance.with_name("domain.rddl"), instance, f"{PREFIX}{name}:{number}"
    paths = re.split(r"(?<=\.rddl)\+", text)
    if len(paths) != 2:
        raise InvalidParameter(
            f"{quoted(text)}: RDDL is read from two files, must be like DOMAIN.rddl+INSTANCE.rddl"
        )
    domain, instance = (located(path, folder) for path in paths)
    return domain, instance, text


@cache
def _parser() -> Any:
    """Return pyRDDLGym's parser, whose tables are made once and not written to disk."""
    parser = _needed("pyRDDLGym.core.parser.parser").RDDLParser(lexer=None, verbose=False)
    parser.build(debug=False, write_tables=False, errorlog=_needed("ply.yacc").NullLogger())
    return parser


def _uncommented(path: Path) -> str:
    """Return the text without comments, which may contain bytes that are not UTF-8."""
    lines = read_file(path, "RDDL").decode("utf-8-sig", errors="replace").splitlines()
    kept = [line.partition("//")[0] for line in lines]
    for number, line in enumerate(kept, start=1):
        if "\ufffd" in line:
            raise FileProblem(f"{path}: line {number} is not UTF-8 text; must be RDDL")
    return "\n".join(kept) + "\n"


def _located(message: str, domain: Path, instance: Path, before: int) -> str:
    """Return an error of the parser, which counts `before` lines before those of the instance."""
    place = re.match(r"Syntax error on line (\d+): ", message)
    if place is None:
        return f"{domain} with {instance}: is not RDDL: {message[:300]}"
    line = int(place[1])
    path, line = (domain, line) if line <= before else (instance, line - before)
    return f"{path}: line {line} is not RDDL: {message[place.end() :][:300]}"


def parsed(domain: Path, instance: Path) -> Any:
    """Return pyRDDLGym's syntax tree of a domain with an instance."""
    texts = [_uncommented(path) for path in (domain, instance)]
    text = "\n".join(texts)
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
    except Exception as error:  # it also fails in other ways, e.g. on a missing end
        _parser.cache_clear()
        message = re.sub(r"\x1b\[\d*m", "", str(error)) or "it ends too early"
        said = " ".join(message.split())
        raise FileProblem(_located(said, domain, instance, texts[0].count("\n") + 1)) from None
    if tree is None:
        raise FileProblem(f"{domain} with {instance}: holds no RDDL")
    return tree
