"""Serves update times of other libraries' SAC and TD3 to `updates.py`; needs one of them and numpy.

For every line on stdin, which says how many updates, one measurement goes out on stdout. The
transitions are drawn before the clock starts, as they are for our own learner: what is measured is
the gradient step alone. SBX does all updates of one measurement in one compiled loop, which is the
fastest way that it offers.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PEERS = {"sb3": "stable_baselines3", "sbx": "sbx"}
"""Package of every peer."""


def main() -> None:
    """Measure what is asked for until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=sorted(PEERS))
    for name in ("--obs", "--action", "--width", "--batch", "--updates"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--algorithm", choices=("SAC", "TD3"), default="SAC")
    parser.add_argument("--critics", type=int, default=2)
    parser.add_argument("--layer-norm", type=int, default=0, help="1: in the critics, SBX alone")
    parser.add_argument("--policy-delay", type=int, default=1, help="SAC: SBX alone")
    options = parser.parse_args()
    update = _prepare(options)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        update()
        print((time.process_time() - start) / options.updates, flush=True)


def _prepare(options: argparse.Namespace) -> Callable[[], object]:
    """The peer with its defaults, and a call that does the updates of one measurement."""
    # XLA has a thread for every processor that it may use.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if options.peer == "sbx":
        import sbx as library  # pyright: ignore[reportMissingImports]  in the extra `bench` only
    else:
        import stable_baselines3 as library  # pyright: ignore[reportMissingImports]
        import torch

        torch.set_num_threads(1)
    width = [options.width, options.width]
    networks = {"net_arch": {"pi": width, "qf": width}, "n_critics": options.critics}
    if options.layer_norm:
        networks["layer_norm"] = True
    delay = {"policy_delay": options.policy_delay} if options.policy_delay > 1 else {}
    model: Any = getattr(library, options.algorithm)(
        "MlpPolicy", _env(options), policy_kwargs=networks, **delay,
        batch_size=options.batch, buffer_size=4 * options.batch, seed=0, device="cpu",
    )  # fmt: skip
    model.set_logger(_silent_logger())
    _fill(model.replay_buffer, options)
    count = options.batch * (options.updates if options.peer == "sbx" else 1)
    drawn = model.replay_buffer.sample(count)
    model.replay_buffer.sample = lambda *args, **keywords: drawn
    return lambda: model.train(gradient_steps=options.updates, batch_size=options.batch)


def _fill(buffer: Any, options: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    for _ in range(4 * options.batch):
        obs, successor = rng.standard_normal((2, 1, options.obs), dtype=np.float32)
        action = rng.uniform(-1, 1, (1, options.action)).astype(np.float32)
        buffer.add(obs, successor, action, rng.standard_normal(1), np.zeros(1), [{}])


def _silent_logger() -> Any:
    from stable_baselines3.common.logger import (  # pyright: ignore[reportMissingImports]
        Logger,
    )

    return Logger(folder=None, output_formats=[])


def _env(options: argparse.Namespace) -> Any:
    """An environment that has spaces and is never stepped."""
    import gymnasium

    class Spaces(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (options.obs,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (options.action,), np.float32)

    return Spaces()


if __name__ == "__main__":
    main()
