"""Storm as a referee: the best long-run average of a model, by a model checker (extra `storm`).

The model goes to Storm as the text of a PRISM file, and comes back as one number, so that nothing
is shared but the file: neither the tables nor the arithmetic. Storm writes out the states that can
be reached and iterates over them; its engine for sparse matrices answers R{"reward"}max=? [ LRA ]
within 1e-6 of the answer's size. That rule never stops where the answer is 0 or less, so every step
is given a constant more, such that all rewards are 1 or above, and the constant is taken off again.
The gain is that from the initial state.

Cost: every reachable state with every action, in memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fmdp.errors import FmdpError, InvalidModel
from fmdp.interop import prism
from fmdp.interop.prism.writing import REWARD
from fmdp.model.factored import FactoredMDP

__all__ = ["gain"]


def gain(model: FactoredMDP | str, rewards: str = REWARD, lowest: float = 0.0) -> float:
    """The best gain from the initial state, as Storm computes it.

    Parameters
    ----------
    model
        A model, or the text of a PRISM file.
    rewards
        The structure of rewards that is maximised.
    lowest
        The least reward of a step, for a text; of a model it is known.

    Returns
    -------
    float
        The best long-run average reward, within 1e-6 of the largest reward less the least.

    Raises
    ------
    FmdpError
        Where stormpy is not installed.
    InvalidModel
        Where Storm does not read the file.
    InvalidParameter, TooLarge
        Where the model cannot be written as a PRISM file.
    """
    storm = _stormpy()
    if isinstance(model, FactoredMDP):
        if not model.rewards:
            return 0.0
        text = prism.dumps(model)
        lowest = float(sum(table.min() for table in model.rewards))
    else:
        text = model
    more = max(0.0, 1.0 - lowest)
    heading = f'rewards "{rewards}"'
    text = text.replace(heading, f"{heading}\n  true : {more!r};")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        path.write_text(text, encoding="utf-8")
        try:
            program = storm.parse_prism_program(str(path))
            questions = storm.parse_properties(f'R{{"{rewards}"}}max=? [ LRA ]', program)
            sparse = storm.build_model(program, questions)
            answer = storm.model_checking(sparse, questions[0])
        except RuntimeError as error:
            raise InvalidModel(f"Storm: {' '.join(str(error).split())}") from None
    return float(answer.get_value(sparse.initial_states[0])) - more


def _stormpy() -> Any:
    try:
        import stormpy
    except ImportError:
        raise FmdpError(
            "this needs stormpy, which is not installed; pip install 'fmdp[storm]'"
        ) from None
    return stormpy
