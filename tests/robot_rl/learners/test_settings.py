"""Settings that learners refuse, in words that name the field: one row for each rule."""

import math

import pytest

from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.gripper import GripperConfig
from policies.networks.q_ensemble import QEnsembleConfig
from robot_rl.core.errors import ConfigError
from robot_rl.learners.cql import CQLConfig, CQLPenaltyConfig
from robot_rl.learners.dsac_t import DSACTConfig
from robot_rl.learners.expo import EXPOConfig
from robot_rl.learners.flash_sac import FlashSACConfig
from robot_rl.learners.h2o import H2OConfig, H2OPenaltyConfig
from robot_rl.learners.hil_serl import HILSERLConfig
from robot_rl.learners.iql import IQLConfig
from robot_rl.learners.qc import QCConfig
from robot_rl.learners.sac import ActorStepsConfig, SACConfig, TargetConfig
from robot_rl.learners.silri import SiLRIConfig
from robot_rl.learners.td3 import TD3Config
from robot_rl.learners.values import RewardScaling, TargetRule, ValueConfig

HUNDRED = QEnsembleConfig(members=100)
PENALTY = CQLPenaltyConfig(weight=1.0, next_actions=1)


@pytest.mark.parametrize(
    ("config", "settings", "told"),
    [
        (SACConfig, {"critic_lr": math.nan}, r"learner\.critic_lr must lie in \[.*got nan"),
        (SACConfig, {"adam_betas": [0.9, 1.0]}, "adam_betas must be two numbers in"),
        (TargetConfig, {"members": -1}, r"learner\.target\.members must lie in"),
        (TargetConfig, {"members": 2, "rule": TargetRule.own}, "needs the targets of all members"),
        (ActorStepsConfig, {"temperature_every_update": True}, "needs entropy_at=next_obs"),
        (ValueConfig, {"atoms": 1}, r"values\.atoms "),
        (ValueConfig, {"low": 2.0, "high": 2.0}, r"values\.low "),
        (ValueConfig, {"high": math.inf}, r"values\.low "),
        (ValueConfig, {"low": math.nan}, r"values\.low "),
        (FlashSACConfig, {"noise_longest": 0}, r"learner\.noise_longest must lie in"),
        (DSACTConfig, {"weight_min": 2.0, "weight_max": 1.0}, r"weight_max must lie in \[2, .*1"),
        (TD3Config, {"exploration_min": 0.5, "exploration_max": 0.4}, "exploration_min 0.5 must"),
        (IQLConfig, {"expectile": 1.0}, r"learner\.expectile must lie in"),
        (IQLConfig, {"value": QEnsembleConfig(members=2)}, r"learner\.value\.members must be 1"),
        (QCConfig, {"n_step": 3}, "set learner.chunk_length, which is 5"),
        (QCConfig, {"replan_interval": 6}, r"replan_interval must lie in \[1, 5\]"),
        (GripperConfig, {"commands": [1.0, -1.0]}, "two ascending numbers in"),
        (GripperConfig, {"commands": [0.0]}, "two ascending numbers in"),
        (GripperConfig, {"commands": [-1.0, 1.5]}, "two ascending numbers in"),
        (GripperConfig, {"network": QEnsembleConfig()}, r"gripper\.network\.members must be 1"),
        (HILSERLConfig, {"grasp_penalty": -0.1}, r"learner\.grasp_penalty must lie in"),
        (SiLRIConfig, {"std": 0.0}, r"learner\.std must lie in"),
        (SiLRIConfig, {"multiplier": QEnsembleConfig()}, "members=1 and kind=mlp, got 2"),
        (
            SiLRIConfig, {"expert": GaussianActorConfig(groups=["critic"])},
            r"expert\.groups \['critic'\] must be those of the actor",
        ),
        (EXPOConfig, {"n_step": 3}, "set learner.chunk_length, which is 1"),
        (EXPOConfig, {"drawn_members": 11}, r"learner\.drawn_members must lie in \[1, 10\]"),
        (EXPOConfig, {"replan_interval": 2}, r"replan_interval must lie in \[1, 1\]"),
        (EXPOConfig, {"critic": HUNDRED, "drawn_members": 3}, "161,700 ways"),
        (H2OConfig, {"n_step": 3, "dynamics_gap": H2OPenaltyConfig(weight=1.0)}, "n_step=1"),
        (CQLConfig, {"conservatism": CQLPenaltyConfig(weight=1.0)}, "next_actions 10 takes the"),
        (CQLConfig, {"conservatism": PENALTY, "values": ValueConfig(atoms=7)}, "own size"),
        (
            CQLConfig, {"conservatism": PENALTY, "reward_scale": RewardScaling.running}, "own size"
        ),
        (CQLPenaltyConfig, {"weight": -1.0}, r"learner\.conservatism\.weight must lie in"),
        (CQLPenaltyConfig, {"calibrated": True}, "needs a weight above 0"),
        (CQLPenaltyConfig, {"weight": 1.0, "fade_updates": 5}, "choose online=false or no fade"),
        (CQLPenaltyConfig, {"online": False, "fade_updates": 5}, "choose a weight such as 5"),
    ],
)  # fmt: skip
def test_settings_outside_their_range_or_against_each_other_are_refused(config, settings, told):
    with pytest.raises(ConfigError, match=told):
        config(**settings)
