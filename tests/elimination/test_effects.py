"""The backup by components equals enumeration over the allowed joint actions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.elimination import tuning
from fmdp.elimination.action_classes import action_classes
from fmdp.elimination.backup import Backup, TimeUp, backup_for
from fmdp.elimination.decomposition import decompose, enumeration_reason
from fmdp.elimination.effects import EffectsBackup
from fmdp.elimination.forbidden import charging
from fmdp.elimination.layout import make_layout
from fmdp.errors import TooLarge
from fmdp.model import AtMost, Effect, FactoredMDP, Forbidden, OptimisticTables, Structure
from fmdp.problems import problem
from fmdp.testing import oracles, strategies

Floats = NDArray[np.float64]


def by_components(model: FactoredMDP | OptimisticTables, **options: bool) -> EffectsBackup:
    backup = backup_for(model, **options)
    assert isinstance(backup, EffectsBackup)
    return backup


@given(st.data())
@settings(max_examples=100)
def test_backup_lowest_greedy_and_policy_step_equal_enumeration(data: st.DataObject) -> None:
    model = data.draw(strategies.effect_models())
    structure = model.structure
    h = data.draw(strategies.values(structure))
    actions = data.draw(strategies.policies(structure))
    discount = data.draw(st.sampled_from((1.0, 0.9, 0.0)))
    rule = data.draw(st.sampled_from(("random", "first", "last")))
    flat = oracles.dense(model)
    q = oracles.action_values(flat, h, discount)
    allowed = oracles.allowed_table(structure)
    scale = 1.0 + np.abs(h).max()
    backup = by_components(model)
    states = np.arange(len(h))
    top = q.max(axis=0)
    np.testing.assert_allclose(backup.apply(h, discount), top, atol=1e-12 * scale)
    told = np.where(allowed, q, -np.inf).T
    np.testing.assert_allclose(backup.action_values(h, discount), told, atol=1e-12 * scale)
    value, greedy = backup.greedy(h, discount, rule, 7)
    assert allowed[greedy, states].all()
    np.testing.assert_allclose(q[greedy, states], top, atol=1e-8 * scale)
    np.testing.assert_allclose(value, top, atol=1e-12 * scale)
    for _ in range(2):  # the second time from what is remembered of the policy
        np.testing.assert_allclose(
            backup.for_policy(h, actions, discount), q[actions, states], atol=1e-12 * scale
        )
    source = backup.to_internal(h)
    out = np.empty_like(source)
    backup.lowest(source, out)
    low = oracles.action_values(flat, h).min(axis=0)
    np.testing.assert_allclose(backup.to_canonical(out), low, atol=1e-12 * scale)
    # Once more: what was negated is back.
    np.testing.assert_allclose(backup.apply(h, discount), top, atol=1e-12 * scale)


@given(st.data())
@settings(max_examples=50)
def test_what_the_chosen_are_worth_is_what_they_are_worth(data: st.DataObject) -> None:
    """`value` becomes R_pi + P_pi h: the lower bound that is printed is the policy's own."""
    model = data.draw(strategies.effect_models())
    h = data.draw(strategies.values(model.structure))
    slack = data.draw(st.sampled_from((0.0, 1e-9, 0.5, 10.0)))
    backup = by_components(model)
    backup._spare = data.draw(st.sampled_from((0, 1 << 20)))  # the maxima kept, or found again
    source = backup.to_internal(h)
    best, own = np.empty_like(source), np.empty_like(source)
    backup.sweep(source, best)
    worth = best.copy()
    actions = backup.greedy_actions(source, worth, "random", 3, slack)
    backup.policy_sweep(source, own, actions)
    noise = 1e-12 * (1.0 + np.abs(h).max())
    np.testing.assert_allclose(worth, own, atol=noise)
    assert (worth >= best - slack - noise).all()
    assert oracles.allowed_table(model.structure)[actions, np.arange(len(h))].all()


@given(st.data())
@settings(max_examples=40)
def test_the_first_and_the_last_tied_action_are_those_of_enumeration(data: st.DataObject) -> None:
    model = data.draw(strategies.effect_models())
    structure = model.structure
    parts = decompose(structure)
    assert parts is not None
    order = [v for component in parts.components for v in component.effect.actions]
    h = np.round(data.draw(strategies.values(structure)))
    values = np.where(
        oracles.allowed_table(structure), oracles.action_values(oracles.dense(model), h), -np.inf
    )
    tied = values >= values.max(axis=0) - 0.25
    gap = np.abs(values - (values.max(axis=0) - 0.25)).min()
    backup = by_components(model)
    source = backup.to_internal(h)
    for rule, of in (("first", min), ("last", max)):
        out = np.empty_like(source)
        backup.sweep(source, out)
        found = backup.greedy_actions(source, out, rule, 0, 0.25)
        if gap > 1e-6:
            assert tied[found, np.arange(len(h))].all()
        if gap > 1e-6 and order == sorted(order):  # components do not interleave
            assert [of(np.flatnonzero(own)) for own in tied.T] == found.tolist()


@pytest.mark.parametrize("cells", [1, 6, 20])
def test_blocks_that_fit_into_a_cache_do_not_change_a_bit(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @given(st.data())
    @settings(max_examples=25)
    def check(data: st.DataObject) -> None:
        model = data.draw(strategies.effect_models())
        h = data.draw(strategies.values(model.structure))
        whole = by_components(model).apply(h)
        with monkeypatch.context() as patch:
            patch.setattr(tuning, "CACHED_CELLS", cells)
            assert np.array_equal(by_components(model).apply(h), whole)

    check()


def test_a_tie_is_broken_by_the_seed_and_the_state() -> None:
    """Nothing matters: all joint actions are tied, and every one of them is taken somewhere."""
    model = problem("maintenance:5,levels=3,preventive=0,corrective=0,setup=0,penalty=0,k=0")
    backup = by_components(model)
    one, again, other = (
        backup.greedy(np.zeros(backup.n_states), ties="random", tie_seed=seed)[1]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert (one != other).any()
    assert set(one) == set(range(32))


def classwise(model: FactoredMDP, seed: int) -> OptimisticTables:
    """Optimistic tables around a model as learners make them: equal where rows are alike."""
    structure, generator = model.structure, np.random.default_rng(seed)
    kept = generator.choice([0.0, 0.5, 1.0], size=structure.n_transition_classes)
    lower = [
        table * kept[structure.transition_classes_of(i)][:, None]
        for i, table in enumerate(model.transitions)
    ]
    free = [np.clip(1.0 - own.sum(axis=1), 0.0, None) for own in lower]
    return OptimisticTables(structure, tuple(lower), tuple(free), model.rewards)


@given(st.data())
@settings(max_examples=40)
def test_nested_targets_are_those_of_enumeration_in_the_same_order(data: st.DataObject) -> None:
    model = data.draw(strategies.effect_models(max_states=24, max_actions=6))
    structure = model.structure
    tables = classwise(model, data.draw(st.integers(0, 99)))
    h = data.draw(strategies.values(structure))
    scale = 1.0 + np.abs(h).max()
    backup = by_components(tables)
    values = oracles.nested_values(tables, h, backup.layout.order)
    expected = np.where(oracles.allowed_table(structure), values, -np.inf).max(axis=0)
    np.testing.assert_allclose(backup.apply(h), expected, atol=1e-12 * scale)
    # Nature's worst case, boxes with it, as the enumerating engine has it.
    ends = zip(tables.lower, model.transitions, strict=True)
    boxes = replace(tables, upper=tuple(np.maximum(0.5 * (1.0 + low), row) for low, row in ends))
    for chosen in (tables, boxes):
        worst = by_components(chosen, worst=True)
        charged = charging(structure)
        layout = make_layout(
            charged,
            worst.layout.order,
            action_classes(charged),
            nested=True,
            limit=1,
            last_limit=1,
            branch=(),
        )
        enumerating = Backup(structure, worst=True, layout=layout)
        enumerating.load(chosen)
        np.testing.assert_allclose(worst.apply(h), enumerating.apply(h), atol=1e-11 * scale)


def test_intervals_that_differ_where_effects_do_not_are_enumerated() -> None:
    model = problem("maintenance:2,levels=3")
    tables = OptimisticTables.from_model(model)
    assert isinstance(backup_for(tables), EffectsBackup)
    lower = [own.copy() for own in tables.lower]
    lower[0][1] *= 0.5  # replaced: like row 3 and row 5
    free = [1.0 - own.sum(axis=1) for own in lower]
    # As intervals may be said for single rows; the constructor would refuse them.
    single = OptimisticTables.trusted(model.structure, lower, free, tables.rewards)
    assert not isinstance(backup_for(single), EffectsBackup)


@pytest.mark.parametrize(
    "name", ["maintenance:7,levels=4,k=5", "maintenance:7,levels=4,k=5,crew=2,load=1"]
)
def test_threads_do_not_change_a_bit(name: str) -> None:
    model = problem(name)
    h = np.random.default_rng(1).normal(size=model.structure.n_states)
    results = []
    for threads in (1, 2, 3):
        backup = backup_for(model, threads=threads)
        assert backup.threads == threads
        actions = backup.greedy(h, ties="random")[1]
        results.append((backup.apply(h), actions, backup.for_policy(h, actions)))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert np.array_equal(one, two)


def test_a_component_of_several_scattered_variables() -> None:
    """States 0 and 2 belong together, and the elimination may put others between them."""
    generator = np.random.default_rng(0)
    sizes = (3, 4, 2, 3)
    model = FactoredMDP.from_effects(
        sizes,
        (3, 2),
        [
            Effect((0, 2), (4,), generator.integers(6, size=18)),
            Effect((1,), (5,), generator.integers(4, size=8)),
        ],
        [
            (
                scope,
                generator.dirichlet(np.ones(size), size=int(np.prod([sizes[v] for v in scope]))),
            )
            for size, scope in zip(sizes, ([0, 1], [1, 2], [2, 3], [3, 0]), strict=True)
        ],
        [
            ("cost", [0, 4], generator.random((3, 3))),
            ("before", [0, 1, 3], generator.random((3, 4, 3))),
            ("after", [1, 3], generator.random((4, 3))),
            ("setup", [], [0.5, -0.25]),
        ],
        constraints=[AtMost((4, 5), 1)],
    )
    h = generator.normal(size=72)
    expected = oracles.bellman(oracles.dense(model), h)
    np.testing.assert_allclose(by_components(model).apply(h), expected, atol=1e-12)


def small(*constraints: AtMost | Forbidden) -> Structure:
    """Two machines of two values that may be put to 0, and these constraints."""
    law = np.array([[0.5, 0.5], [0.0, 1.0]])
    outcome = [0, 0, 1, 0]
    return FactoredMDP.from_effects(
        (2, 2),
        (2, 2),
        [((0,), (2,), outcome), ((1,), (3,), outcome)],
        [([0], law), ([1], law)],
        constraints=constraints,
    ).structure


def test_what_does_not_decompose_says_why() -> None:
    across = Forbidden((2, 3), np.array([False, False, False, True]), name="never both")
    assert decompose(small(across)) is None
    assert (
        enumeration_reason(small(across)) == 'constraint "never both" looks at several components'
    )
    beside = Forbidden((1, 2), np.array([False, False, False, True]))
    assert "looks at several components" in str(enumeration_reason(small(beside)))
    # Caps on the same set are one cap; other caps are not.
    same = decompose(small(AtMost((2, 3), 1), AtMost((2, 3), 0)))
    assert same is not None
    assert same.layers == ((0, 0),)
    other = small(AtMost((2, 3), 1), AtMost((2, 3), 1, (1, 1)))
    assert "cap different sets" in str(enumeration_reason(other))
    # A cap that cannot bind is not counted, one inside a component is a mask.
    assert decompose(small(AtMost((2, 3), 2))).n_layers == 1  # type: ignore[union-attr]
    inside = decompose(small(AtMost((2,), 0)))
    assert inside is not None
    assert inside.n_layers == 1
    assert inside.components[0].allowed.tolist() == [[True, False]] * 2
    assert enumeration_reason(problem("circle:3").structure) is None


def test_layers_count_only_what_has_to_be_counted() -> None:
    def layers(name: str) -> int:
        parts = decompose(problem(name).structure)
        assert parts is not None
        return parts.n_layers

    assert layers("maintenance:6,levels=2,setup=0") == 1
    assert layers("maintenance:6,levels=2") == 2  # is anything done
    assert layers("maintenance:6,levels=2,crew=2,setup=0") == 3
    assert layers("maintenance:6,levels=2,crew=2") == 3  # the number says whether
    assert layers("maintenance:6,levels=2,crew=6") == 2


def test_memory_is_predicted_and_refused() -> None:
    model = problem("maintenance:7,levels=4,crew=2")
    needed = backup_for(model).predicted_bytes
    for limit in (1000, needed // 2):
        with pytest.raises(TooLarge, match="128 joint actions needs"):
            backup_for(model, memory_limit=limit)
    backup_for(model, memory_limit=4 * needed)


def test_preparing_is_cut_off_at_a_deadline() -> None:
    with pytest.raises(TimeUp):
        backup_for(problem("maintenance:4"), deadline=Deadline.after(0.0))
