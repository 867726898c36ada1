"""Conformance checkers for planners and problems.

`check_planner(planner)` plans for a dozen small models, including awkward ones (periodic,
multichain, single values, empty scopes, no reward), and compares the plans with brute-force
oracles. `check_problem(problem)` checks a class of problems, an id or a model: its settings, its
tables, saving, loading and pickling, and the engine's backup against the dense MDP. Both return
nothing, or raise ContractBroken with one line: who, on what, which promise.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import backup_for
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure, product
from fmdp.model.io.files import load, save
from fmdp.planning.choice import plan_with, planned
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.archive import policy_digest
from fmdp.planning.policies.files import load_policy
from fmdp.planning.registry import PLANNERS
from fmdp.planning.settings import without_search
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.status import Status, Tables
from fmdp.problems import Problem, parse_id
from fmdp.problems import problem as read_problem
from fmdp.problems.foreign import format_of
from fmdp.problems.ids import is_path
from fmdp.testing import oracles
from fmdp.testing.units import in_units

SLACK = 1e-9
"""Tolerance for the rounding of the oracles, relative to the size of the rewards."""

_WITHOUT_POLICY = (
    *(Status.INFEASIBLE, Status.UNBOUNDED, Status.TOO_LARGE),
    *(Status.TIME_LIMIT, Status.INTERRUPTED),
)

DENSE_STATES = 256
"""Largest number of states (with at most 64 joint actions) for the comparison with the dense
MDP."""


class ContractBroken(AssertionError):
    """A planner, learner or problem breaks one of its promises; the text says which."""


def check_planner(planner: Planner | str, models: Iterable[FactoredMDP] | None = None) -> None:
    """Raise ContractBroken unless the planner keeps its promises on these models.

    Bounds are compared with the best gain of the model, unless the plan says that they bound
    another operator's gain (`Plan.bounds_best_gain`). A planner for models alone may refuse
    optimistic tables with InvalidParameter.

    Parameters
    ----------
    planner
        An object of settings, or a text such as "my_module:MyPlanner,depth=3".
    models
        Small models, since they are solved by brute force; by default the dozen of
        `awkward_models`.

    Raises
    ------
    ContractBroken
        With one line: who, on what, which promise.
    """
    if isinstance(planner, str):
        planner = PLANNERS.read(planner)
    _check_settings(planner)
    for model in awkward_models() if models is None else models:
        where = f'planner {planner.name} on "{model.name}"'
        before = model.content_hash
        plan = plan_with(planner, model)
        _require(model.content_hash == before, where, "leaves the model as it was")
        _check_plan(plan, planner, model, where)
        # `fmdp.plan` adds the gain of the policy.
        _check_plan(planned(model, planner), planner, model, where)
        again = plan_with(planner, model, progress=lambda report: None)
        _require(_same(plan, again), where, "gives the same plan twice")
        _check_prepared(planner, plan, model, where)


def check_problem(problem: str | Problem | type[Problem] | FactoredMDP) -> None:
    """Raise ContractBroken unless the problem keeps its promises.

    Parameters
    ----------
    problem
        An id, the path of a model file, an object such as Circle(size=7), a model; or a class of
        problems, which is checked together with its `example`.
    """
    if isinstance(problem, type):
        _check_family(problem)
        problem = problem.example_id()
    if isinstance(problem, str) and not is_path(problem) and format_of(problem) is None:
        problem = parse_id(problem)
    if isinstance(problem, Problem):
        where = f"problem {problem}"
        model = _check_problem_object(problem, where)
    else:
        model = read_problem(problem) if isinstance(problem, str) else problem
        where = f'model "{model.name}"'
    _check_tables(model, where)
    _check_copies(model, where)
    structure = model.structure
    if structure.n_states <= DENSE_STATES and structure.n_actions <= 64:
        mdp = oracles.dense(model)
        h = np.random.default_rng(0).normal(size=structure.n_states)
        close = np.allclose(backup_for(model).apply(h), oracles.bellman(mdp, h), atol=1e-9)
        _require(close, where, "has the backup of its dense MDP")
        gain = oracles.optimal(mdp).gain
        lo = sum(low for low, _ in structure.reward_ranges)
        hi = sum(high for _, high in structure.reward_ranges)
        inside = lo - 1e-9 <= gain.min() and gain.max() <= hi + 1e-9
        _require(bool(inside), where, "has a gain within the range of its rewards")


def awkward_models() -> tuple[FactoredMDP, ...]:
    """Return small models that are difficult for planners, named by their difficulty."""
    stay = FactoredMDP.from_factors(
        (2, 2),
        (2,),
        [((0,), [[1, 0], [0, 1]]), ((1, 2), [[[1, 0], [0, 1]], [[0, 1], [1, 0]]])],
        [((0,), [0, 1]), ((1,), [0, 0.5])],
        name="multichain: the first bit never changes",
    )
    # Trivial parts of every kind, and one part that matters.
    trivial = FactoredMDP.from_factors(
        (1, 2, 3),
        (1, 2),
        [
            ((), [1.0]),
            ((2, 4), np.full((3, 2, 2), 0.5)),
            ((1, 4), np.array([[[0.1, 0.2, 0.7], [1, 0, 0]], [[0, 0.5, 0.5], [0, 1, 0]]])),
        ],
        [((), 0.25), ((2, 4), np.array([[0, 0.5], [1, 0], [0.3, 0.3]])), ((3,), [0.5])],
        name="single values, empty scopes, scopes without their variable",
    )
    no_reward = FactoredMDP.from_factors(
        (2,),
        (2,),
        [((0, 1), [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.2, 0.8]]])],
        name="no reward",
    )
    penalties = FactoredMDP.from_factors(
        (2,),
        (2,),
        [((0, 1), [[[0.5, 0.5], [1.0, 0.0]], [[0.1, 0.9], [0.2, 0.8]]])],
        [((0, 1), [[-5.0, -3.0], [-1.0, -4.0]])],
        reward_ranges=[(-5.0, -1.0)],
        name="rewards below 0",
    )
    twins = product(penalties, penalties)
    corridor = FactoredMDP.from_factors(
        (4,),
        (2,),
        [((0, 1), np.eye(4)[[[0, 1], [0, 2], [1, 3], [2, 3]]])],
        [((0, 1), np.array([[0.99, 0], [0, 0], [0, 0], [0, 1]]))],
        name="a corridor that pays a little less at one end",
    )
    # The problems are a ring, a periodic one, one with several actions and a wide one.
    problems = map(read_problem, ("circle:3", "large-diameter", "jao:2", "riverswim:1"))
    models = (stay, trivial, no_reward, penalties, twins, corridor)
    return (*problems, *models, in_units(twins, 1e-9), in_units(corridor, 1e8))


# ---- planners -----------------------------------------------------------------------------------


def _check_settings(planner: Planner) -> None:
    where = f"planner {type(planner).__name__}"
    _require(isinstance(planner.name, str) and planner.name != "", where, "has a name")
    _require(copy.deepcopy(planner) == planner, where, "equals a copy of itself")
    _require(hash(copy.deepcopy(planner)) == hash(planner), where, "hashes by its settings")
    _require(pickle.loads(pickle.dumps(planner)) == planner, where, "survives pickling")
    if isinstance(planner, Planner):
        words = dict(word.split("=", 1) for word in planner.words())
        _require(type(planner).make(words) == planner, where, "reads its own settings back")
    for setting in vars(planner):
        try:
            setattr(planner, setting, getattr(planner, setting))
        except AttributeError:  # of which FrozenInstanceError is one
            return
        raise ContractBroken(f"{where} does not keep this promise: is frozen")


def _check_plan(plan: Plan, planner: Planner, model: FactoredMDP, where: str) -> None:
    _require(isinstance(plan, Plan), where, "returns a Plan")
    _require(isinstance(plan.status, Status), where, "has a status")
    plan.status.raise_if_interrupted()
    _require(plan.planner == planner.name, where, "signs its plan")
    _require(plan.iterations >= 0 and plan.seconds >= 0.0, where, "counts from 0")
    for name in ("gain", "gain_lower", "gain_upper", "span", "objective", "policy_gain"):
        value = getattr(plan, name)
        _require(value is None or math.isfinite(value), where, f"has a finite {name} or None")
    slack = SLACK * model.structure.reward_size
    tolerance = tolerance_of(getattr(planner, "tolerance", None), model.structure)
    bounds = [value for value in (plan.gain_lower, plan.gain, plan.gain_upper) if value is not None]
    ordered = all(a <= b for a, b in itertools.pairwise(bounds))
    _require(ordered, where, "has gain_lower <= gain <= gain_upper")
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    if plan.bounds_best_gain and plan.gain_upper is not None:
        _require(plan.gain_upper >= best.max() - slack, where, "bounds the best gain from above")
    if plan.bounds_best_gain and plan.gain_lower is not None:
        _require(plan.gain_lower <= best.min() + slack, where, "has a lower bound that is one")
    if plan.status is Status.MULTICHAIN:
        _require(best.max() - best.min() > slack, where, "is multichain only if gains differ")
        _require(plan.gain is None, where, "has no gain where it depends on the state")
    _check_bias(plan, model.structure, where)
    if plan.policy is None:
        failed = plan.status in _WITHOUT_POLICY
        _require(failed, where, "has a policy unless it says why not")
        return
    actions = _actions(plan, model.structure, where)
    gain = oracles.policy_gain(mdp, actions)
    if plan.policy_gain is not None:
        start = _index(model.initial_state, model.structure.state_sizes)
        near = abs(plan.policy_gain - gain[start]) <= slack + tolerance
        _require(near, where, "says what its policy gains from the initial state")
    _require(bool((gain <= best + slack).all()), where, "has a policy of this model")
    if plan.bounds_best_gain and plan.gain_lower is not None:
        kept = bool((gain >= plan.gain_lower - slack).all())
        _require(kept, where, "has a policy that gains its lower bound from every state")


def _check_bias(plan: Plan, structure: Structure, where: str) -> None:
    if plan.factored_spans is not None:
        _require(len(plan.factored_spans) == structure.m, where, "has one span per state variable")
        _require(min(plan.factored_spans) >= 0.0, where, "has spans of at least 0")
    if plan.bias is None:
        return
    _require(plan.bias.shape == (structure.n_states,), where, "has one bias per state")
    scale = 1e-9 * float(np.abs(plan.bias).max())
    if plan.span is not None:
        _require(abs(plan.span - span(plan.bias)) <= scale, where, "has the span of its bias")
    if plan.factored_spans is not None:
        spans = factored_spans(plan.bias, structure.state_sizes)
        same = np.allclose(plan.factored_spans, spans, rtol=0.0, atol=scale)
        _require(same, where, "has the factored spans of its bias")


def _check_prepared(planner: Planner, plan: Plan, model: FactoredMDP, where: str) -> None:
    """Check repeated solving: other tables in between, optimistic ones, and a saved warm state."""
    structure = model.structure
    quick = without_search(planner)
    if quick != planner:  # a single plan may search for a basis
        plan = quick.plan(model)
    prepared = planner.prepare(structure)
    cold = prepared.solve(model)
    tolerance = tolerance_of(getattr(planner, "tolerance", None), structure)
    slack = SLACK * structure.reward_size + 20 * tolerance
    _require(_near(cold.gain_upper, plan.gain_upper, slack), where, "prepares for the same plan")
    kind = cold.bounds_best_gain == plan.bounds_best_gain
    _require(kind, where, "has bounds of one kind, prepared or not")
    optimistic_tables: Tables = _wider(model)
    try:
        known = prepared.solve(OptimisticTables.from_model(model))
    except InvalidParameter:
        optimistic_tables = model  # it plans for models alone
    else:
        near = _near(known.gain_upper, plan.gain_upper, slack)
        _require(near, where, "takes zero widths for the model")
    kept = {name: array.copy() for name, array in prepared.warm_state().items()}
    optimistic = prepared.solve(optimistic_tables)
    if optimistic.policy is not None:
        _actions(optimistic, structure, where)
    if optimistic.bounds_best_gain and optimistic.gain_upper is not None:
        best = oracles.optimal(oracles.dense(model)).gain.max()
        _require(optimistic.gain_upper >= best - slack, where, "is optimistic")
    other = planner.prepare(structure)
    other.restore_warm_state(kept)
    _require(
        _same(optimistic, other.solve(optimistic_tables)), where, "goes on from a saved warm state"
    )
    back = prepared.solve(model)
    _require(_near(back.gain_upper, plan.gain_upper, slack), where, "finds back after other tables")


def _wider(model: FactoredMDP) -> OptimisticTables:
    """Return tables with this model in their set: a tenth of every row is free, and one row
    entirely."""
    lower = [0.9 * table for table in model.transitions]
    for table in lower:
        table[0] = 0.0
    free = [np.clip(1.0 - table.sum(axis=1), 0.0, 1.0) for table in lower]
    return OptimisticTables(model.structure, tuple(lower), tuple(free), model.rewards)


def _actions(plan: Plan, structure: Structure, where: str) -> NDArray[np.int64]:
    """Return the joint action index of every state, after checking that the policy is a
    function."""
    assert plan.policy is not None
    indices = []
    for state in oracles.assignments(structure.state_sizes):
        action = plan.policy(state)
        inside = len(action) == len(structure.action_sizes) and all(
            0 <= value < size for value, size in zip(action, structure.action_sizes, strict=True)
        )
        _require(inside, where, f"answers state {state} with an action; got {action}")
        _require(plan.policy(state) == action, where, f"answers state {state} the same twice")
        allowed = structure.allowed(state, action)
        _require(allowed, where, f"answers state {state} with an allowed action; got {action}")
        indices.append(_index(action, structure.action_sizes))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy"
        plan.policy.save(path)
        loaded = load_policy(path, structure)
        for state in oracles.assignments(structure.state_sizes):
            same = loaded(state) == plan.policy(state)
            _require(same, where, f"saves a policy that answers state {state} the same")
    return np.array(indices, dtype=np.int64)


def _same(first: Plan, second: Plan) -> bool:
    """Return whether two plans are equal bit by bit, except for times."""
    names = ("status", "gain", "gain_lower", "gain_upper", "span", "factored_spans", "objective")
    if any(getattr(first, name) != getattr(second, name) for name in names):
        return False
    if first.policy is None or second.policy is None:
        return first.policy is second.policy
    return policy_digest(first.policy) == policy_digest(second.policy)


def _near(first: float | None, second: float | None, slack: float) -> bool:
    if first is None or second is None:
        return first is second
    return abs(first - second) <= slack


# ---- problems -----------------------------------------------------------------------------------


def _check_family(kind: type[Problem]) -> None:
    where = f"problem {kind.__name__}"
    is_one = issubclass(kind, Problem) and not inspect.isabstract(kind)
    _require(is_one, where, "is a subclass of fmdp.Problem with a build")
    _require(kind.summary != "", where, "has a line about itself: a docstring or a summary")
    for parameter in kind.parameters:
        name, default = parameter.name, parameter.default
        _require(parameter.meaning != "", where, f"says what its setting {name} means")
        if not parameter.required:
            kept = parameter.parse(parameter.show(default), kind.name) == default
            _require(kept, where, f"has a default of {name} that can be written in an id")
    with _without_error(where, "has an example that is an id of it"):
        read = type(parse_id(kind.example_id()))
    _require(read is kind, where, f"has an example that is an id of it, not of {read.__name__}")


def _check_problem_object(problem: Problem, where: str) -> FactoredMDP:
    twin = copy.deepcopy(problem)
    _require(twin == problem and hash(twin) == hash(problem), where, "is known by its settings")
    with _without_error(where, "has an id that reads back"):
        read = parse_id(str(problem))
    _require(read == problem, where, f"has an id that reads back, not as {read!r}")
    with _without_error(where, "builds its model"):
        model, again = read_problem(problem), read_problem(read)
    _require(model == again, where, "is the same model every time")
    return model


def _check_tables(model: FactoredMDP, where: str) -> None:
    structure = model.structure
    for i, (table, rows, size) in enumerate(
        zip(model.transitions, structure.transition_rows, structure.state_sizes, strict=True)
    ):
        _require(table.shape == (rows, size), where, f"has one row per assignment in factor {i}")
        laws = bool((table >= 0).all()) and np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        _require(laws, where, f"has distributions in factor {i}")
        _require(not table.flags.writeable, where, f"protects the table of factor {i}")
    for k, (means, rows, (lo, hi)) in enumerate(
        zip(model.rewards, structure.reward_rows, structure.reward_ranges, strict=True)
    ):
        _require(means.shape == (rows,), where, f"has one mean per assignment in reward {k}")
        inside = bool(((means >= lo) & (means <= hi)).all())
        _require(inside, where, f"has the means of reward {k} within its range")
    start = model.initial_state
    inside = len(start) == structure.m and all(
        0 <= value < size for value, size in zip(start, structure.state_sizes, strict=True)
    )
    _require(inside, where, "starts in one of its states")
    rng = np.random.default_rng(0)
    for _ in range(20):
        state = tuple(int(rng.integers(size)) for size in structure.state_sizes)
        action = tuple(int(rng.integers(size)) for size in structure.action_sizes)
        x = state + action
        for i, scope in enumerate(structure.transition_scopes):
            row = model.transitions[i][oracles.scope_row(structure, scope, x)]
            same = np.array_equal(model.transition_row(i, state, action), row)
            _require(same, where, f"finds the row of factor {i} at {x}")
        total = sum(
            float(means[oracles.scope_row(structure, scope, x)])
            for scope, means in zip(structure.reward_scopes, model.rewards, strict=True)
        )
        near = abs(model.expected_reward(state, action) - total) <= 1e-9 * (1 + abs(total))
        _require(near, where, f"sums its rewards at {x}")


def _check_copies(model: FactoredMDP, where: str) -> None:
    twin = pickle.loads(pickle.dumps(model))
    _require(twin == model and hash(twin) == hash(model), where, "survives pickling")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        save(model, path)
        _require(load(path) == model, where, "is the same after saving and loading")


def _index(assignment: Sequence[int], sizes: Sequence[int]) -> int:
    index = 0
    for value, size in zip(assignment, sizes, strict=True):
        index = index * size + value
    return index


def _require(kept: bool, where: str, promise: str) -> None:
    if not kept:
        raise ContractBroken(f"{where} does not keep this promise: {promise}")


@contextmanager
def _without_error(where: str, promise: str) -> Iterator[None]:
    try:
        yield
    except FmdpError as error:
        raise ContractBroken(f"{where} does not keep this promise: {promise}: {error}") from error
