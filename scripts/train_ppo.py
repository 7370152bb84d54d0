"""Trains rsl_rl's PPO on our tasks, to compare with: `python scripts/train_ppo.py --help`."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cli import exit_with_sentence, read_overrides
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import check_one_root, keep_freed_memory

if TYPE_CHECKING:
    from configs.compose import Composition

_HELP = """Trains PPO of the package rsl_rl in the worlds of a task, to compare our learners with.

usage: python scripts/train_ppo.py [task=name] [robot=name] [option=value ...] [field=value ...]

Worlds, observations, rewards, validation starts and the run's folder are those of scripts/train.py,
so that `python scripts/runs.py compare` draws both learners' curves over steps or time. Nothing of
it can be resumed or exported: what it leaves are its curves and its weights.

options (defaults in brackets):
  steps_per_env=24      steps of every world per iteration
  epochs=5              passes over them
  mini_batches=4        parts of each pass
  gamma=0.99 lam=0.95   discount, and lambda of the advantages
  learning_rate=1e-3    at the start; follows desired_kl
  desired_kl=0.01       divergence per iteration that the step size aims at
  entropy=0.005         weight of the entropy
  hidden=[256,128,64]   hidden layers of actor and critic
  init_std=1.0          deviation of the actions at the start

fields of a run that count: num_envs, seed, training.total_steps, training.evaluation_interval,
training.evaluation_episodes, device, threads, runs, logging, and all of the task and the robot

examples:
  python scripts/train_ppo.py task=hover seed=1
  python scripts/train_ppo.py task=velocity robot=go2 num_envs=1024"""


@dataclass(kw_only=True)
class PPOSettings:
    """PPO as rsl_rl and Isaac Lab's locomotion tasks set it."""

    steps_per_env: int = 24
    """Steps of every world per iteration."""
    epochs: int = 5
    """Passes over them."""
    mini_batches: int = 4
    """Parts of each pass."""
    gamma: float = 0.99
    """Discount per control step."""
    lam: float = 0.95
    """Lambda of the generalised advantages."""
    learning_rate: float = 1e-3
    """Step size at the start."""
    desired_kl: float = 0.01
    """Divergence per iteration that the step size aims at."""
    entropy: float = 0.005
    """Weight of the entropy."""
    hidden: list[int] = field(default_factory=lambda: [256, 128, 64])
    """Hidden layers of actor and critic."""
    init_std: float = 1.0
    """Standard deviation of the actions at the start."""

    def __post_init__(self) -> None:
        """Refuse loops that cannot run."""
        for name in ("steps_per_env", "epochs", "mini_batches", "init_std", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")

    def rsl_rl(self, critic_group: str) -> dict[str, Any]:
        """The same in rsl_rl's words."""
        network = {
            "class_name": "MLPModel", "hidden_dims": list(self.hidden), "activation": "elu",
            "obs_normalization": True,
        }  # fmt: skip
        deviation = {"class_name": "GaussianDistribution", "init_std": self.init_std}
        return {
            "num_steps_per_env": self.steps_per_env,
            "obs_groups": {"actor": ["actor"], "critic": [critic_group]},
            "multi_gpu": None,
            "actor": {**network, "distribution_cfg": deviation},
            "critic": network,
            "algorithm": {
                "class_name": "PPO", "num_learning_epochs": self.epochs,
                "num_mini_batches": self.mini_batches, "gamma": self.gamma, "lam": self.lam,
                "learning_rate": self.learning_rate, "desired_kl": self.desired_kl,
                "entropy_coef": self.entropy, "schedule": "adaptive", "clip_param": 0.2,
                "value_loss_coef": 1.0, "max_grad_norm": 1.0,
            },
        }  # fmt: skip


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Train what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    check_one_root()
    keep_freed_memory()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from configs.compose import compose, read_options

    settings, rest = read_options(PPOSettings, overrides)
    _train(settings, compose(rest))


def _train(settings: PPOSettings, composition: "Composition") -> None:
    import torch

    from configs.builders import pick_device
    from configs.compose import to_plain
    from robot_rl.training.provenance import collect_provenance
    from robot_rl.training.run_folder import RunFolder, RunState
    from runtime.parts import run_name
    from runtime.ppo import PPOTraining

    device = pick_device(composition.config.device)
    config = replace(composition.config, device=str(device))
    torch.set_num_threads(config.threads)
    training = PPOTraining(config, settings.rsl_rl, device=device)
    plain = {**to_plain(config), "learner": asdict(settings)}
    name = run_name(config, {**composition.chosen, "learner": "rsl_ppo"})
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    with RunFolder.create(config.runs, name, plain, origin) as run:
        try:
            training.run(run)
        except KeyboardInterrupt:
            training.mark(run, RunState.INTERRUPTED, "stopped by SIGINT")
            raise
        except BaseException as error:
            training.mark(run, RunState.FAILED, str(error).partition("\n")[0])
            raise
        training.mark(run, RunState.FINISHED)


if __name__ == "__main__":
    main()
