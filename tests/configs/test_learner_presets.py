"""Published settings by name have the numbers of their sources, on every environment."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from configs.catalog import CONFIGS
from configs.schema import component_of
from policies.networks.gripper import GripperConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.flash_sac import FlashSAC
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.sac import SAC
from robot_rl.learners.td3 import NoiseScheduleConfig
from robot_rl.training.evaluation import evaluate
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv, random_batch

pytestmark = pytest.mark.slow  # each composes a run

PUBLISHED: dict[str, dict[str, Any]] = {
    # (members, drawn, with replacement), (actor climbs, target entropy per action, entropy paid),
    # (loss of the temperature, its start, where), (worlds, updates per step, per step of the actor,
    # random steps, capacity)
    "sac_paper": {
        "critics": (2, 0, False), "actor": ("min", -1.0, True),
        "temperature": ("alpha", 1.0, "obs"), "log_std": (-5.0, 2.0),
    },
    "sac_sb3": {
        "critics": (2, 0, False), "actor": ("min", -1.0, True),
        "temperature": ("log_alpha", 1.0, "obs"), "log_std": (-20.0, 2.0),
        "training": (1, 1, 1, 100, 1_000_000),
    },
    "redq": {
        "critics": (10, 2, False), "actor": ("mean", -1.0, True),
        "temperature": ("log_alpha", 1.0, "obs"), "log_std": (-20.0, 2.0),
        "training": (1, 20, 20, 5000, 1_000_000),
        "networks": [([256, 256], "relu", False, "xavier")] * 2,
    },
    "rlpd": {
        "critics": (10, 2, False), "actor": ("mean", -0.5, True),
        "temperature": ("alpha", 1.0, "obs"), "log_std": (-20.0, 2.0),
        "training": (1, 20, 20, 5000, 1_000_000),
        "networks": [([256, 256], "relu", layer_norm, "xavier") for layer_norm in (False, True)],
    },
    "drq_sac": {
        "critics": (10, 1, False), "actor": ("mean", -0.5, False),
        "temperature": ("alpha", 0.1, "obs"), "log_std": (-20.0, 2.0),
        "training": (1, 1, 1, 5000, 100_000),
        "networks": [([256, 256], "relu", layer_norm, "xavier") for layer_norm in (False, True)],
    },
    "serl": {
        "critics": (10, 2, True), "actor": ("mean", -0.5, False),
        "temperature": ("softplus", 1e-2, "next_obs"), "log_std": (-11.5129, 1.6094),
        "training": (1, 8, 8, 300, 1_000_000),
        "adam": ([0.9, 0.999], 1e-8, 0.0, 2_000),
        "networks": [([256, 256], "tanh", True, "xavier")] * 2,
    },
    "hil_serl": {
        "critics": (2, 0, False), "actor": ("mean", -0.5, False),
        "temperature": ("softplus", 1e-2, "next_obs"), "log_std": (-11.5129, 1.6094),
        "training": (1, 2, 2, 0, 200_000), "descent": (256, 0.97, 0.005),
        "networks": [([256, 256], "tanh", True, "xavier")] * 2,
    },
    "wsrl": {
        "critics": (10, 2, True), "actor": ("min", -1.0, False),
        "temperature": ("softplus", 1.0, "next_obs"), "log_std": (-11.5129, 2.3026),
        "training": (1, 4, 4, 5000, 2_000_000),
        "rates": (1e-4, 3e-4, 1e-4),
        "networks": [([256, 256], "relu", True, "orthogonal")] * 2,
    },
    "cql": {
        "critics": (2, 0, False), "actor": ("min", -1.0, False),
        "temperature": ("softplus", 1.0, "next_obs"), "log_std": (-5.0, 2.0),
        "rates": (1e-4, 3e-4, 1e-4),
    },
    "h2o": {
        "critics": (2, 0, False), "actor": ("min", -1.0, False),
        "temperature": ("log_alpha", 1.0, "obs"), "log_std": (-20.0, 2.0),
    },
    "fast_sac": {
        "critics": (2, 0, False), "actor": ("mean", 0.0, True),
        "temperature": ("alpha", 1e-3, "next_obs"), "log_std": (-5.0, 0.0),
        "training": (1024, 8, 4, 10_240, 1_048_576),
        "descent": (8192, 0.97, 0.125), "adam": ([0.9, 0.95], 1e-8, 1e-3, 0),
        "networks": [
            (sizes, "silu", True, "torch") for sizes in ([512, 256, 128], [768, 384, 192])
        ],
        "values": (101, -20.0, 20.0, "own"),
    },
}  # fmt: skip
COMMON: dict[str, Any] = {
    # Of those who say nothing else: (of actor, critics, temperature), (batch, gamma, tau),
    # (betas, epsilon, weight decay, warm-up), of actor and critics (hidden, activation, layer norm,
    # initialization), (atoms, low, high, whose target)
    "rates": (3e-4, 3e-4, 3e-4), "descent": (256, 0.99, 0.005),
    "adam": ([0.9, 0.999], 1e-8, 0.0, 0),
    "networks": [([256, 256], "relu", False, "torch")] * 2, "values": (0, -10.0, 10.0, "min"),
}  # fmt: skip
WHERE = [  # no settings of ours are tuned for these
    pytest.param(["task=tracking"], id="tracking"),
    pytest.param(["experiment=hopper"], id="hopper", marks=pytest.mark.full),
]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_numbers_of_its_source(name, where):
    config = composed([f"learner={name}", *where]).config
    told, learner, training = COMMON | PUBLISHED[name], config.learner, config.training
    drawn = (learner.critic.members, learner.target.members, learner.target.replacement)
    assert drawn == told["critics"]
    per_action = learner.target_entropy_per_action
    climbs = (learner.actor_value.name, per_action, learner.target.entropy)
    assert climbs == told["actor"]
    entropy_at = learner.actor_steps.entropy_at.name
    price = (learner.temperature_loss.name, learner.init_temperature, entropy_at)
    assert price == told["temperature"]
    assert (learner.actor.log_std_min, learner.actor.log_std_max) == pytest.approx(
        told["log_std"], abs=1e-4
    )
    if "training" in told:
        ratio = (config.num_envs, training.updates_per_step, learner.actor_interval)
        assert ratio == told["training"][:3]
        assert (training.random_steps, training.replay_capacity) == told["training"][3:]
    assert (learner.actor_lr, learner.critic_lr, learner.temperature_lr) == told["rates"]
    assert (learner.batch_size, learner.gamma, learner.tau) == told["descent"]
    assert (learner.n_step, learner.max_grad_norm, learner.lr_schedule.decay) == (1, 0.0, 0)
    assert told["adam"] == (
        learner.adam_betas, learner.adam_epsilon, learner.weight_decay,
        learner.lr_schedule.warmup,
    )  # fmt: skip
    networks = [
        (network.hidden, network.activation.name, network.layer_norm, network.initialization.name)
        for network in (learner.actor, learner.critic)
    ]
    assert networks == told["networks"]
    values = learner.values
    assert told["values"] == (values.atoms, values.low, values.high, learner.target.rule.name)


def test_every_file_that_sets_sac_is_in_the_table():
    files = (CONFIGS / "learner").glob("*.yaml")
    schema = re.compile("- (sac|cql|h2o|hil_serl)_schema")
    family = {path.stem for path in files if schema.search(path.read_text(encoding="utf-8"))}
    assert family - {"sac"} == set(PUBLISHED)


@pytest.mark.parametrize(
    "name", [*PUBLISHED, "dsac_t", "flash_sac", "td3", "fast_td3", "mentor", "drq_v2"]
)
def test_a_preset_builds_a_learner_that_learns(name):
    config = composed([f"learner={name}", "task=tracking"]).config.learner
    small: dict[str, Any] = {"width": 16} if name == "flash_sac" else {"hidden": [16]}
    actor, critic = (replace(part, **small) for part in (config.actor, config.critic))
    config = replace(config, actor=actor, critic=critic, batch_size=8)
    if name == "hil_serl":  # nobody observes an opening here
        config = replace(config, grasp_penalty=0.0)
    groups = dict(LinearWorld().groups)
    if name.startswith("drq"):
        groups["image/eye"] = GroupSpec(shape=(3, 32, 32, 3), dtype=torch.uint8, stack=3)
    env = ToyEnv(LinearWorld(groups=groups), 4)
    learner = component_of(config).build(config, env.spec, seed=0)
    learner.begin(torch.ones(4, dtype=torch.bool))
    metrics = {}
    for seed in range(config.actor_interval + 1):
        batch = random_batch(env.spec, 8, seed)
        extra = {"monte_carlo_return": batch.reward, "source": torch.arange(8) % 2}
        metrics, error = learner.update(replace(batch, extra=extra))
        assert all(value.isfinite() for value in metrics.values())
        assert error is not None
        assert error.shape == (8,)
    assert {"critic_loss", "q_mean", "actor_loss"} <= set(metrics)
    assert torch.isfinite(evaluate(env, learner.policy(), seed=0).returns).all()


def test_overrides_reach_what_is_made_of_them():
    overrides = (
        "target_entropy_per_action=-0.25", "init_temperature=0.3", "gamma=0.5", "n_step=4",
        "batch_size=3", "values={atoms: 9, high: 40}", "critic.members=5", "actor.hidden=[7]",
    )  # fmt: skip
    config = composed(["learner=sac_paper", *(f"learner.{one}" for one in overrides)]).config
    sac = SAC(config.learner, ToyEnv(LinearWorld()).spec, seed=0)
    assert sac.temperature.target_entropy == -0.5
    assert float(sac.temperature.value()) == pytest.approx(0.3, abs=1e-6)
    assert (sac.gamma, sac.n_step, sac.samples_per_update, sac.values.width) == (0.5, 4, 3, 9)
    middle = sac.values.expectation(torch.zeros(1, 1, 9))
    assert float(middle) == pytest.approx(15, abs=1e-5)  # of -10 to 40
    assert len(sac.critic.state_dict()["network.0.weight"]) == 5
    assert len(sac.actor.state_dict()["network.0.weight"]) == 7


def test_a_target_of_more_critics_than_there_are_is_refused():
    with pytest.raises(ConfigError, match=r"target\.members 3 asks for more critics than .* 2"):
        composed(["learner.target.members=3"])
    composed(["learner.target.members=3", "learner.target.replacement=true"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["learner=cql", "learner.critic.kind=flash", "learner.critic.normalize=false"],
            r"batch norm of learner\.critic\.kind=flash would see apart",
        ),
        (
            ["learner=iql", "learner.reward_scale=running", "training.prior.run=x",
             "training.offline.updates=10"],
            r"learner\.reward_scale=running .* after an offline phase",
        ),
        (
            ["learner=flash_sac", "training.prior.run=x"],
            r"learner\.reward_scale=running .* would divide the stored ones of training\.prior",
        ),
        (
            ["learner=cql", "learner.conservatism.failure_reward=-1"],
            r"failure_reward -1\.0 .* set learner\.conservatism\.calibrated=true",
        ),
    ],
)  # fmt: skip
def test_what_would_learn_from_two_scales_or_do_nothing_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        composed(overrides)


@pytest.mark.parametrize("where", WHERE, ids=["tracking", "hopper"])
def test_dsac_t_has_the_numbers_of_its_source(where):
    config = composed(["learner=dsac_t", *where]).config
    learner, training = config.learner, config.training
    assert (learner.actor_lr, learner.critic_lr, learner.temperature_lr) == (1e-4, 1e-4, 3e-4)
    assert (learner.tau, learner.scale_tau) == (0.005, 0.005)
    assert (learner.gamma, learner.batch_size) == (0.99, 256)
    assert (learner.actor_interval, learner.target_entropy_per_action) == (2, -1.0)
    assert learner.init_temperature == pytest.approx(math.e)
    assert learner.temperature_loss.name == "log_alpha"
    assert (learner.actor.log_std_min, learner.actor.log_std_max) == (-20.0, 0.5)
    for network in (learner.actor, learner.critic):
        assert (network.hidden, network.activation.name) == ([256, 256, 256], "gelu")
    assert (config.num_envs, training.updates_per_step, training.random_steps) == (20, 1, 10_000)


def test_mentor_has_the_numbers_of_its_source():
    config = composed(("task=tracking", "learner=mentor_paper")).config
    mentor, training = config.learner, config.training
    experts, moved = mentor.actor.experts, mentor.perturbation
    assert (mentor.actor.hidden, mentor.actor.kind.name) == ([1024], "moe")
    assert (experts.count, experts.width, experts.top, experts.gate_width) == (16, 256, 4, 256)
    assert (experts.gate_dropout, experts.trunk_width) == (0.1, 50)
    assert (experts.entropy_weight, experts.balance_weight) == (1.0, 0.0)
    assert mentor.critic.hidden == mentor.value.hidden == [1024, 1024]
    assert (mentor.actor_lr, mentor.critic_lr, mentor.value_lr) == (1e-4, 1e-4, 1e-4)
    assert (mentor.batch_size, mentor.n_step, mentor.gamma, mentor.tau) == (256, 3, 0.99, 0.01)
    assert (mentor.exploration_max, mentor.exploration_start, mentor.smoothing_clip) == (
        0.8,
        0,
        0.3,
    )
    assert (mentor.expectile, mentor.value_share, mentor.actor_grad_norm) == (0.9, 0.6, 1e-3)
    assert (mentor.dormant_threshold, mentor.dormant_interval) == (0.025, 1)
    assert (moved.interval, moved.agents, moved.keep_min, moved.keep_max) == (10_000, 10, 0.2, 1.0)
    assert moved.reset_optimizers
    assert (config.num_envs, training.updates_per_step) == (2, 1)  # one every two steps
    assert (training.random_steps, training.replay_capacity) == (2_000, 1_000_000)


@pytest.mark.parametrize("name", ["sac", "rlpd", "td3", "dsac_t", "iql", "hil_serl"])
def test_the_family_takes_an_actor_of_experts_by_its_kind(name):
    overrides = ["actor.kind=moe", "actor.experts.top=3", "actor.hidden=[16]"]
    chosen = [f"learner={name}", "task=tracking", *(f"learner.{one}" for one in overrides)]
    config = composed(chosen).config.learner
    if name == "hil_serl":
        config = replace(config, grasp_penalty=0.0)
    learner = component_of(config).build(config, ToyEnv(LinearWorld(), 4).spec, seed=0)
    learner.begin(torch.ones(4, dtype=torch.bool))
    metrics = {}
    for seed in range(config.actor_interval):
        metrics, _ = learner.update(random_batch(ToyEnv(LinearWorld(), 4).spec, 8, seed))
    assert 3 / 8 <= float(metrics["expert_use_max"]) <= 1
    assert learner.update_method.startswith("PyTorch operations")


def test_the_small_mentor_has_two_of_eight_experts():
    mentor = composed(("task=tracking", "learner=mentor")).config.learner
    experts = mentor.actor.experts
    assert (mentor.actor.hidden, experts.count, experts.width, experts.top) == ([256], 8, 64, 2)
    assert mentor.critic.hidden == mentor.value.hidden == [256, 256]


def test_q_chunking_has_the_numbers_of_its_source():
    config = composed(("task=hover", "learner=qc")).config
    qc, training = config.learner, config.training
    assert (qc.chunk_length, qc.replan_interval) == (5, 5)
    assert (qc.candidates, qc.next_candidates, qc.batch_size) == (32, 32, 256)
    assert (qc.gamma, qc.tau, qc.actor_lr, qc.critic_lr) == (0.99, 5e-3, 3e-4, 3e-4)
    assert (qc.actor.hidden, qc.actor.steps, qc.actor.layer_norm) == ([512] * 4, 10, False)
    assert (qc.critic.hidden, qc.critic.members, qc.critic.layer_norm) == ([512] * 4, 2, True)
    assert (training.updates_per_step, training.warm_up_steps) == (1, 5_000)


def test_hil_serl_has_the_gripper_of_its_source_but_for_staying():
    """Our action maps take the opening itself, so that 0 would be half open."""
    config = composed(("task=lift", "learner=hil_serl")).config
    learner, network = config.learner, config.learner.gripper.network
    assert learner.gripper.commands == [-1.0, 1.0]
    assert GripperConfig().commands == [-1.0, 0.0, 1.0]
    assert (learner.gripper_lr, learner.grasp_penalty, learner.open_above) == (3e-4, 0.02, 0.9)
    assert (network.hidden, network.activation.name, network.layer_norm) == (
        [256, 256],
        "tanh",
        True,
    )
    training = config.training
    assert (training.prior.share, training.warm_up_steps, training.start.acts) == (0.5, 100, True)
    # The task observes the opening that the penalty needs.
    assert "state/gripper_opening" in [one.term for one in config.task.actor]


def test_silri_has_the_numbers_of_its_source():
    config = composed(("task=lift", "learner=silri")).config
    silri, training = config.learner, config.training
    assert (silri.batch_size, silri.gamma, silri.tau, silri.max_grad_norm) == (256, 0.97, 5e-3, 40)
    assert (silri.std, silri.tolerance, silri.actor_interval) == (0.05, 0.1, 2)
    assert (silri.actor_lr, silri.critic_lr, silri.multiplier_lr) == (3e-4, 3e-4, 3e-6)
    assert silri.gripper.commands == [-1.0, 1.0]
    assert (silri.critic.members, silri.multiplier.members) == (2, 1)
    bounds = [math.exp(one) for one in (silri.expert.log_std_min, silri.expert.log_std_max)]
    assert bounds == pytest.approx([1e-5, 10.0], rel=1e-4)
    for one in (silri.actor, silri.critic, silri.expert, silri.multiplier, silri.gripper.network):
        shape = (one.hidden, one.activation.name, one.layer_norm, one.initialization.name)
        assert shape == ([256, 256], "silu", True, "orthogonal")
        assert not one.normalize
    assert (config.num_envs, training.updates_per_step, training.replay_capacity) == (1, 2, 30_000)


def test_expo_has_the_numbers_of_its_source():
    config = composed(("task=peg", "learner=expo")).config
    expo = config.learner
    assert (expo.candidates, expo.next_candidates, expo.drawn_members) == (8, 8, 2)
    assert (expo.critic.hidden, expo.critic.members, expo.critic.layer_norm) == (
        [256] * 3,
        10,
        True,
    )
    assert (expo.edit.hidden, expo.edit.scale, expo.edit.layer_norm) == ([256] * 3, 0.2, False)
    assert (expo.edit.log_std_min, expo.edit.log_std_max) == (-20.0, 2.0)
    assert expo.edit.initial_log_std == 0.0
    assert (expo.edit_lr, expo.critic_lr, expo.temperature_lr) == (3e-4, 3e-4, 3e-4)
    assert (expo.gamma, expo.tau, expo.batch_size) == (0.99, 5e-3, 256)
    assert (expo.init_temperature, expo.target_entropy_per_action) == (1.0, -0.5)
    assert (expo.chunk_length, expo.replan_interval, expo.actor.steps) == (1, 1, 10)


# Fujimoto et al. 2018, section 6.1 and table 3.
TD3: dict[str, Any] = {
    "batch_size": 100, "gamma": 0.99, "n_step": 1, "actor_lr": 1e-3, "critic_lr": 1e-3,
    "weight_decay": 0.0, "tau": 0.005, "actor_interval": 2, "exploration_min": 0.1,
    "exploration_max": 0.1, "smoothing_noise": 0.2, "smoothing_clip": 0.5, "target_actor": True,
    "delay_targets": True, "max_grad_norm": 0.0,
}  # fmt: skip
# younggyoseo/FastTD3 229ed59, fast_td3/hyperparams.py: BaseArgs, MuJoCoPlaygroundArgs.
FAST_TD3: dict[str, Any] = {
    "batch_size": 32768, "gamma": 0.97, "n_step": 1, "actor_lr": 3e-4, "critic_lr": 3e-4,
    "weight_decay": 0.1, "tau": 0.1, "actor_interval": 2, "exploration_min": 0.001,
    "exploration_max": 0.4, "smoothing_noise": 0.001, "smoothing_clip": 0.5,
    "target_actor": False, "delay_targets": False, "max_grad_norm": 0.0,
}  # fmt: skip

# facebookresearch/drqv2, cfgs/config.yaml and cfgs/task/medium.yaml; drqv2.py.
DRQ_V2: dict[str, Any] = {
    "batch_size": 256, "gamma": 0.99, "n_step": 3, "actor_lr": 1e-4, "critic_lr": 1e-4,
    "weight_decay": 0.0, "tau": 0.01, "actor_interval": 1, "smoothing_clip": 0.3,
    "noise": NoiseScheduleConfig(updates=125_000, start=1.0, end=0.1), "noisy_objective": True,
    "target_actor": False, "delay_targets": False, "max_grad_norm": 0.0,
}  # fmt: skip


def test_image_presets_have_the_encoders_of_their_sources():
    drq_v2, drq_sac = (
        composed([f"learner={name}", "task=tracking"]).config.learner.images
        for name in ("drq_v2", "drq_sac")
    )
    assert (drq_v2.channels, drq_v2.strides) == ([32] * 4, [2, 1, 1, 1])
    assert (drq_sac.channels, drq_sac.strides) == ([32, 64, 128, 256], [2] * 4)
    for images in (drq_v2, drq_sac):
        assert (images.encoder.name, images.features, images.shift) == ("conv", 50, 4)
        assert not images.privileged_critic


@pytest.mark.parametrize(
    ("name", "published", "run", "choices", "layers"),
    [
        ("td3", TD3, (1, 1, 10_000), ("first", "min", 0), ([400, 300], [400, 300])),
        (
            "fast_td3", FAST_TD3, (1024, 2, 10_240), ("min", "min", 101),
            ([512, 256, 128], [1024, 512, 256]),
        ),
        ("drq_v2", DRQ_V2, (2, 1, 2_000), ("min", "min", 0), ([1024, 1024], [1024, 1024])),
    ],
)  # fmt: skip
def test_what_td3_is_set_to_has_the_numbers_of_its_source(name, published, run, choices, layers):
    config = composed([f"learner={name}", "task=tracking"]).config
    learner, training = config.learner, config.training
    assert {field: getattr(learner, field) for field in published} == published
    assert (config.num_envs, training.updates_per_step, training.random_steps) == run
    rules = (learner.actor_value.name, learner.target_rule.name, learner.values.atoms)
    assert rules == choices
    assert (learner.actor.hidden, learner.critic.hidden) == layers
    assert learner.critic.members == 2


def test_flash_sac_has_the_numbers_of_its_source():
    config = composed(["learner=flash_sac", "task=tracking"]).config
    learner, training = config.learner, config.training
    assert (config.num_envs, training.updates_per_step) == (1024, 2)
    assert (training.random_steps, training.replay_capacity) == (100_000, 10_000_000)
    assert (learner.batch_size, learner.gamma, learner.n_step, learner.tau) == (2048, 0.99, 3, 0.01)
    rates = (learner.actor_lr, learner.critic_lr, learner.temperature_lr)
    assert (*rates, learner.lr_schedule.end) == (3e-4, 3e-4, 3e-4, 0.5)
    assert (learner.actor_interval, learner.weight_decay, learner.max_grad_norm) == (2, 0.0, 0.0)
    assert (learner.init_temperature, learner.target_std) == (0.01, 0.15)
    assert (learner.noise_exponent, learner.noise_longest) == (2.0, 16)
    values = learner.values
    assert (values.atoms, values.low, values.high, learner.reward_limit) == (101, -5.0, 5.0, 5.0)
    actor, critic = learner.actor, learner.critic
    assert actor.kind is critic.kind is NetworkKind.flash
    assert (actor.width, actor.blocks, actor.log_std_min, actor.log_std_max) == (128, 2, -10, 2)
    assert (critic.width, critic.blocks, critic.members) == (256, 2, 2)
    assert not actor.normalize
    assert not critic.normalize


def test_networks_of_flash_sac_have_the_published_number_of_weights():
    config = composed(["learner=flash_sac", "task=tracking"]).config.learner
    world = LinearWorld(groups={"actor": GroupSpec(shape=(123,))}, action_size=37)
    learner = FlashSAC(config, ToyEnv(world, 2).spec, seed=0)
    counts = [sum(p.numel() for p in net.parameters()) for net in (learner.actor, learner.critic)]
    # By hand, with d inputs, width w and k outputs: 2 d + d w + 2 (8 w^2 + 10 w) + w + (w + 1) k.
    assert counts == [290_368, 2 * 1_121_189]
    assert sum(counts) / 1e6 == pytest.approx(2.5, abs=0.05)  # as the paper says


def residual(*overrides: str) -> tuple[ResidualConfig, SAC]:
    """The preset with changes, over two actions."""
    preset = composed(["task=drawer", "learner=residual", "learner.base.paths=[x]", *overrides])
    plain = ToyEnv(LinearWorld()).spec
    groups = {**plain.groups, BASE_ACTION: GroupSpec(shape=(plain.action_size,))}
    spec = replace(plain, groups=groups)
    return preset.config.learner, Residual(preset.config.learner, spec, seed=0)


@pytest.mark.parametrize("scale", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("std", [0.0025, 0.005])
def test_the_noise_of_actions_of_a_residual_is_held_where_it_begins_whatever_the_scale(scale, std):
    _, learner = residual(f"learner.actor.scale={scale}", f"learner.actor.initial_std={std}")
    held = torch.distributions.Normal(0.0, std / scale).entropy()
    assert learner.temperature.target_entropy == pytest.approx(2 * float(held), rel=1e-6)


def test_an_entropy_that_a_residual_is_given_is_in_units_of_the_scale():
    config, learner = residual("learner.actor.scale=0.2", "learner.target_entropy_per_action=-0.7")
    assert config.with_target_entropy() is config
    assert learner.temperature.target_entropy == pytest.approx(-1.4)
    _, learner = residual("learner.target_entropy_per_action=0.0")
    assert learner.temperature.target_entropy == 0.0, "none is not zero"
