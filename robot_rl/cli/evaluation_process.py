"""The process beside a training that evaluates its checkpoints (`training.evaluation_beside`).

It is no command: the training starts it, and speaks with it in lines of JSON.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from configs.compose import from_plain
from robot_rl.cli.build import make_evaluation_envs
from robot_rl.cli.components import make_policy
from robot_rl.training.evaluation import AS_TRAINED, Evaluator
from robot_rl.training.late_evaluations import Found, serve
from robot_rl.training.storage.checkpoint import read_checkpoint
from robot_rl.training.trainer import VALIDATION_SEED


def build(setup: Mapping[str, Any]) -> Callable[[Path], Found]:
    """Make envs and policy of a training; returns what evaluates one of its checkpoints."""
    conditions = {name: from_plain(plain) for name, plain in setup["conditions"].items()}
    config = conditions[AS_TRAINED]
    torch.set_num_threads(config.threads)
    device = torch.device(setup["device"])
    env, changed = make_evaluation_envs(conditions, device)
    evaluator = Evaluator(env, changed, seed=VALIDATION_SEED)
    policy = make_policy(config, env.spec).eval().to(device)

    def evaluate(path: Path) -> Found:
        policy.load_state_dict(read_checkpoint(path).state["policy"])
        return evaluator.evaluate(policy)

    return evaluate


if __name__ == "__main__":
    serve(build)
