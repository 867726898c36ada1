"""A live system driven through `fmdp serve`: a client in plain Python, no import of fmdp.

    python examples/serve_client.py FOLDER [STEPS]

Three machines in a circle stand for the system; put your own in the place of `System`. The learner
is a child process that is asked and told by lines of JSON. Whatever it has acknowledged is on disk:
run this again with the same folder and it goes on, even if you kill one of the two in between.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

MACHINES = 3
COMMAND = [sys.executable, "-m", "fmdp", "serve", "--model", f"circle:{MACHINES}"]


class System:
    """What would be the plant: machines that fail, sooner where the one before them is down."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.state = [1] * MACHINES

    def do(self, action: int) -> tuple[list[float], list[int]]:
        """Restart one machine (the last number: none); what it paid, and the state after."""
        rewards = [float(works) for works in self.state]
        after = []
        for machine, works in enumerate(self.state):
            likely = (0.95 if self.state[machine - 1] else 0.5) if works else 0.05
            after.append(int(machine == action or self.chance.random() < likely))
        self.state = after
        return rewards, after


class Learner:
    """`fmdp serve` as an object: one line down, one line up."""

    def __init__(self, folder: str) -> None:
        command = [*COMMAND, "--learner", "psrl", "--dir", folder]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()  # the end of its input is the end of the service
        return self.process.wait()


def main() -> int:
    folder, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    learner = Learner(folder)
    known = learner.ask(status=True)["status"]["observed"]
    system = System(seed=known)
    action = learner.ask(state=system.state)["action"]
    total = 0.0
    for _ in range(steps):
        before = list(system.state)
        rewards, after = system.do(action[0])
        total += sum(rewards)
        step = {"state": before, "action": action, "rewards": rewards, "next_state": after}
        answer = learner.ask(observe=step, state=after)  # one line tells and asks
        action = answer["action"]
    print(f"{known} steps known before, {answer['observed']} now; {total / steps:.2f} a step")
    return learner.close()


if __name__ == "__main__":
    sys.exit(main())
