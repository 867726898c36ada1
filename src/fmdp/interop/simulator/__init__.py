"""Models with intervals from simulators: Python functions and Gymnasium environments.

    fitted = fmdp.from_simulator(step, (states, actions), samples=20_000)

`sampling` asks the simulator, `door` fits a model to the samples with the code of `fmdp.logs`, and
`checks` measures noise and looks for next values that are not drawn independently.
"""

from fmdp.interop.simulator.door import from_simulator

__all__ = ["from_simulator"]
