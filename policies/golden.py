"""Golden sequences: inputs drawn at random, and what torch observes, does and commands for them.

A bundle carries them, and its runner must give the same on every machine that loads it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.bundle import command_arrays
from policies.cameras import CameraInput, FrameStacks
from policies.runner import PolicySpec
from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ChunkQueue
from robot_rl.core.errors import BundleError
from robot_rl.core.observation import IMAGE_PREFIX, ObservationInputs, ObservationMap, RobotState
from robot_rl.core.pose_target import CommandMaker

GOLDEN_STEPS = 24
"""T: steps of a sequence; longer than usual histories, on both sides of the reset."""
GOLDEN_WORLDS = 4
"""N: sequences, each but the first with a reset at another step."""
_PATCHES = 8
"""Patches side by side in a frame, about."""


def draw_inputs(
    state_widths: Mapping[str, int],
    goal_widths: Mapping[str, int],
    sensed_widths: Mapping[str, int],
    seed: int,
    cameras: Mapping[str, CameraInput] | None = None,
) -> dict[str, np.ndarray]:
    """Plausible inputs: moderate attitudes and speeds, goals near the start, one reset a world.

    Frames are patches of one brightness each, which take little room in a file.
    """
    rng = np.random.default_rng(seed)
    groups = {"state": state_widths, "goal": goal_widths, "sensed": sensed_widths}
    golden: dict[str, np.ndarray] = {}
    for group, widths in groups.items():
        for name, width in widths.items():
            draw = 0.4 * rng.standard_normal((GOLDEN_STEPS, GOLDEN_WORLDS, width))
            if name in ("orientation_w", "end_effector_orientation_b"):
                draw = quaternion.from_rotation_vector(draw[..., :3])
            golden[f"{group}/{name}"] = draw.astype(np.float32)
    for name, camera in (cameras or {}).items():
        golden[IMAGE_PREFIX + name] = _patches(rng, camera)
    golden["reset"] = np.zeros((GOLDEN_STEPS, GOLDEN_WORLDS), bool)
    golden["reset"][0] = True
    for world in range(1, GOLDEN_WORLDS):  # world 0 runs through
        golden["reset"][world * GOLDEN_STEPS // GOLDEN_WORLDS, world] = True
    return golden


def _patches(rng: np.random.Generator, camera: CameraInput) -> np.ndarray:
    """Frames of (T, N, H * W * C) uint8."""
    height, width, channels = camera.frame
    size = max(1, max(height, width) // _PATCHES)
    shape = (GOLDEN_STEPS, GOLDEN_WORLDS, -(-height // size), -(-width // size), channels)
    drawn = rng.integers(0, 256, shape, np.uint8)
    whole = drawn.repeat(size, axis=2).repeat(size, axis=3)[:, :, :height, :width]
    return whole.reshape(GOLDEN_STEPS, GOLDEN_WORLDS, -1)


def first_inputs(golden: Mapping[str, np.ndarray], action_size: int) -> ObservationInputs:
    """Example of the inputs of an observation map."""
    return _inputs_at(golden, 0, torch.zeros(GOLDEN_WORLDS, action_size))


def _inputs_at(golden: Mapping[str, np.ndarray], t: int, last_action: Tensor) -> ObservationInputs:
    def group(prefix: str) -> dict[str, Tensor]:
        names = [name for name in golden if name.startswith(prefix)]
        return {name.removeprefix(prefix): torch.from_numpy(golden[name][t]) for name in names}

    return ObservationInputs(
        state=RobotState(group("state/")),
        goal=group("goal/"),
        last_action=last_action,
        sensed=group("sensed/"),
    )


def planned(spec: PolicySpec, golden: Mapping[str, np.ndarray]) -> np.ndarray:
    """True where the network's answer is used, (T, N): an ensemble's and single actions always."""
    age = np.zeros(GOLDEN_WORLDS, int)
    used: list[np.ndarray] = []
    for starting in golden["reset"]:
        age = np.where(starting, 0, age)
        used.append(age % spec.replan_interval == 0)
        age = age + 1
    return np.stack(used)


def record(
    spec: PolicySpec, network: Callable[..., Any], golden: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Observations, actions and commands of torch in the golden sequences."""
    last_action = torch.zeros(GOLDEN_WORLDS, spec.action_map.size)
    state = torch.zeros(GOLDEN_WORLDS, len(spec.initial_state))
    queue = None
    if spec.chunk_length > 1:
        queue = ChunkQueue(
            last_action, spec.chunk_length, spec.replan_interval, spec.ensemble_decay
        )
    observation_map = ObservationMap(spec.terms, _inputs_at(golden, 0, last_action))
    frames = FrameStacks(spec.cameras, GOLDEN_WORLDS)
    maker = CommandMaker(spec.action_map)
    steps: list[dict[str, np.ndarray]] = []
    for t in range(GOLDEN_STEPS):
        reset = torch.from_numpy(golden["reset"][t])
        last_action[reset] = torch.tensor(spec.initial_action)
        state[reset] = torch.tensor(spec.initial_state)
        inputs = _inputs_at(golden, t, last_action)
        obs = observation_map.update(inputs)
        obs[reset] = observation_map.reset(EnvSelection(reset), inputs)
        seen = map(torch.from_numpy, stacks_at(spec, golden, t, frames))
        if spec.initial_state:
            action, state = network(obs, *seen, state)
        else:
            action = network(obs, *seen)
        _check_action(action, spec)
        if queue is not None:
            queue.reset(reset)
            queue.put(action)
            action = queue.take()
        last_action = action.clone()
        outputs = {"observation": obs, "action": action}
        outputs |= command_arrays(maker.command(action, inputs.state, reset))
        steps.append({name: value.numpy().copy() for name, value in outputs.items()})
    return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def stacks_at(
    spec: PolicySpec, golden: Mapping[str, np.ndarray], t: int, frames: FrameStacks
) -> list[np.ndarray]:
    """Stacks of all cameras in step t, (N, S, H, W, C) each, of the step's frames and earlier."""
    frames.update(
        {
            name: golden[IMAGE_PREFIX + name][t].reshape(GOLDEN_WORLDS, *camera.frame)
            for name, camera in spec.cameras.items()
        },
        golden["reset"][t],
    )
    return [stack.copy() for stack in frames.stacks.values()]


def _check_action(action: Tensor, spec: PolicySpec) -> None:
    chunk = (spec.chunk_length,) if spec.chunk_length > 1 else ()
    expected = (GOLDEN_WORLDS, *chunk, spec.action_map.size)
    if tuple(action.shape) != expected:
        raise BundleError(
            f"the policy answers with shape {tuple(action.shape)}, expected {expected} (worlds, "
            "actions of a chunk if it has several, entries of the action map)"
        )
    if not bool((action.abs() <= 1).all()):
        raise BundleError(
            f"the policy's action {action.abs().max():.3g} leaves [-1, 1] or is not a number in a "
            "golden sequence; end the network with tanh or a clamp, and look for NaN weights"
        )
