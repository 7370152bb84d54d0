"""The learner contract over every learner: a new one, or a new setting, is one more case."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from policies.networks.experts import ExpertsConfig
from policies.networks.gaussian_actor import LogStdBound
from policies.networks.images import ImageConfig, ImageEncoderKind
from policies.networks.mlp import Activation
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.learners.dsac_t import DSACTLoss
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.optimization import Precision, ScheduleConfig
from robot_rl.learners.perturbation import PerturbationConfig
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.sac import SAC, ActorStepsConfig, EntropyAt, TargetConfig
from robot_rl.learners.td3 import NoiseScheduleConfig
from robot_rl.learners.values import RewardScaling, TargetRule, ValueConfig
from tests.bases import based
from tests.contracts.learner import WORLDS, LearnerCase, LearnerContract
from tests.contracts.learners_with_history import WITH_HISTORY
from tests.equality import assert_same
from tests.fakes import (
    EXPERTS,
    LinearWorld,
    ToyEnv,
    small_dsac_t,
    small_flash_sac,
    small_mentor,
    small_sac,
    small_td3,
)
from tests.robot_rl.learners.small_hil import small_expo, small_hil_serl, small_silri
from tests.robot_rl.learners.small_offline import small_cql, small_h2o, small_iql, small_qc
from tests.robot_rl.learners.test_discrete_sac import small_discrete_sac


def settable(make: Callable[..., Any]) -> Callable[..., Callable[[EnvSpec, int], Any]]:
    return lambda **settings: lambda spec, seed: make(spec, seed, **settings)


def of_kind(kind: NetworkKind) -> dict[str, Any]:
    return {"kind": kind, "width": 16, "blocks": 1}


sac, dsac_t, flash_sac, td3 = map(settable, (small_sac, small_dsac_t, small_flash_sac, small_td3))
mentor = settable(small_mentor)
cql, h2o, iql, qc = map(settable, (small_cql, small_h2o, small_iql, small_qc))
expo, hil_serl, silri = map(settable, (small_expo, small_hil_serl, small_silri))
discrete_sac = settable(small_discrete_sac)
DENSE = ExpertsConfig(count=4, width=8, gate_width=8, sparse=False, gate_dropout=0.2)
LAYER_NORM = {"layer_norm": True}
PLAIN = {"normalize": False}
TANH = {**LAYER_NORM, "activation": Activation.tanh}
GELU = {"activation": Activation.gelu, "hidden": [16, 16]}
WIDE = {"hidden": [256, 256]}
SILU = {**LAYER_NORM, "activation": Activation.silu}
REDQ: dict[str, Any] = {
    "target": TargetConfig(members=2), "actor_interval": 2, "critic": {"members": 6}
}  # fmt: skip
CASES = (
    LearnerCase("sac", sac()),
    LearnerCase("sac without a group for the critic", sac(), privileged=False),
    LearnerCase("sac with layer norm", sac(actor=LAYER_NORM, critic=LAYER_NORM)),
    LearnerCase(
        "sac with flash", sac(actor=of_kind(NetworkKind.flash), critic=of_kind(NetworkKind.flash))
    ),
    LearnerCase(
        "sac without entropy in the target", sac(target=TargetConfig(entropy=False), n_step=3)
    ),
    LearnerCase("sac with a late actor", sac(actor_interval=2, max_grad_norm=0.5)),
    LearnerCase(
        "sac with simba", sac(actor=of_kind(NetworkKind.simba), critic=of_kind(NetworkKind.simba))
    ),
    LearnerCase("flash_sac", flash_sac()),
    LearnerCase("flash_sac without a group for the critic", flash_sac(), privileged=False),
    LearnerCase("flash_sac with an actor in every update", flash_sac(actor_interval=1, n_step=3)),
    LearnerCase("sac as redq", sac(**REDQ, temperature_loss=TemperatureLoss.log_alpha)),
    LearnerCase(
        "sac as serl",
        sac(
            target=TargetConfig(members=2, replacement=True, entropy=False), actor_interval=2,
            actor_steps=ActorStepsConfig(on_all=True, entropy_at=EntropyAt.next_obs),
            temperature_loss=TemperatureLoss.softplus, lr_schedule=ScheduleConfig(warmup=3),
            actor=TANH, critic={**TANH, "members": 6},
        ),
    ),
    LearnerCase(
        "sac as fast_sac",
        sac(
            values=ValueConfig(atoms=11, low=-3.0, high=3.0), actor_interval=2,
            target=TargetConfig(rule=TargetRule.own), actor_steps=ActorStepsConfig(
                entropy_at=EntropyAt.next_obs, temperature_every_update=True
            ),
            weight_decay=1e-3, adam_betas=[0.9, 0.95], critic=SILU,
            actor={**SILU, "log_std_bound": LogStdBound.tanh, "zero_head": True},
        ),
    ),
    LearnerCase(  # large enough for the products of policies/networks/mlp.py
        "sac with wide networks", sac(batch_size=64, actor=WIDE, critic=WIDE)
    ),
    LearnerCase("cql", cql()),
    LearnerCase("cql without a group for the critic", cql(), privileged=False),
    LearnerCase("cal_ql", cql(conservatism={"calibrated": True})),
    LearnerCase("h2o", h2o()),
    LearnerCase("iql", iql()),
    LearnerCase("iql without a group for the critic", iql(), privileged=False),
    LearnerCase("iql with a late actor", iql(actor_interval=2, n_step=3, target_members=2)),
    LearnerCase("iql in bf16", iql(precision=Precision.bf16)),
    LearnerCase("discrete_sac", discrete_sac()),
    LearnerCase("dsac_t", dsac_t()),
    LearnerCase(
        "dsac_t by its later code",
        dsac_t(
            loss=DSACTLoss.huber, actor_interval=2, actor=GELU, critic={**GELU, "members": 3},
            temperature_loss=TemperatureLoss.log_alpha,
        ),
    ),
    LearnerCase("dsac_t in bf16", dsac_t(precision=Precision.bf16)),
    LearnerCase("sac in bf16", sac(precision=Precision.bf16)),
    LearnerCase("sac with scaled rewards", sac(reward_scale=RewardScaling.running)),
    LearnerCase(
        "sac with falling steps", sac(lr_schedule=ScheduleConfig(decay=6, end=0.4))
    ),
    LearnerCase("hil_serl", hil_serl()),
    LearnerCase("hil_serl without a gripper", hil_serl(gripper={"commands": []})),
    LearnerCase("silri", silri()),
    LearnerCase("silri without a gripper", silri(gripper={"commands": []}, actor_interval=2)),
    LearnerCase("silri in bf16", silri(precision=Precision.bf16), privileged=False),
    LearnerCase("mentor", mentor(actor={"experts": DENSE}, dormant_interval=2)),
    LearnerCase("mentor without a group for the critic", mentor(), privileged=False),
    LearnerCase("mentor of sparse experts", mentor(batch_size=64)),
    LearnerCase(
        "mentor as its authors set the actor",
        mentor(
            actor_interval=2, actor_grad_norm=1e-3, perturbation=PerturbationConfig(keep_max=1.0),
            actor={"normalize": False, "experts": ExpertsConfig(
                count=4, top=3, trunk_width=8, balance_weight=0.0, entropy_weight=1.0
            )},
        ),
    ),
    LearnerCase("mentor in bf16", mentor(precision=Precision.bf16)),
    LearnerCase("mentor without experts", mentor(actor={"kind": NetworkKind.mlp})),
    LearnerCase("sac with experts", sac(actor=EXPERTS)),
    LearnerCase("sac with sparse experts", sac(actor=EXPERTS, batch_size=64)),
    LearnerCase("dsac_t with experts", dsac_t(actor={**EXPERTS, "experts": DENSE})),
    LearnerCase("flash_sac with experts", flash_sac(actor={**EXPERTS, "experts": DENSE})),
    LearnerCase("iql with experts", iql(actor={**EXPERTS, "experts": DENSE})),
    LearnerCase("silri with experts", silri(actor={**EXPERTS, "experts": DENSE})),
    LearnerCase("td3 with experts", td3(actor={**EXPERTS, "experts": DENSE})),
    LearnerCase("td3", td3()),
    LearnerCase("td3 without a group for the critic", td3(), privileged=False),
    LearnerCase("td3 in bf16", td3(precision=Precision.bf16, values=ValueConfig(atoms=21))),
    LearnerCase("td3 without normaliser", td3(actor=PLAIN, critic=PLAIN, n_step=3)),
    LearnerCase(
        "td3 as fast_td3 sets it",
        td3(
            values=ValueConfig(atoms=21), target_actor=False, delay_targets=False,
            actor_value=ActorObjective.min, exploration_min=0.001, exploration_max=0.4,
            weight_decay=0.1, tau=0.1, actor={"last_layer_std": 0.01},
        ),
    ),
)  # fmt: skip


def images(**settings: Any) -> ImageConfig:
    kind = settings.pop("encoder", ImageEncoderKind.conv)
    return ImageConfig(
        encoder=kind, channels=[8, 8], strides=[2, 1], features=6, shift=1, **settings
    )


class TestImages(LearnerContract):
    """Learners that see a camera beside vectors."""

    cases = (
        LearnerCase(
            "sac as drq_sac",
            sac(
                images=images(), target=TargetConfig(members=1, entropy=False), n_step=3,
                actor_value=ActorObjective.mean, critic={**LAYER_NORM, "members": 4},
            ),
        ),
        LearnerCase(
            "td3 as drq_v2",
            td3(
                images=images(), noise=NoiseScheduleConfig(updates=6), noisy_objective=True,
                target_actor=False, actor_interval=1, actor_value=ActorObjective.min, n_step=3,
            ),
        ),
        LearnerCase("td3 from images", td3(images=images(cameras=["front"]))),
        LearnerCase(
            "sac from images with a privileged critic", sac(images=images(privileged_critic=True))
        ),
        LearnerCase(
            "sac from images as serl",
            sac(
                images=images(encoder=ImageEncoderKind.resnet),
                target=TargetConfig(members=2, replacement=True), actor_interval=2,
                actor_steps=ActorStepsConfig(on_all=True, entropy_at=EntropyAt.next_obs),
                critic={"members": 4},
            ),
        ),
        LearnerCase("sac from images in bf16", sac(images=images(), precision=Precision.bf16)),
        LearnerCase("dsac_t from images", dsac_t(images=images(), actor_interval=2)),
        LearnerCase("flash_sac from images", flash_sac(images=images())),
        LearnerCase("mentor from images", mentor(images=images(), actor={"experts": DENSE})),
        LearnerCase(
            "mentor from images with a privileged critic",
            mentor(images=images(privileged_critic=True)),
        ),
        LearnerCase("hil_serl from images", hil_serl(images=images(), actor_interval=2)),
        LearnerCase("cal_ql from images", cql(images=images(), conservatism={"calibrated": True})),
    )  # fmt: skip

    def env(self, case: LearnerCase) -> ToyEnv:
        camera = GroupSpec(shape=(2, 8, 9, 3), dtype=torch.uint8, stack=2)
        groups = {**LinearWorld().groups, "image/front": camera, "image/wrist": camera}
        return ToyEnv(LinearWorld(groups=groups), WORLDS, device=self.device)


def residual(spec: EnvSpec, seed: int) -> SAC:
    config = ResidualConfig(batch_size=8, critic=QEnsembleConfig(hidden=[16], members=4))
    config.actor.hidden = [16]
    return Residual(config, spec, seed=seed)


class TestResidual(LearnerContract):
    cases = (
        LearnerCase("residual", residual),
        LearnerCase("residual without a group for the critic", residual, privileged=False),
    )

    # Exported with its base: tests/policies/networks/test_frozen.py.
    test_the_policy_is_exported_as_it_acts = None  # pyright: ignore[reportAssignmentType]

    def env(self, case: LearnerCase) -> Any:
        return based(super().env(case))


CHUNKS: dict[str, Any] = {"reads": ("reward", "obs", "next_obs")}
"""Not `action`: chunks are in `extra`."""


class TestChunks(LearnerContract):
    cases = (
        LearnerCase("qc", qc(), **CHUNKS),
        LearnerCase("qc of single actions", qc(chunk_length=1), **CHUNKS),
        LearnerCase("expo", expo(), **CHUNKS),
        LearnerCase("expo of chunks", expo(chunk_length=3, actor_interval=2), **CHUNKS),
    )


class TestOnTheCPU(LearnerContract):
    cases = (*CASES, *WITH_HISTORY)


class Deterministic:
    """Laws of equal bits hold on a GPU where sums run in a fixed order."""

    @pytest.fixture(autouse=True)
    def sums_run_in_a_fixed_order(self) -> Iterator[None]:
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
class TestChunksOnCUDA(Deterministic, TestChunks):
    device = torch.device("cuda")


@pytest.mark.gpu
class TestOnCUDA(Deterministic, LearnerContract):
    cases = (*CASES, *WITH_HISTORY)
    device = torch.device("cuda")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["sac", "sac as fast_sac", "flash_sac", "td3", "td3 as fast_td3 sets it"]
)
def test_a_thousand_updates_of_the_same_seed_are_bit_equal(name: str) -> None:
    suite = TestOnTheCPU()
    case = next(case for case in CASES if case.name == name)
    assert_same(suite.metrics_of(case, 1000), suite.metrics_of(case, 1000))
