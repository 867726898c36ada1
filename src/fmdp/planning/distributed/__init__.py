"""Exact plans over the processes ("ranks") of an MPI job, none of which holds a whole vector.

`plan_over_ranks` (planner.py) runs the phases of `planning.exact` on `RanksBackup` (backup.py),
whose vectors are divided among the ranks.  docs/mpi.md describes it.
"""
