"""Reading and writing of dynamic Bayesian networks and influence diagrams (extra `dbn`).

    fmdp convert circle:4 circle.gum      everything, bit for bit: pyAgrum's own format
    fmdp convert circle:4 circle.bifxml   an influence diagram; pyAgrum writes six digits
    fmdp convert circle:4 circle.bif      the transitions only; pyAgrum reads single precision

pyAgrum writes and reads the files. Files of other programs can be read if their nodes are named
x_0 and x_t (networks.py).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, InvalidModel, InvalidParameter
from fmdp.interop.dbn.networks import (
    from_bayesian_network,
    has_other_names,
    one_valued,
    pyagrum,
    to_bayesian_network,
    to_influence_diagram,
)
from fmdp.interop.paths import located
from fmdp.model.factored import FactoredMDP
from fmdp.model.io.files import parse_json, read_text, write_atomically

_EXPONENT = re.compile(r"(?<![\w.])[\d.]+[eE][+-]?0*(\d+)")
_LARGEST_EXPONENT = 308

__all__ = ["from_bayesian_network", "to_bayesian_network", "to_influence_diagram"]


def read(text: str, folder: Path | None) -> FactoredMDP:
    """Return the model of MODEL.gum, MODEL.bifxml or MODEL.bif (see `fmdp.problems.foreign`)."""
    path = located(text, folder)
    content = _checked(path)
    library = pyagrum()
    network: Any = library.BayesNet()
    if path.suffix == ".gum":
        if _is_diagram(content, path):
            network = library.InfluenceDiagram()
        load = network.loadGUM
    elif path.suffix == ".bif":
        load = network.loadBIF
    else:
        if '"decision"' in content or '"utility"' in content:
            network = library.InfluenceDiagram()
        load = network.loadBIFXML
    try:
        load(str(path))
    except library.GumException as error:
        said = " ".join(str(error).split())
        raise FileProblem(f"{path}: pyAgrum cannot read it ({said})") from None
    try:
        return from_bayesian_network(network, name=path.stem)
    except InvalidModel as error:
        raise InvalidModel(f"{path}: {error}") from None


def _checked(path: Path) -> str:
    """Return the text of a network; refuse what pyAgrum does not survive."""
    content = read_text(path, "a network")
    for match in _EXPONENT.finditer(content):
        if len(match[1]) > 3 or int(match[1]) > _LARGEST_EXPONENT:
            raise FileProblem(f"{path}: has the number {quoted(match[0])}; must be a finite one")
    return content


def _is_diagram(content: str, path: Path) -> bool:
    network = parse_json(content, str(path))
    return isinstance(network, dict) and network.get("type") == "ID"


def write(model: FactoredMDP, paths: Sequence[Path]) -> list[str]:
    """Write a model and return what the format leaves out (see `fmdp.problems.foreign`)."""
    path, s = paths[0], model.structure
    if model.intervals is not None:
        raise InvalidParameter(
            f"cannot write {path}: the model has intervals, and a network one number for each "
            f"probability"
        )
    refused = one_valued(model)
    if refused:
        raise InvalidParameter(
            f"cannot write {path}: {refused[0]} has one value, and pyAgrum reads no such variable"
        )
    diagram = path.suffix != ".bif"
    network = to_influence_diagram(model) if diagram else to_bayesian_network(model)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / f"model{path.suffix}"
        if path.suffix == ".gum":
            network.saveGUM(str(written))
        elif path.suffix == ".bif":
            network.saveBIF(str(written))
        else:
            network.saveBIFXML(str(written))
        write_atomically(path, written.read_bytes())
    if path.suffix == ".gum":
        return []
    return [
        name
        for name, absent in (
            ("rewards", not diagram and s.l > 0),
            ("constraints on actions", bool(s.constraints)),
            ("ranges and noise of rewards", diagram and s.l > 0),
            ("alike rows", s.alike is not None),
            ("groups", bool(s.groups)),
            ("effects", s.effects is not None),
            ("digits beyond the sixth", diagram),
            ("names that are no identifiers, or keywords of BIF", has_other_names(model)),
        )
        if absent
    ]
