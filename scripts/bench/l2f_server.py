"""Serves step times of the `l2f` package to `multirotor_physics.py`; needs only l2f and numpy.

l2f is the simulator of Eschmann et al. 2024, "Learning to Fly in Seconds", compiled from its source
distribution at installation. For every line on stdin, one measurement goes out on stdout.
"""

import importlib
import sys
import time
from typing import Any

import numpy as np

STEPS = 500
"""Steps between resets: 5 s of flight."""


def main(num_worlds: int) -> None:
    """Measure `STEPS` steps for every line read; print seconds per step of all worlds."""
    l2f: Any = importlib.import_module("l2f")  # in the extra `bench` only
    vector = l2f.vector_selector[num_worlds]
    device, rng, env = l2f.Device(), vector.VectorRng(), vector.VectorEnvironment()
    params, state, next_state = (
        vector.VectorParameters(),
        vector.VectorState(),
        vector.VectorState(),
    )
    vector.initialize_rng(device, rng, 0)
    vector.initialize_environment(device, env)
    vector.initial_parameters(device, env, params)
    speed = 0.8 + 0.1 * np.random.default_rng(0).random((num_worlds, env.ACTION_DIM))
    action = (2.0 * speed - 1.0).astype(np.float32)
    print("ready", flush=True)
    for _ in sys.stdin:
        vector.sample_initial_state(device, env, params, state, rng)
        start = time.perf_counter()
        for _ in range(STEPS // 2):
            vector.step(device, env, params, state, action, next_state, rng)
            vector.step(device, env, params, next_state, action, state, rng)
        print((time.perf_counter() - start) / (2 * (STEPS // 2)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
