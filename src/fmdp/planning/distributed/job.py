"""One plan over MPI ranks: the model, the limits, the divided backup and the checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand
from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.distributed.checkpoints import Checkpoints
from fmdp.planning.distributed.ranks import Ranks
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.solver import Limits
from fmdp.planning.limits import DEFAULT_SWEEPS, tolerance_of
from fmdp.planning.status import Progress


class Job:
    """One plan over ranks; all ranks make it and call its methods together."""

    checkpoints: Checkpoints | None = None
    saved: Mapping[str, Any] | None = None
    """The content of the checkpoint to continue from."""

    def __init__(
        self,
        model: FactoredMDP,
        settings: Exact,
        ranks: Ranks,
        started: float,
        progress: Progress | None,
    ) -> None:
        self.model, self.settings, self.ranks, self.started = model, settings, ranks, started
        self.progress = progress if ranks.is_first else None
        self.structure: Structure = model.structure
        self.discount = 1.0 if settings.discount is None else settings.discount
        self.limits = Limits(
            tolerance_of(settings.tolerance, self.structure),
            settings.max_iterations or DEFAULT_SWEEPS,
            ranks.deadline(settings.max_seconds, started),
        )
        # One rank may have too little memory for the expansion.
        self.expanded = ranks.each(lambda: expand(model))
        self.backup = RanksBackup(
            self.expanded,
            ranks,
            memory_limit=settings.memory_limit,
            deadline=self.limits.deadline,
        )

    def use_checkpoints(self, folder: str | Path | None, every: float, resume: bool) -> None:
        """Keep checkpoints in a folder, by default one that is named after the plan."""
        identity = self._identity()
        folder = Path(f"fmdp-checkpoint-{identity[:12]}" if folder is None else folder)
        self.checkpoints = Checkpoints(folder, self.ranks, identity, every)
        self.saved = self.checkpoints.read()
        if self.saved is not None and not resume:
            raise InvalidParameter(
                f"{folder} holds the checkpoint of this plan; give --resume to continue from it, "
                f"another --checkpoint folder, or delete it"
            )

    def _identity(self) -> str:
        """Return a digest of everything that the numbers of the plan depend on."""
        settings, cut = self.settings, self.backup.cut
        values = (
            settings.criterion,
            settings.discount,
            settings.horizon,
            self.limits.tolerance,
            settings.ties,
            settings.tie_seed,
            self.model.content_hash,
            cut.layout.order,
            cut.layout.pieces,
            cut.known,
            cut.spread,
        )
        return hashlib.sha256(repr(values).encode()).hexdigest()

    def save(
        self,
        numbers: Mapping[str, Any],
        vectors: Mapping[str, NDArray[Any]],
        tables: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Write a checkpoint: numbers that all ranks have, this rank's part of vectors over the
        states and of tables of actions."""
        assert self.checkpoints is not None
        share = self.backup.share
        parts = {name: (vector, share.first_state) for name, vector in vectors.items()}
        parts |= {name: (table, share.first_action) for name, table in (tables or {}).items()}
        self.checkpoints.write(numbers, parts)

    def read_vector(self, name: str) -> NDArray[Any]:
        """Return this rank's part of a vector of the checkpoint."""
        share = self.backup.share
        return self._read(name, "f", share.first_state, share.n_states)

    def read_table(self, name: str) -> NDArray[Any]:
        """Return this rank's part of tables of actions of the checkpoint."""
        share = self.backup.share
        return self._read(name, "u", share.first_action, share.n_actions)

    def _read(self, name: str, kind: str, first: int, count: int) -> NDArray[Any]:
        assert self.checkpoints is not None
        n_states = self.structure.n_states
        return self.checkpoints.array(name, n_states, first, first + count, kind)
