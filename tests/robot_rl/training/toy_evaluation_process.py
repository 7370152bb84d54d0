"""The process beside a `Loop`: its evaluation worlds and its policy, in a process of their own."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from robot_rl.training.evaluation import Evaluator
from robot_rl.training.late_evaluations import EvaluationProcess, Found, serve
from robot_rl.training.storage.checkpoint import read_checkpoint
from robot_rl.training.trainer import VALIDATION_SEED
from tests.fakes import ToyEnv, small_sac
from tests.robot_rl.training.loop import WORLD


def process(folder: Path, **setup: Any) -> EvaluationProcess:
    """One that is slow by `seconds`, or `fails`."""
    command = [sys.executable, "-m", "tests.robot_rl.training.toy_evaluation_process"]
    return EvaluationProcess(command, setup, folder / "beside.log")


def build(setup: Mapping[str, Any]) -> Callable[[Path], Found]:
    torch.set_num_threads(1)
    env = ToyEnv(WORLD, 6, limit=7, seed=1)
    policy = small_sac(env.spec, 0, n_step=3, actor_interval=2).policy()
    evaluator = Evaluator(env, seed=VALIDATION_SEED)
    sys.stdout.write("this is no answer\n")

    def evaluate(path: Path) -> Found:
        time.sleep(setup.get("seconds", 0.0))
        if setup.get("fails"):
            raise ValueError("a part is missing")
        if setup.get("ends"):
            sys.exit(3)
        policy.load_state_dict(read_checkpoint(path).state["policy"])
        return evaluator.evaluate(policy)

    return evaluate


if __name__ == "__main__":
    serve(build)
