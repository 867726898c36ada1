"""Exact plans over MPI ranks: the same bits on 1, 2 and 4 ranks, and the plans of planner exact."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp._base.divided import DividedArray, write_part
from fmdp.elimination.layout import choose_layout, volume
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.planning.distributed.cut import choose_cut
from fmdp.planning.distributed.exchange import permute
from fmdp.planning.exact.planner import Exact
from fmdp.planning.policies.files import load_policy
from fmdp.problems import problem

PROGRAM = Path(__file__).with_name("mpi_program.py")
CASES = (
    ("circle:6", "average"),
    ("circle:6", "discounted"),
    ("circle:6", "finite"),  # six stages, fewer different tables
    ("bi-ring:7,dynamics=guestrin", "average"),  # later variables are known at the cut
    ("machines:3", "discounted"),  # three values, several action variables
    ("maintenance:4,levels=3,crew=1", "average"),  # forbidden actions, and effects
    ("maintenance:4,levels=3,crew=1", "finite"),
    ("riverswim:3", "average"),
    ("random:7", "discounted"),
    ("coffee", "average"),  # damped; the bias is not unique
)


def mpiexec() -> str:
    """Return the mpiexec of the environment of the tests, or skip."""
    pytest.importorskip("mpi4py", reason="the extra mpi is not installed")
    found = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec")
    return found


def run(
    ranks: int, *command: object, check: bool = True, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    words = [mpiexec(), "-n", str(ranks), sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=check, cwd=cwd)


def test_plans_over_1_2_and_4_ranks(tmp_path):
    """One test, since every worker of a test run would start the jobs of a fixture again."""
    jobs = {}
    for ranks in (1, 2, 4):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        done = run(ranks, PROGRAM, folder, *(" ".join(case) for case in CASES))
        jobs[ranks] = folder, json.loads(done.stdout)
    the_plans_do_not_depend_on_the_number_of_ranks(jobs)
    plans_that_are_stopped_and_resumed_have_the_same_bits(jobs)
    bytes_are_sent_as_predicted(jobs)
    the_plans_are_those_of_the_exact_planner(jobs)
    policies_in_parts_answer_by_state(jobs)
    policies_in_parts_are_refused_if_a_part_is_missing(jobs)


def the_plans_do_not_depend_on_the_number_of_ranks(jobs):
    plans = [{name: case["plan"] for name, case in results.items()} for _, results in jobs.values()]
    assert plans[0] == plans[1] == plans[2]


def plans_that_are_stopped_and_resumed_have_the_same_bits(jobs):
    for _, results in jobs.values():
        for case in results.values():
            assert case["stopped"] == "iteration_limit"
            assert case["resumed"] == case["plan"]
            assert case["same policy"]
            assert not case["checkpoint left"]


def bytes_are_sent_as_predicted(jobs):
    for ranks, (_, results) in jobs.items():
        for case in results.values():
            assert case["sent"] == case["predicted"]
            assert (case["sent"] > 0) == (ranks > 1)


def the_plans_are_those_of_the_exact_planner(jobs):
    folder, results = jobs[2]
    for name, criterion in CASES:
        case = results[f"{name} {criterion}"]["plan"]
        horizon = 6 if criterion == "finite" else None
        model = problem(name)
        plan = Exact(criterion=criterion, horizon=horizon).plan(model)
        tolerance = 2e-6 * model.structure.reward_unit
        assert case["status"] == plan.status.value == "converged"
        for key in ("gain", "gain_lower", "gain_upper", "objective"):
            theirs = getattr(plan, key)
            assert (case[key] is None) == (theirs is None)
            if theirs is not None:
                assert float.fromhex(case[key]) == pytest.approx(theirs, abs=tolerance)
        policy = load_policy(folder / f"{name} {criterion}.npz", model.structure)
        if criterion == "average":  # ties are broken at another h
            assert fmdp.evaluate(model, policy).gain == pytest.approx(plan.gain, abs=tolerance)
        elif model.structure.effects is None:  # these are planned by components, with other ties
            assert policy == plan.policy


def policies_in_parts_answer_by_state(jobs):
    folder, _ = jobs[4]
    model = problem("circle:6")
    policy = load_policy(folder / "circle:6 average.npz", model.structure)
    table = fmdp.planning.policies.policy.TablePolicy.trusted(model.structure, policy.actions)
    for state in np.ndindex(*model.structure.state_sizes):
        assert policy(state) == table(state)


def policies_in_parts_are_refused_if_a_part_is_missing(jobs):
    folder, _ = jobs[4]
    next(folder.glob("circle:6 average.npz.parts-*/*.npy")).unlink()
    file = folder / "circle:6 average.npz"
    with pytest.raises(FileProblem, match="circle:6 average"):
        load_policy(file)
    shutil.rmtree(next(folder.glob("circle:6 average.npz.parts-*")))
    with pytest.raises(FileProblem, match="is missing; it must lie beside the file"):
        load_policy(file)


def test_the_command_line_speaks_once(tmp_path):
    out, command = tmp_path / "policy.npz", ("-m", "fmdp", "plan", "circle:6", "--engine", "mpi")
    done = run(2, *command, "--json", "--out", out)
    result = json.loads(done.stdout)
    assert result["status"] == "converged"
    assert result["mpi"]["ranks"] == 2
    assert load_policy(out).state_sizes == (2,) * 6
    (folder,) = tmp_path.glob("policy.npz.parts-*")
    load_policy(out).save(out)  # a whole table: the parts are of no use any more
    assert not folder.exists()
    assert load_policy(out).actions.shape == (2**6,)
    for wrong in (
        ("--planner", "alp"),
        ("--limit", "x<=1"),
        ("--memory-limit", "1000"),
    ):
        refused = run(2, *command, *wrong, check=False)
        assert refused.returncode == 2
        assert refused.stdout == ""
        assert len(refused.stderr.splitlines()) == 1
        assert refused.stderr.startswith("fmdp: ")


def test_a_time_limit_before_the_first_sweep_is_a_status():
    command = ("-m", "fmdp", "plan", "circle:6", "--engine", "mpi", "--max-seconds", "1e-9")
    done = run(2, *command, "--json", check=False)
    assert json.loads(done.stdout)["status"] == "time_limit"
    assert "Traceback" not in done.stderr


def test_checkpoints_delete_nothing_else_and_are_refused_if_damaged(tmp_path):
    kept = tmp_path / "results" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    command = ("-m", "fmdp", "plan", "circle:6", "--engine", "mpi", "--json")
    saving = ("--checkpoint", tmp_path, "--checkpoint-every", "0")
    run(2, *command, *saving, "--max-iterations", "3", check=False)
    file = tmp_path / "checkpoint.json"
    whole = file.read_text()
    damaged = json.loads(whole)
    damaged["content"]["sweeps"] += 1
    for text in (json.dumps(damaged), json.dumps(damaged | {"content": None}), "{"):
        file.write_text(text)
        refused = run(2, *command, *saving, "--resume", check=False)
        assert refused.returncode == 2
        assert "is damaged" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    file.write_text(whole)
    assert json.loads(run(2, *command, *saving, "--resume").stdout)["mpi"]["resumed"]
    assert kept.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [kept.parent]
    refused = run(2, *command, "--checkpoint", kept, check=False)
    assert refused.returncode == 2
    assert "cannot be a checkpoint folder" in refused.stderr
    assert kept.read_text() == "mine"


def test_resume_alone_uses_a_folder_named_after_the_plan(tmp_path):
    """A plan with a limit, then one without: the second continues."""
    command = ("-m", "fmdp", "plan", "circle:6", "--engine", "mpi", "--json", "--resume")
    saving = (*command, "--checkpoint-every", "600")  # the one at the end is always written
    stopped = run(2, *saving, "--max-iterations", "3", check=False, cwd=tmp_path)
    (folder,) = tmp_path.glob("fmdp-checkpoint-*")
    resumed = json.loads(run(1, *saving, cwd=tmp_path).stdout)
    assert not json.loads(stopped.stdout)["mpi"]["resumed"]
    assert resumed["mpi"]["resumed"]
    assert resumed["status"] == "converged"
    assert not folder.exists()


def test_too_many_ranks_are_refused():
    layout = choose_layout(problem("circle:4").structure)
    with pytest.raises(InvalidParameter, match="at most 4 MPI ranks; got 5"):
        choose_cut(layout, 5)
    with pytest.raises(InvalidParameter, match="at least 2 state variables"):
        choose_cut(choose_layout(problem("jao:1").structure), 1)


@pytest.mark.parametrize("name", [*dict(CASES), "circle:12", "grid:9", "star:8"])
@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_a_cut_divides_next_and_current_variables(name, ranks):
    structure = problem(name).structure
    cut = choose_cut(choose_layout(structure), ranks)
    layout, sizes = cut.layout, structure.state_sizes
    assert cut.n_cells == volume(cut.spread, sizes) >= ranks
    assert cut.n_known == volume(cut.known, sizes) >= ranks
    assert set(cut.spread) <= set(cut.later)
    assert not set(cut.spread) & set(cut.known)
    assert sorted((*cut.known, *cut.others)) == list(range(structure.m))
    assert sorted((*cut.spread, *cut.cell_order)) == list(range(structure.m))
    for group in layout.groups[: cut.first]:  # depend on nothing that is not known
        assert set(group.context) <= set(cut.known)
        assert (group.outer, group.rep, group.n_u) == (1, 1, 1)


def test_permute_is_a_transpose():
    sizes = (2, 3, 4, 5)
    source = np.arange(120.0)
    out = np.empty(120)
    permute(source, (3, 0, 1, 2), (1, 3, 0, 2), {}, sizes, out)
    assert (out.reshape(3, 5, 2, 4) == source.reshape(5, 2, 3, 4).transpose(2, 0, 1, 3)).all()


def test_divided_arrays_are_read_in_any_range(tmp_path):
    whole = np.arange(24.0).reshape(2, 12)
    checksums = {}
    for first, end in ((0, 5), (5, 6), (6, 12)):
        checksums |= write_part(tmp_path, "x", whole[:, first:end], first)
    array = DividedArray(tmp_path, "x", 12, "f", checksums)
    assert (array.read(4, 7) == whole[:, 4:7]).all()
    assert (array.entry(5) == whole[:, 5]).all()
    for count, kind in ((13, "f"), (12, "u")):
        with pytest.raises(FileProblem):
            DividedArray(tmp_path, "x", count, kind)
    part = tmp_path / f"x-{5:016d}.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")  # an entry of another value
    assert DividedArray(tmp_path, "x", 12, "f").entry(5)[1] != whole[1, 5]
    with pytest.raises(FileProblem, match="is damaged"):
        DividedArray(tmp_path, "x", 12, "f", checksums)
    part.write_bytes(b"no array")
    with pytest.raises(FileProblem, match="is no part of an array"):
        DividedArray(tmp_path, "x", 12, "f")


def test_models_with_derived_variables_are_expanded(tmp_path):
    machines = [f"machine_{i}" for i in range(5)]

    def transition(name, values):
        if values["repair"] == name:
            return "up"
        failure = 0.05 + 0.05 * values["down"] if values[name] == "up" else 1.0
        return {"down": failure, "up": 1 - failure}

    model = fmdp.FactoredMDP.from_functions(
        states={name: ["up", "down"] for name in machines},
        actions={"repair": ["nothing", *machines]},
        derived={"down": fmdp.Count(machines[:2], "down")},
        parents={name: [name, "repair", "down"] for name in machines},
        transition=transition,
        reward={"output": (["down"], lambda v: 2 - v["down"])},
    )
    fmdp.save(model, tmp_path / "model.json")
    done = run(2, "-m", "fmdp", "plan", tmp_path / "model.json", "--engine", "mpi", "--json")
    assert json.loads(done.stdout)["gain"] == pytest.approx(Exact().plan(model).gain, abs=1e-5)


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_the_plan_can_be_resumed(tmp_path):
    command = ("-m", "fmdp", "plan", "circle:18", "--engine", "mpi", "--json")
    whole = json.loads(run(2, *command).stdout)
    folder = tmp_path / "checkpoint"
    saving = ("--checkpoint", str(folder), "--checkpoint-every", "0")
    words = [mpiexec(), "-n", "2", sys.executable, *command, *saving]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        file = folder / "checkpoint.json"
        while not file.exists() or json.loads(file.read_text())["content"]["sweeps"] < 4:
            assert job.poll() is None
        children = subprocess.run(
            ["pgrep", "-f", f"plan circle:18 .*{folder}"], capture_output=True, text=True
        )
        subprocess.run(["kill", "-9", children.stdout.split()[-1]], check=True)
        assert job.wait(60) != 0
    resumed = json.loads(run(3, *command, *saving, "--resume").stdout)
    assert resumed["mpi"]["resumed"]
    keys = ("gain", "gain_lower", "gain_upper", "span", "factored_spans", "iterations")
    assert [resumed[key] for key in keys] == [whole[key] for key in keys]
    assert not folder.exists()
