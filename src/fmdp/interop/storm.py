"""Long-run averages according to the model checker Storm (extra `storm`).

`gain` asks about a model of fmdp, `average` about a PRISM file of anybody.

For `gain`, Storm receives the model as a PRISM file and shares neither tables nor arithmetic with
fmdp, so it can serve as an independent check. Its sparse engine enumerates the reachable states and
answers R{"reward"}max=? [ LRA ] to a relative precision of 1e-6. That stopping rule never ends if
the answer is 0 or less; a constant is therefore added to the reward of every step, such that all
rewards are at least 1, and subtracted from the answer.

Cost: every reachable state with every action, in memory.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fmdp.errors import FmdpError, InvalidModel
from fmdp.interop import prism
from fmdp.interop.prism.writing import REWARD
from fmdp.model.factored import FactoredMDP

__all__ = ["average", "gain"]


def gain(model: FactoredMDP | str, rewards: str = REWARD, lowest: float = 0.0) -> float:
    """Return the optimal gain from the initial state, computed by Storm.

    Parameters
    ----------
    model
        A model, or the text of a PRISM file.
    rewards
        The reward structure to maximise.
    lowest
        The smallest reward of a step, if `model` is a text.

    Returns
    -------
    float
        The optimal long-run average reward, within 1e-6 times the range of the rewards.

    Raises
    ------
    FmdpError
        If stormpy is not installed.
    InvalidModel
        If Storm cannot read the file.
    InvalidParameter, TooLarge
        If the model cannot be written as a PRISM file.
    """
    storm = _stormpy()
    if isinstance(model, FactoredMDP):
        if not model.rewards:
            return 0.0
        text = prism.dumps(model)
        lowest = float(sum(table.min() for table in model.rewards))
    else:
        text = model
    shift = max(0.0, 1.0 - lowest)
    heading = f'rewards "{rewards}"'
    text = text.replace(heading, f"{heading}\n  true : {shift!r};")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        path.write_text(text, encoding="utf-8")
        try:
            program = storm.parse_prism_program(str(path))
            properties = storm.parse_properties(f'R{{"{rewards}"}}max=? [ LRA ]', program)
            sparse = storm.build_model(program, properties)
            answer = storm.model_checking(sparse, properties[0])
        except RuntimeError as error:
            raise InvalidModel(f"Storm: {' '.join(str(error).split())}") from None
    return float(answer.get_value(sparse.initial_states[0])) - shift


def average(
    text: str,
    of: str,
    constants: Mapping[str, Any] | None = None,
    *,
    minimise: bool = False,
    exact: bool = False,
) -> float:
    """Return the long-run average of a reward structure or label of a PRISM file, by Storm.

    Parameters
    ----------
    text
        The file, as anybody wrote it: an mdp, dtmc or ctmc.
    of
        The name of a reward structure, or of a label whose share of time is asked for; "" for a
        reward structure without a name.
    constants
        Values of the constants that the file does not define.
    minimise
        Whether an mdp is to make the average small instead of large.
    exact
        Whether Storm computes with rational numbers. Without it, it stops at a relative precision
        of 1e-6.

    Raises
    ------
    FmdpError
        If stormpy is not installed.
    InvalidModel
        If Storm cannot read the file.
    """
    storm = _stormpy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        path.write_text(text, encoding="utf-8")
        try:
            program = storm.parse_prism_program(str(path), prism_compatibility=True)
            if constants:
                program, _ = storm.instantiate_constants(program, dict(constants))
            is_label = any(label.name == of for label in program.labels)
            best = ("min" if minimise else "max") if re.search(r"^\s*mdp\b", text, re.M) else ""
            question = f'LRA{best}=? [ "{of}" ]' if is_label else f"R{_quoted(of)}{best}=? [ LRA ]"
            properties = storm.parse_properties(question, program)
            kind = storm.Rational if exact else float
            sparse = storm.build_model[kind](program, properties)
            answer = storm.model_checking(sparse, properties[0])
        except RuntimeError as error:
            raise InvalidModel(f"Storm: {' '.join(str(error).split())}") from None
    return float(answer.get_value(sparse.initial_states[0]))


def _quoted(name: str) -> str:
    return f'{{"{name}"}}' if name else ""


def _stormpy() -> Any:
    try:
        import stormpy
    except ImportError:
        raise FmdpError(
            "this needs stormpy, which is not installed; pip install 'fmdp[storm]'"
        ) from None
    return stormpy
