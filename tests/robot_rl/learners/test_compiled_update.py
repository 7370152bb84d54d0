"""The compiled update beside the learner's own, over every option that it covers."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core import native
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.transition import Batch
from robot_rl.learners.compiled import library
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.optimization import Precision, ScheduleConfig
from robot_rl.learners.sac import SAC, ActorStepsConfig, EntropyAt, SACConfig, TargetConfig
from robot_rl.learners.td3 import TD3, TD3Config
from robot_rl.learners.values import RewardScaling, TargetRule, ValueConfig
from tests.equality import assert_same, tensors
from tests.fakes import copied

OBS, PRIVILEGED, ACTIONS, ROWS = 11, 17, 3, 64
BUILT_IN = native.cache_folder()


def spec(privileged: bool = False) -> EnvSpec:
    groups = {"actor": GroupSpec(shape=(OBS,))}
    if privileged:
        groups["critic"] = GroupSpec(shape=(PRIVILEGED,))
    return EnvSpec(
        num_envs=4, device=torch.device("cpu"), groups=groups, action_size=ACTIONS, control_dt=0.02
    )


def batches(count: int, spec: EnvSpec, rows: int = ROWS) -> list[Batch]:
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def obs() -> dict[str, Tensor]:
        return {name: 3 * draw(rows, *group.shape) + 1 for name, group in spec.groups.items()}

    return [
        Batch(
            obs=obs(), next_obs=obs(), action=draw(rows, ACTIONS).tanh(), reward=draw(rows),
            discount=0.97 * (draw(rows) > -1).float(), weight=draw(rows).abs(),
        )
        for _ in range(count)
    ]  # fmt: skip


def learn(kind: Any, config: Any, spec: EnvSpec, data: list[Batch], *, compile: bool) -> Any:
    learner = kind(replace(config, compile=compile), spec, seed=1)
    learner.observe_stored(data[0].obs)
    for batch in data:
        learner.metrics, learner.error = learner.update(batch)
    assert (learner.compiled_step is not None) is compile
    return learner


def assert_equal(compiled: Any, eager: Any) -> None:
    """Weights, targets, optimisers, temperature, metrics, errors; random numbers to the bit."""
    asked = 3e-6 if compiled.config.critic.activation is Activation.tanh else 1e-6
    ours, theirs = tensors(compiled.state_dict()), tensors(eager.state_dict())
    assert ours.keys() == theirs.keys()
    assert torch.equal(compiled.generator.get_state(), eager.generator.get_state())
    for name, other in theirs.items():
        gap = (ours[name].double() - other).norm() / other.double().norm().clamp_min(1e-6)
        trained = name.startswith(("/actor/", "/critic/", "/target"))
        # Measured: weights 1.1e-6 with tanh, 4e-7 with SiLU, 2e-7 else; Adam's means 2e-6.
        assert gap <= (asked if trained else 1e-5), f"{name}: {gap:.1e} of its size apart"
    assert compiled.metrics.keys() == eager.metrics.keys()
    for name, value in eager.metrics.items():
        torch.testing.assert_close(compiled.metrics[name], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled.error, eager.error, rtol=1e-3, atol=1e-4)


def small(**more: Any) -> dict[str, Any]:
    return {
        "actor": GaussianActorConfig(hidden=[32, 16]), "critic": QEnsembleConfig(hidden=[32, 32]),
        "batch_size": ROWS, **more,
    }  # fmt: skip


def sac(**more: Any) -> SACConfig:
    return SACConfig(**small(**more))


CATEGORICAL = ValueConfig(atoms=21, low=-5, high=5)
SAC_CASES = {
    "paper": sac(),
    "actor_interval": sac(actor_interval=2),
    "one critic": sac(critic=QEnsembleConfig(hidden=[32], members=1)),
    "rlpd": sac(
        critic=QEnsembleConfig(hidden=[32, 32], members=5, layer_norm=True), actor_interval=4,
        target=TargetConfig(members=2, entropy=False), actor_value=ActorObjective.mean,
    ),
    "serl": sac(
        critic=QEnsembleConfig(
            hidden=[32, 32], members=4, layer_norm=True, activation=Activation.tanh
        ),
        actor=GaussianActorConfig(hidden=[32], layer_norm=True, activation=Activation.tanh),
        target=TargetConfig(members=2, replacement=True), actor_interval=3,
        actor_steps=ActorStepsConfig(on_all=True, entropy_at=EntropyAt.next_obs),
        temperature_loss=TemperatureLoss.softplus,
    ),
    "fastsac": sac(
        critic=QEnsembleConfig(hidden=[32, 32], layer_norm=True, activation=Activation.silu),
        actor=GaussianActorConfig(
            hidden=[32, 32], layer_norm=True, activation=Activation.silu,
            log_std_bound=LogStdBound.tanh,
        ),
        values=CATEGORICAL, target=TargetConfig(rule=TargetRule.mean), weight_decay=1e-2,
        actor_value=ActorObjective.mean, actor_steps=ActorStepsConfig(
            temperature_every_update=True, entropy_at=EntropyAt.next_obs
        ),
        adam_betas=[0.9, 0.95], actor_interval=2,
    ),
    "categorical minimum": sac(values=CATEGORICAL),
    "own targets": sac(target=TargetConfig(rule=TargetRule.own), actor_value=ActorObjective.first),
    "own categorical targets": sac(
        values=CATEGORICAL, target=TargetConfig(rule=TargetRule.own)
    ),
    "elu": sac(
        critic=QEnsembleConfig(hidden=[32, 32], activation=Activation.elu),
        actor=GaussianActorConfig(hidden=[32, 32, 16], activation=Activation.elu),
        temperature_loss=TemperatureLoss.log_alpha,
    ),
    "gelu": sac(
        critic=QEnsembleConfig(hidden=[32, 32], activation=Activation.gelu),
        actor=GaussianActorConfig(hidden=[32], activation=Activation.gelu, normalize=False),
        temperature_loss=TemperatureLoss.fixed, init_temperature=0.1,
    ),
    "silu without norm": sac(
        critic=QEnsembleConfig(hidden=[32, 32], activation=Activation.silu, normalize=False)
    ),
    "clipped and scheduled": sac(
        max_grad_norm=0.5, weight_decay=1e-3,
        lr_schedule=ScheduleConfig(warmup=10, decay=40, end=0.1),
    ),
    "critics alone at first": sac(
        actor_steps=ActorStepsConfig(critic_updates=5), reward_scale=RewardScaling.running
    ),
    "more drawn than members": sac(
        target=TargetConfig(members=6, replacement=True), values=CATEGORICAL
    ),
    "a hidden layer of one": sac(
        critic=QEnsembleConfig(hidden=[1, 32, 1]), actor=GaussianActorConfig(hidden=[32, 1])
    ),
}  # fmt: skip


def td3(**more: Any) -> TD3Config:
    shape = {"actor": DeterministicActorConfig(hidden=[32, 16])}
    return TD3Config(**small(**shape | more))


TD3_CASES = {
    "paper": td3(),
    "fasttd3": td3(
        critic=QEnsembleConfig(hidden=[32, 32], layer_norm=True), values=CATEGORICAL,
        target_actor=False, delay_targets=False, actor_value=ActorObjective.min,
        weight_decay=1e-2,
    ),
    "targets move in every update": td3(delay_targets=False, actor_interval=3),
    "silu, mean of targets": td3(
        critic=QEnsembleConfig(hidden=[32, 32], activation=Activation.silu),
        actor=DeterministicActorConfig(hidden=[32], activation=Activation.silu),
        target_rule=TargetRule.mean, actor_value=ActorObjective.mean, max_grad_norm=0.5,
    ),
    "elu, own targets": td3(
        critic=QEnsembleConfig(hidden=[32, 32], activation=Activation.elu),
        actor=DeterministicActorConfig(hidden=[32], activation=Activation.elu, layer_norm=True),
        target_rule=TargetRule.own, lr_schedule=ScheduleConfig(warmup=10, decay=40, end=0.1),
    ),
}  # fmt: skip


def both(kind: Any, config: Any, spec: EnvSpec, data: list[Batch]) -> tuple[Any, Any]:
    """Learners after all batches: compiled, and computed by PyTorch operations."""
    return (
        learn(kind, config, spec, data, compile=True),
        learn(kind, config, spec, data, compile=False),
    )


class TestEqualsTheLearnersOwnUpdate:
    @pytest.mark.parametrize("config", SAC_CASES.values(), ids=SAC_CASES)
    def test_sac(self, config: SACConfig):
        assert_equal(*both(SAC, config, spec(), batches(50, spec())))

    @pytest.mark.parametrize("config", TD3_CASES.values(), ids=TD3_CASES)
    def test_td3(self, config: TD3Config):
        assert_equal(*both(TD3, config, spec(), batches(50, spec())))

    def test_other_observations_of_the_critics(self):
        world = spec(privileged=True)
        assert_equal(*both(SAC, sac(), world, batches(50, world)))

    def test_batches_larger_than_a_block_of_rows(self):
        config = sac(batch_size=1300, max_grad_norm=1.0)
        assert_equal(*both(SAC, config, spec(), batches(10, spec(), rows=1300)))


def test_a_run_continues_without_the_compiled_library():
    data = batches(20, spec())
    learner = learn(SAC, sac(), spec(), data[:10], compile=True)
    other: Any = SAC(sac(compile=False), spec(), seed=2)
    other.load_state_dict(copied(learner.state_dict()))
    for batch in data[10:]:
        for one in (learner, other):
            one.metrics, one.error = one.update(batch)
    assert_equal(learner, other)


@pytest.mark.parametrize("field", ["reward", "action", "obs"])
def test_what_is_not_a_number_stays_visible(field: str):
    learner = SAC(sac(), spec(), seed=1)
    batch = batches(1, spec())[0]
    bad = batch.obs["actor"] if field == "obs" else getattr(batch, field)
    bad[3] = torch.nan
    metrics, error = learner.update(batch)
    assert metrics["critic_loss"].isnan()
    assert error[3].isnan()
    assert not error[:3].isnan().any()


def test_learners_in_two_threads_do_not_disturb_each_other():
    data = batches(30, spec())
    alone, *together = [learn(SAC, sac(), spec(), data[:1], compile=True) for _ in range(3)]

    def continue_(learner: SAC) -> None:
        for batch in data:
            learner.update(batch)

    continue_(alone)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(continue_, together))
    for one in together:
        assert_same(one.state_dict(), alone.state_dict())


def assert_threads_change_nothing(kind: Any, config: Any) -> None:
    """Compare learners with one and three threads, which share critics wide enough for that."""
    wide = replace(config, critic=replace(config.critic, hidden=[160, 160]))
    data, before = batches(3, spec(), rows=512), torch.get_num_threads()
    functions, learners = library.load().functions, []
    for precision in Precision:  # own products: with a BLAS it has its own threads
        if precision is Precision.fp32 or functions.has_bf16():
            own = library.find_products(precision)["own"]
            library.use_products(functions, precision, own)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            learners.append(learn(kind, wide, spec(), data, compile=True))
    finally:
        torch.set_num_threads(before)
        library.load.cache_clear()
        library.load()  # with the products that were chosen
    one, several = learners
    assert_same(several.state_dict(), one.state_dict())
    assert_same(several.metrics, one.metrics)
    assert torch.equal(several.error, one.error)


@pytest.mark.slow  # a process of its own: only one thread of a process survives a fork
def test_a_forked_process_has_threads_of_its_own():
    code = """
import os, sys, torch
from tests.robot_rl.learners.test_compiled_update import batches, learn, sac, spec, library
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.learners.optimization import Precision
from robot_rl.learners.sac import SAC
functions = library.load().functions
library.use_products(functions, Precision.fp32, library.find_products(Precision.fp32)["own"])
torch.set_num_threads(3)
data = batches(3, spec(), rows=512)
learner = learn(
    SAC, sac(critic=QEnsembleConfig(hidden=[160, 160], members=4)), spec(), data, compile=True
)
child = os.fork()
if child == 0:
    learner.update(data[0])
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 7


class OwnTarget(SAC):
    def _target_outputs(self, obs: Any, action: Tensor) -> Tensor:
        return super()._target_outputs(obs, action) + 1


def test_a_learner_with_a_method_of_its_own_is_not_compiled():
    learner = OwnTarget(sac(), spec(), seed=1)
    assert learner.compiled_step is None
    assert "OwnTarget._target_outputs is not that of SAC" in learner.update_method


@pytest.mark.parametrize("config", SAC_CASES.values(), ids=SAC_CASES)
def test_threads_that_share_the_critics_change_nothing(config: SACConfig):
    assert_threads_change_nothing(SAC, config)


@pytest.mark.usefixtures("nothing_compiled")
class TestWithoutTheLibrary:
    def said(self, config: SACConfig | None = None) -> str:
        learner = SAC(config or sac(), spec(), seed=1)
        assert learner.compiled_step is None
        learner.update(batches(1, spec())[0])
        return learner.update_method

    def test_a_missing_compiler_is_named(self, monkeypatch):
        monkeypatch.setenv("CXX", "no-such-compiler")
        assert "no-such-compiler" in self.said()

    def test_no_compiler_at_all(self, monkeypatch, tmp_path):
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "no C++ compiler was found (g++, clang++ or c++)" in self.said()

    def test_a_compiler_that_fails(self, monkeypatch, tmp_path):
        script = tmp_path / "broken"
        script.write_text(
            "#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'error: no AVX' >&2; exit 1\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        assert "broken failed: error: no AVX" in self.said()

    def test_a_cache_that_cannot_be_written(self, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(native.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
        assert "could not be written or loaded" in self.said()

    @pytest.fixture
    def built(self) -> Path:
        """The library that other tests load, in the folder of this test."""
        path = native.library_path(library.SOURCE)
        path.parent.mkdir(parents=True)
        shutil.copy(BUILT_IN / path.name, path)
        return path

    def test_a_built_library_needs_no_compiler(self, built, monkeypatch):
        monkeypatch.setenv("CXX", "no-such-compiler")
        assert library.load().compiler == "the cache, without a compiler"

    def test_products_are_chosen_once_for_all_processes(self, built, monkeypatch):
        chosen = library.load().products
        (record,) = native.cache_folder().glob("update-*.fp32-*.json")
        assert json.loads(record.read_text())["blas"] == chosen
        record.write_text("{")  # damaged
        library.load.cache_clear()
        monkeypatch.setattr(library, "_chosen", {})
        assert library.load().products == json.loads(record.read_text())["blas"]

    def test_a_choice_that_cannot_be_written_holds_for_the_process(self, built, monkeypatch):
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("read-only")

        monkeypatch.setattr(library.Path, "write_text", refuse)
        assert library.load().products
        assert not list(native.cache_folder().glob("*.json"))

    def test_cxx_may_have_words(self, monkeypatch, tmp_path):
        script = tmp_path / "wrapper"
        script.write_text("#!/bin/sh\n[ $2 = --version ] && exit 0\necho error: $1 >&2; exit 1\n")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", f"{script} -pthread")
        assert "wrapper -pthread failed: error: -pthread" in self.said()

    def test_what_is_not_covered_is_named(self, built):
        config = sac(critic=QEnsembleConfig(kind=NetworkKind.simba, width=16))
        assert "critic is no plain perceptron" in self.said(config)
        config = sac(actor=GaussianActorConfig(kind=NetworkKind.moe, hidden=[16]))
        assert "actor is no plain perceptron" in self.said(config)
