"""Constants of the engine that trade time for memory, or one kind of time for another.

They affect results only through the order of floating-point operations, with two exceptions: the
values of nested backups depend on EXACT_ORDER_VARIABLES and BEAM_WIDTH, and the choice among
several optimal solutions of a linear program may depend on MANY_NEIGHBOURS and RIVALS. The times
per operation were measured on one core of an ordinary server. They serve to compare layouts, so
only their ratios matter.
"""

from __future__ import annotations

# Prices of a layout (layout.py).
NODE_SECONDS = 1.5e-7
"""Time to set up one step."""
RUN_SECONDS = 3e-9
"""Time to start one inner loop."""
LANES_MADD_SECONDS = 4.5e-11
"""Time per multiply-add in cache with explicit 8-wide SIMD (steps.py)."""
MADD_SECONDS = 1.2e-10
"""Time per multiply-add in cache in unrolled kernels."""
PLAIN_MADD_SECONDS = 2.5e-10
"""Time per multiply-add in cache in kernels that are not unrolled."""
MISS_SECONDS = 5e-10
"""Time to read and write one tensor element beyond the second-level cache."""
READ_SECONDS = 1.2e-10
"""Time to read one element of h from beyond the second-level cache."""
GATHER_SECONDS = 2e-9
"""Time to copy one table entry into place, once per solve."""
CACHE_BYTES = 1 << 20
"""Tensors that are larger are priced as lying outside the second-level cache."""
SHORT_TENSOR = 1 << 13
"""Entries below which a step is priced by its overheads, as if it did not use SIMD."""
SWEEPS_PER_SOLVE = 20
"""Sweeps of a short solve, over which the time to gather the tables is spread."""
GROUP_LIMITS = ((1, 1), (4, 8), (8, 8))
"""Candidate sizes of fused groups: joint values of a group, and of the last group."""
UNROLLED = (2, 4, 8)
"""Joint values of a group for which the kernels are unrolled."""
MOST_BRANCHES = 1 << 16
"""Most branches of a candidate layout; each branch has the overhead of one run of the program."""
REMEMBERED_CLASSES = 1 << 16
"""Joint actions times factors up to which the candidate layouts of a structure are cached."""
EQUAL_SECONDS = 1.05
"""Layouts whose predicted times are within this ratio count as equally fast: take the leanest."""
STATE_BYTES = 48
"""Bytes per state for the vectors of the caller, if it does not say how many it needs: h, L h,
scratch, actions, bias and a temporary."""
SLOWER = 1.5
"""Ratio of predicted times up to which a leaner layout leaves memory to the vectors of the caller:
acceleration saves at least a third of the sweeps."""
PARALLEL_STATES = 1 << 13
"""States below which threads cost more than they save."""

# Elimination orders (order.py, network.py).
EXACT_ORDER_VARIABLES = 12
"""State variables up to which the cheapest order is found by dynamic programming over all sets."""
BEAM_WIDTH = 120
"""Sets of equal size that the beam search keeps for more variables. Orders, and so the values of
nested backups, depend on it: a change needs a new results version."""
MANY_NEIGHBOURS = 64
"""Neighbours beyond which `min_fill` assumes that no edge is present instead of counting them."""
RIVALS = 256
"""Joint values of the first or last variables that `Network.rivals` distinguishes."""

# Joint actions in parts (split.py).
SPLIT_SECONDS = 0.05
"""Sweeps predicted to be shorter are not split: the search takes 20 ms on a ring of 20, and a plan
has about thirty sweeps."""
SPLIT_PARTS = (2, 3, 4)
"""Numbers of parts that are tried."""
SPLIT_GAIN = 1.1
"""A split must be predicted to be faster by this ratio."""
TRANSPOSE_SECONDS = 1e-8
"""Time to transpose one number there and back."""
TILE = 32
"""Rows and columns of a tile of a transpose; two tiles fit into the first-level cache."""

# Threads and deadlines (threads.py).
SHORT_SECONDS = 0.1
"""Work predicted to take longer runs in worker threads, so that the main thread can handle signals
and deadlines."""
POLL_SECONDS = 0.05
"""Interval between checks of signals and the deadline while worker threads run."""
PIECES_PER_THREAD = 8
"""Pieces of work per thread; small pieces balance cores of unequal speed."""

# Maxima by components (effects.py).
CHOICE_SECONDS = 8e-10
"""Time for one local action of one component in one state and layer."""
CACHED_CELLS = 1 << 15
"""Tensor cells that several components work on while they stay in cache."""
MOST_KEPT_BYTES = 1 << 29
"""Memory for intermediate maxima while actions are chosen; without it they are recomputed."""
DECISION_VECTORS = 5
"""Vectors in use while actions are chosen: chance, positions, layers, payments and C order."""

# Action classes (action_classes.py).
LOOP_ROWS = 256
"""Rows up to which a Python loop numbers equal rows faster than sorting does."""
