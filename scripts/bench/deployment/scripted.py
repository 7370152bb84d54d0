"""Policies of a few numbers, without training, as bundles: one for every robot that ships."""

# The bindings of MuJoCo 4 carry no types.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import Tensor, nn

from configs.compose import compose, to_plain
from configs.schema import RunConfig
from configs.twin_builder import build_twin
from policies.cameras import CameraInput
from policies.export import export_bundle
from robot_rl.core.observation import ObservationInputs, ObservationMap
from scripts.bench.deployment.balance import Balance
from sim.robots.joint_simulation import MujocoSimulation
from sim.twin import Twin

GRAVITY = 9.81


class Linear(nn.Module):
    """Actions that are a matrix times the observation, and an offset."""

    def __init__(self, weight: np.ndarray, offset: Sequence[float]) -> None:
        """Take a matrix (D, A) and an offset (A,)."""
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float32))
        self.offset = nn.Parameter(torch.tensor(offset, dtype=torch.float32))

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        """Actions, (N, A)."""
        return (obs["actor"] @ self.weight + self.offset).clamp(-1.0, 1.0)


def write_constant_policy(folder: Path, action: float, *overrides: str, **provenance: str) -> Path:
    """A robot that is told one pose, that of 0 being its default."""
    config = compose(list(overrides)).config
    twin = build_twin(config, seed=0)
    twin.connect()
    size = config.robot.action_map(config.task).size
    constant = Linear(np.zeros((observed_size(config, twin), size)), [action] * size)
    return write_bundle(folder, config, twin, constant, **provenance)


def write_standing_policy(folder: Path, **provenance: str) -> Path:
    """A go2 that keeps every joint at its default position."""
    return write_constant_policy(folder, 0.0, "task=velocity", "robot=go2", **provenance)


class Trot(nn.Module):
    """A go2 that trots as fast forward, and turns as fast, as its goal asks; it stands at zero.

    Diagonal legs swing together, by the gait's clock, which stands where the goal is zero.
    """

    SWING, LIFT, LEAD, TURN = 0.4, 0.25, 1.0, 0.2
    """Of the thighs for each m/s [rad], of calves [rad], by which the lift leads the swing [rad],
    and speed of a side for each rad/s of turn [m]: tried on the twin, 0.39 m/s for 0.8 asked."""

    def __init__(self, goal: int, scale: float) -> None:
        """Take the place of the goal, before the clock, and what an action of 1 adds [rad]."""
        super().__init__()
        self.goal = goal
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        """Actions, (N, 12): hip, thigh and calf of FL, FR, RL and RR."""
        seen = obs["actor"][:, self.goal : self.goal + 5]
        ahead, turn, sine, cosine = seen[:, 0], seen[:, 2], seen[:, 3], seen[:, 4]
        lead = torch.tensor(self.LEAD)
        wave = cosine * torch.cos(lead) + sine * torch.sin(lead)
        parts: list[Tensor] = []
        for phase, side in ((1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0)):
            lift = self.LIFT * (phase * wave).clamp_min(0.0)
            swing = -self.SWING * (ahead - self.TURN * side * turn) * phase * sine
            parts += [torch.zeros_like(lift), swing + lift, -2 * lift]
        return (torch.stack(parts, dim=1) / self.scale).clamp(-1.0, 1.0)


def write_trotting_policy(folder: Path, *overrides: str) -> Path:
    """A go2 that walks where it is asked to."""
    config = compose(["task=velocity", "robot=go2", *overrides]).config
    twin = build_twin(config, seed=0)
    twin.connect()
    sizes = _widths(config, twin)
    goal = [term.term for term in config.task.actor].index("goal/velocity_b")
    return write_bundle(folder, config, twin, Trot(sum(sizes[:goal]), config.robot.action_scale))


def write_reaching_policy(folder: Path, gain: float = 1.0) -> Path:
    """A Panda that pulls its hand to the goal as a spring would, along the default pose's lines.

    Args:
        gain: Stiffness of that spring; joints that follow at once ask for less than 1, or the hand
            swings where answers come late.
    """
    config = compose(["task=reach", "robot=panda"]).config
    twin = build_twin(config, seed=0)
    twin.connect()
    joints = twin.spec.num_joints
    scale = config.robot.action_scale
    weight = np.zeros((observed_size(config, twin), joints))
    weight[:joints] = np.eye(joints) / scale  # from where it is
    rows = slice(2 * joints, 2 * joints + 3)  # the error comes after positions and velocities
    weight[rows] = -gain * _jacobian(twin) / (config.task.actor[2].scale * scale)
    offset = [-joint.default_position / scale for joint in twin.spec.joints]
    return write_bundle(folder, config, twin, Linear(weight, offset))


def write_rates_policy(folder: Path, robot: str = "crazyflie") -> Path:
    """A drone told body rates: it leans against its way and its speed."""
    config = compose(["task=hover", f"robot={robot}", "robot.action=body_rates"]).config
    twin = build_twin(config, seed=0)
    twin.connect()
    roll, pitch, yaw = config.robot.rate_loop.rates
    hover = config.robot.model.hover_thrust
    weight = np.zeros((observed_size(config, twin), 4))
    # Columns: way from the goal 3, rotation matrix 9, velocity 3, and so on.
    for axis, (action, sign) in enumerate(((1, 1.0), (0, -1.0))):
        gain = 2.5 * sign / (pitch if action == 1 else roll)
        weight[axis, action] = -0.8 * gain / GRAVITY
        weight[12 + axis, action] = -1.4 * gain / GRAVITY
        weight[3 + 3 * axis + 2, action] = -gain  # how far body z leans along this axis
    weight[3 + 3, 2] = -2.0 / yaw  # heading
    weight[2, 3], weight[14, 3] = -2 * hover * 2.0 / GRAVITY, -2 * hover * 2.5 / GRAVITY
    return write_bundle(folder, config, twin, Linear(weight, [0.0, 0.0, 0.0, 2 * hover - 1]))


def write_balancing_policy(folder: Path) -> Path:
    """A G1 that stands on its two feet, at 50 Hz in a loop of 500 Hz."""
    config = compose([
        "task=velocity", "robot=g1", "robot.physics_dt=0.002", "robot.decimation=10",
    ]).config  # fmt: skip
    twin = build_twin(config, seed=0, held=True)
    twin.connect()
    simulation = twin.simulation
    assert isinstance(simulation, MujocoSimulation)
    balance = Balance(simulation.engine.model, twin.spec, steps=config.robot.decimation)
    terms = {term.term: term for term in config.task.actor}
    weight = np.zeros((observed_size(config, twin), twin.spec.num_joints))
    first = 0
    for term, width in zip(config.task.actor, _widths(config, twin), strict=True):
        if term.term in balance.gains:
            frames = width // term.history
            for frame in range(term.history):  # their mean: the noise of one is too much
                rows = slice(first + frame * frames, first + (frame + 1) * frames)
                gain = balance.gains[term.term] / (term.scale * term.history)
                weight[rows] = gain / config.robot.action_scale
        first += width
    assert terms.keys() >= balance.gains.keys()
    default = np.array([joint.default_position for joint in twin.spec.joints])
    offset = (balance.offset - default) / config.robot.action_scale
    return write_bundle(folder, config, twin, Linear(weight, offset.tolist()))


def _jacobian(twin: Twin) -> np.ndarray:
    """Way of the hand per joint position in the default pose, (3, J)."""
    simulation = twin.simulation
    assert isinstance(simulation, MujocoSimulation)
    model, joints = simulation.engine.model, twin.spec.num_joints
    data, jacobian = mujoco.MjData(model), np.zeros((3, model.nv))
    data.qpos[:joints] = [joint.default_position for joint in twin.spec.joints]
    mujoco.mj_forward(model, data)
    site = int(model.sensor("end_effector_position_b").objid[0])
    mujoco.mj_jacSite(model, data, jacobian, None, site)
    return jacobian[:, :joints]


def observed_size(config: RunConfig, twin: Twin) -> int:
    """Entries of what the actor of a task sees."""
    return sum(_widths(config, twin))


def _widths(config: RunConfig, twin: Twin) -> list[int]:
    """Entries of each term, with its history."""
    size = config.robot.action_map(config.task).size
    inputs = ObservationInputs(
        state=twin.read(), goal=twin.goal, last_action=np.zeros((1, size)), sensed=twin.sensed
    )
    return [ObservationMap([term], inputs).size for term in config.task.actor]


def write_bundle(
    folder: Path, config: RunConfig, twin: Twin, policy: nn.Module,
    cameras: Mapping[str, CameraInput] | None = None, /, **provenance: str,
) -> Path:  # fmt: skip
    """A bundle of a policy for a connected twin; `cameras` are those that it sees."""
    action_map = config.robot.action_map(config.task)
    return export_bundle(
        folder, policy=policy, terms=config.task.actor, robot=twin.spec, action_map=action_map,
        control_dt=twin.control_dt,
        goal_widths={name: value.shape[1] for name, value in twin.goal.items()},
        clocks=dict(twin.task.clocks), playback=twin.task.playback,
        sensed_widths={name: value.shape[1] for name, value in twin.sensed.items()},
        initial_action=[config.robot.initial_action] * action_map.size, cameras=cameras,
        provenance={"config": to_plain(config), **provenance},
    )  # fmt: skip


SCRIPTED: Mapping[str, Callable[[Path], Path]] = {
    "panda": write_reaching_policy,
    "ur5e": lambda folder: write_constant_policy(folder, 0.0, "task=reach", "robot=ur5e"),
    "ur5e_2f85": lambda folder: write_constant_policy(folder, 0.0, "task=reach", "robot=ur5e_2f85"),
    "allegro": lambda folder: write_constant_policy(folder, 0.0, "task=reorient", "robot=allegro"),
    "go1": lambda folder: write_constant_policy(folder, 0.0, "task=velocity", "robot=go1"),
    "go2": write_standing_policy,
    "g1": write_balancing_policy,
    "crazyflie": write_rates_policy,
    "x500": partial(write_rates_policy, robot="x500"),
}
"""Writers of a bundle, by robot."""
