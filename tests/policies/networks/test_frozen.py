"""A residual with its base: played, wrapped and deployed it does the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from policies.bundle import load_bundle
from policies.export import export_bundle
from policies.networks.frozen import CorrectedGraph, CorrectedPolicy, base_folder
from policies.networks.residual import ResidualActor, ResidualActorConfig
from robot_rl.cli.api import Policy
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import BundleError, ConfigError, SpecMismatchError
from robot_rl.training.evaluation import evaluate
from tests.bases import frozen, write_base
from tests.fakes import LinearWorld, ToyEnv
from tests.policies.conftest import OBS_SIZE, export_arguments, same_actions

pytestmark = pytest.mark.slow

WORLDS = 4


def spec(obs_size: int, action_size: int) -> EnvSpec:
    return EnvSpec(
        num_envs=WORLDS, device=torch.device("cpu"), action_size=action_size, control_dt=0.01,
        groups={"actor": GroupSpec(shape=(obs_size,))},
    )  # fmt: skip


def trained(obs_size: int, action_size: int) -> ResidualActor:
    torch.manual_seed(0)
    actor = ResidualActor(ResidualActorConfig(hidden=[16], scale=0.5), obs_size, action_size)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.normal_(std=0.5)
    return actor


def test_evaluation_without_a_wrapper_acts_as_training_did_within_one(tmp_path):
    """Published: evaluation applied another residual than training, and began below its base."""

    def worlds() -> ToyEnv:
        return ToyEnv(LinearWorld(bound=0.6), WORLDS, limit=5)

    toy = worlds()
    sizes = toy.spec.groups["actor"].shape[0], toy.spec.action_size
    path = write_base(tmp_path / "base.onnx", *sizes)
    actor = trained(*sizes)
    wrapped = BaseActionEnv(worlds(), frozen([path], toy.spec, WORLDS))
    alone = CorrectedPolicy(actor, frozen([path], toy.spec, 1))  # finds out how many there are
    for seed in (1, 2):
        one, two = evaluate(wrapped, actor, seed=seed), evaluate(worlds(), alone, seed=seed)
        assert torch.equal(one.returns, two.returns)
        assert torch.equal(one.seconds, two.seconds)


@torch.no_grad()
def test_a_residual_begins_anew_in_all_envs_where_no_mask_says_in_which(tmp_path):
    """`Policy.begin()` did nothing in more than one env: the base went on with its old plans."""
    path = write_base(tmp_path / "base.onnx", OBS_SIZE, 4, length=3)
    base, actor = frozen([path], spec(OBS_SIZE, 4), WORLDS), trained(OBS_SIZE, 4)
    module, fresh = CorrectedPolicy(actor, base), CorrectedPolicy(actor, base.of(WORLDS))
    policy = Policy(module, module)
    one, two = ({"actor": torch.randn(WORLDS, OBS_SIZE)} for _ in range(2))
    policy(one)
    policy.begin()
    assert torch.equal(policy(two), fresh(two))


def test_a_bundle_holds_its_bases_and_their_plans(tmp_path):
    paths = [
        write_base(tmp_path / "new.onnx", OBS_SIZE, 4, length=3, seed=0),
        write_base(tmp_path / "old.onnx", OBS_SIZE, 4, length=1, seed=1, operations=17),
    ]
    same = write_base(tmp_path / "same.onnx", OBS_SIZE, 4, length=1, seed=1)
    obs = {"actor": torch.randn(WORLDS, OBS_SIZE)}
    old, new = (frozen([one], spec(OBS_SIZE, 4), WORLDS).next(obs) for one in (paths[1], same))
    assert torch.equal(old, new), "a base of other operations acts as it did"
    base = frozen(paths, spec(OBS_SIZE, 4), WORLDS, weights=[2.0, 1.0])
    actor = trained(OBS_SIZE, 4)
    graph = CorrectedGraph(actor, base.policies, base.action_size)
    folder = export_bundle(tmp_path / "bundle", **export_arguments(
        policy=graph, initial_state=graph.initial_state,
        inner=[one.onnx for one in base.policies],
    ))  # fmt: skip
    for path in paths:
        path.unlink()
    runner, policy = load_bundle(folder, num_robots=WORLDS), CorrectedPolicy(actor, base)
    masks = ([t == 0, t in (0, 4), t in (0, 5, 6), t == 0] for t in range(11))
    assert len(list(same_actions(runner, policy, masks))) == 11


def test_a_base_may_be_named_by_its_run_or_by_a_folder_of_runs(tmp_path):
    for name in ("2026-01-01_a", "2026-01-02_b"):
        (tmp_path / "runs" / name / "bundle").mkdir(parents=True)
        (tmp_path / "runs" / name / "bundle" / "spec.json").touch()
    newest = tmp_path / "runs" / "2026-01-02_b" / "bundle"
    for named in (newest, newest.parent, tmp_path / "runs"):
        assert base_folder(str(named)) == newest
    first = tmp_path / "runs" / "2026-01-01_a"
    assert base_folder(str(first)) == first / "bundle"
    assert base_folder(str(tmp_path)) == tmp_path, "nothing is in it"


def test_what_cannot_be_a_base_is_refused(tmp_path):
    path, worlds = write_base(tmp_path / "base.onnx", 5, 3), spec(4, 3)
    with pytest.raises(SpecMismatchError, match=r"expected actor \(N, 4\) -> action \(N, 3\)"):
        frozen([path], worlds, 1)
    with pytest.raises(ConfigError, match="there is no 'nowhere'"):
        frozen([Path("nowhere")], worlds, 1)
    with pytest.raises(ConfigError, match="must all be above 0"):
        frozen([path], worlds, 1, weights=[-1.0])
    (tmp_path / "text.onnx").write_text("no network")
    with pytest.raises(BundleError, match="is no ONNX network"):
        frozen([tmp_path / "text.onnx"], worlds, 1)
    alone = write_base(tmp_path / "alone.onnx", 4, 3, worlds=1)
    with pytest.raises(SpecMismatchError, match="for any number N of worlds"):
        frozen([alone], worlds, 1)
    with pytest.raises(BundleError, match=r"nan.*expected an action for each, in finite numbers"):
        frozen([write_base(tmp_path / "nan.onnx", 4, 3, all_weights=np.nan)], worlds, 1)
