"""Gates: fly through a row of gates in their order, then wait behind the last.

A gate is an upright square opening in a frame of square bars. It is flown through along its
normal, which is level.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored, RobotState, TermConfig
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.robots.multirotor_robot import MultirotorRandomization
from sim.task import InitialState, StepOutcome, Task, TaskContext, closeness, square_sum
from sim.tasks.flights.flight import MULTIROTOR, FlightStartConfig


@dataclass(kw_only=True)
class CourseConfig:
    """Distribution of the courses, one per episode.

    Every gate is placed as seen from the one before, the first from the origin.
    """

    gates: int = 5
    """Gates of a course."""
    spacing: list[float] = field(default_factory=lambda: [1.0, 1.8])
    """Range of the level distance between neighbours [m]."""
    turn_deg: float = 60.0
    """Largest change of the way's direction at a gate, to either side [deg]."""
    climb: float = 0.3
    """Largest difference of height between neighbours [m]."""
    skew_deg: float = 20.0
    """Largest angle between the way to a gate and the gate's normal [deg]."""
    opening: float = 0.5
    """Inner edge of the square [m]."""
    bar: float = 0.05
    """Thickness of the frame's bars, in the gate's plane and across it [m]."""
    runout: float = 0.6
    """Distance behind the last gate of the place where the robot is to wait [m]."""

    def __post_init__(self) -> None:
        checks.positive(self, "gates", "opening", "bar", "runout", of="course")
        checks.interval(self, "spacing", of="course")
        checks.not_negative(self, "climb", of="course")
        for name in ("turn_deg", "skew_deg"):
            if not 0 <= getattr(self, name) < 90:
                raise ConfigError(
                    f"course.{name} must lie in [0, 90) degrees, got {getattr(self, name)}"
                )
        least = self.opening + 2 * self.bar
        if not self.spacing[0] > least:
            raise ConfigError(
                f"course.spacing must be wider than a gate with its frame ({least:g} m), "
                f"got {self.spacing}"
            )


class Flown(NamedTuple):
    """Passages and touches at every gate in one step, (N, K) bool each."""

    through: Tensor
    """The robot's centre went through the opening along the normal, with room for the robot."""
    touched: Tensor
    """The robot is in the frame, or went through it."""


class Courses:
    """One course per env."""

    def __init__(
        self, config: CourseConfig, num_envs: int, *, robot_radius: float, device: torch.device
    ) -> None:
        """Start with all gates in the origin; the robot is taken for a ball of a radius [m]."""
        self.config = config
        count = config.gates
        self.centre = torch.zeros(num_envs, count, 3, device=device)
        """Middle of every opening, (N, K, 3), [m], world axes."""
        self.normal = torch.zeros(num_envs, count, 3, device=device)
        """Direction of flight through it, (N, K, 3), unit, level, world axes."""
        self.state = {"centre": self.centre, "normal": self.normal}
        """All courses, live."""
        self._room = 0.5 * config.opening - robot_radius  # for the robot's centre
        self._outside = 0.5 * config.opening + config.bar + robot_radius
        self._depth = 0.5 * config.bar + robot_radius

    def draw(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Draw new courses for the picked envs."""
        config = self.config
        unit = draws.uniform((rows.count, config.gates, 4), -1.0, 1.0, generator)
        way = (math.radians(config.turn_deg) * unit[..., 0]).cumsum(1)  # direction, from x
        low, high = config.spacing
        level = 0.5 * (low + high) + 0.5 * (high - low) * unit[..., 1]
        step = torch.stack([level * way.cos(), level * way.sin(), config.climb * unit[..., 2]], -1)
        rows.put(self.centre, step.cumsum(1))
        facing = way + math.radians(config.skew_deg) * unit[..., 3]
        normal = torch.stack([facing.cos(), facing.sin(), torch.zeros_like(facing)], -1)
        rows.put(self.normal, normal)

    @property
    def places(self) -> Tensor:
        """Places to fly to: openings gate by gate, then where to wait, (N, K + 1, 3), [m]."""
        last = self.centre[:, -1] + self.config.runout * self.normal[:, -1]
        return torch.cat([self.centre, last[:, None]], dim=1)

    @property
    def corners(self) -> Tensor:
        """Corners of the openings, around each, (N, K * 12), [m], world axes."""
        half = 0.5 * self.config.opening
        left, up = half * self._left, torch.zeros_like(self.centre)
        up[..., 2] = half
        turns = [left + up, up - left, -left - up, left - up]
        return (self.centre[:, :, None] + torch.stack(turns, dim=2)).flatten(1)

    def fly(self, before: Tensor, after: Tensor) -> Flown:
        """Follow the robots for one step, on a straight line.

        Args:
            before: Positions at the step's start, (N, 3), [m], world axes.
            after: Positions at its end, (N, 3).
        """
        first, second = self._local(before), self._local(after)  # (N, K, 3)
        share = first[..., 0] / (first[..., 0] - second[..., 0])  # not finite if side by side
        crossing = first[..., 1:] + share[..., None] * (second[..., 1:] - first[..., 1:])
        forward = (first[..., 0] < 0) & (second[..., 0] >= 0)
        crossed = forward | ((first[..., 0] >= 0) & (second[..., 0] < 0))
        off = crossing.abs().amax(-1)
        inside = second[..., 1:].abs().amax(-1)
        frame = self._in_frame(inside) & (second[..., 0].abs() < self._depth)
        return Flown(
            through=forward & (off <= self._room), touched=frame | (crossed & self._in_frame(off))
        )

    @property
    def _left(self) -> Tensor:
        """Of a robot that flies through, (N, K, 3), unit, world axes."""
        x, y, zero = self.normal.unbind(-1)
        return torch.stack([-y, x, zero], dim=-1)

    def _local(self, position: Tensor) -> Tensor:
        """(N, 3) as seen from every gate: ahead of it, left of and above its middle, (N, K, 3)."""
        way = position[:, None] - self.centre
        ahead, left = (way * self.normal).sum(-1), (way * self._left).sum(-1)
        return torch.stack([ahead, left, way[..., 2]], dim=-1)

    def _in_frame(self, off: Tensor) -> Tensor:
        """True where a centre so far off the middle is in the bars, to the left or above."""
        return (off > self._room) & (off < self._outside)


@dataclass(kw_only=True)
class GatesConfig:
    """The gates task: success is that all gates have been passed, without touching one.

    It stands beside `FlightTaskConfig`, whose goal is a place to be near to.
    """

    robot_kind: ClassVar[RobotKind] = MULTIROTOR
    """Kind of robot that the task is for."""

    train_steps: int = 12_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 8.0
    """Time limit [s]."""
    robot_radius: float = 0.07
    """Of the ball that the robot is taken for [m]: how near to a frame its centre may come."""
    radius: float = 3.0
    """Distance from the next gate beyond which an episode terminates [m]."""
    max_rates: float = 40.0
    """Body rate beyond which an episode terminates [rad/s]: who tumbles so is lost."""
    pace: float = 1.2
    """Speed towards the next gate that is paid at most [m/s]: who hurries hits frames."""
    close: float = 0.2
    """Distance from the place behind the last gate at which `waiting` is one half [m]."""
    course: CourseConfig = field(default_factory=CourseConfig)
    """Distribution of the courses, in training and in evaluation."""
    start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Starts of training episodes, around the origin; the first gate stands before it."""
    evaluation_start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Starts of evaluation episodes, likewise."""
    randomization: MultirotorRandomization = field(default_factory=MultirotorRandomization)
    """Physical parameters drawn per episode."""
    reward: dict[str, float] = field(default_factory=dict)
    """Weight of each reward term by its name; 0 only records it."""
    actor: list[TermConfig] = field(default_factory=list)
    """Inputs of the policy: only what the robot measures, and the next two gates."""
    critic: list[TermConfig] = field(default_factory=list)
    """Inputs of the critic: the true state and what only a simulator knows."""

    def __post_init__(self) -> None:
        sizes = ("episode_length", "robot_radius", "radius", "max_rates", "pace", "close")
        checks.positive(self, *sizes)
        if 2 * self.robot_radius >= self.course.opening:
            raise ConfigError(
                f"task.robot_radius {self.robot_radius:g} m does not fit through an opening of "
                f"{self.course.opening:g} m; widen task.course.opening"
            )
        way = math.hypot(self.course.spacing[1], self.course.climb)
        farthest = max(way, self.course.runout)
        if self.radius <= farthest:
            raise ConfigError(
                f"task.radius must exceed the way to the next gate, up to {farthest:g} m, "
                f"got {self.radius:g} m"
            )


class GatesTask(Task):
    """Fly one course per env."""

    def __init__(self, config: GatesConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        count, device = context.num_envs, context.device
        self._dt = context.control_dt
        self._start = config.evaluation_start if context.evaluation else config.start
        self._hover_action = torch.tensor(context.hover_action, device=device)
        self._courses = Courses(
            config.course, count, robot_radius=config.robot_radius, device=device
        )
        self._env_ids = torch.arange(count, device=device)
        self._passed = torch.zeros(count, dtype=torch.int64, device=device)
        self._before = torch.zeros(count, 3, device=device)  # position, a step ago [m]
        self.goal = self._look()

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weights of the terms; a configuration may leave `rates` unweighted."""
        return {"rates": 0.0, **self.config.reward}

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirror images of normals and of the number of gates ahead."""
        return {
            "gate_normals_w": robot.kind(Mirrored.vector, 6),
            "gates_ahead": robot.kind(Mirrored.same, 1),
        }

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw courses, and starts around the origin."""
        self._courses.draw(rows, generator)
        rows.put(self._passed, 0)
        fields = self._start.draw(rows.count, generator)
        rows.put(self._before, fields.position_w)
        for name, values in self._look().items():
            rows.put(self.goal[name], rows.take(values))
        return InitialState(robot=fields)

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the way to the next gate and through it; touching a frame terminates."""
        config, count = self.config, self.config.course.gates
        position = true_state.position_w
        place = self.goal["position_w"]
        was, distance = (place - self._before).norm(dim=-1), (place - position).norm(dim=-1)
        flown = self._courses.fly(self._before, position)
        arrived = self._passed == count
        next_gate = self._passed.clamp(max=count - 1)
        through = flown.through[self._env_ids, next_gate] & ~arrived
        rates = true_state.angular_velocity_b
        lost = (distance > config.radius) | (rates.norm(dim=-1) > config.max_rates)
        crashed = flown.touched.any(-1) | lost
        terms = {
            "alive": torch.ones_like(distance),
            "progress": ((was - distance) / self._dt).clamp(max=config.pace),  # [m/s]
            "passed": through.float(),
            "waiting": closeness(distance, config.close) * arrived,
            "crash": crashed.float(),
            "heading": 1 - true_state.orientation_w[:, 0] ** 2,  # as of hover
            "rates": square_sum(rates),  # [rad^2/s^2]
            "effort": square_sum(action - self._hover_action),
            "smoothness": square_sum(action - last_action),
        }
        self._before.copy_(position)
        self._passed += through
        for name, values in self._look().items():
            self.goal[name].copy_(torch.where(through[:, None], values, self.goal[name]))
        return StepOutcome(
            reward_terms=terms,
            terminated=crashed,
            success=self._passed == count,
            metrics={
                "gates_passed": self._passed / count,
                "distance": distance,
                "speed": true_state.linear_velocity_w.norm(dim=-1),
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Courses, and how far the robots are."""
        return {
            "courses": self._courses.state,
            "passed": self._passed,
            "before": self._before,
            "goal": self.goal,
        }

    def _look(self) -> dict[str, Tensor]:
        """Goals of the next two gates; behind the last, normals are zero."""
        count, places = self.config.course.gates, self._courses.places
        normals = torch.cat([self._courses.normal, torch.zeros_like(places[:, :1])], dim=1)
        first, second = self._passed, (self._passed + 1).clamp(max=count)
        return {
            "position_w": places[self._env_ids, first],
            "preview_w": places[self._env_ids, second],
            "gate_normals_w": torch.cat(
                [normals[self._env_ids, first], normals[self._env_ids, second]], dim=-1
            ),
            "gates_ahead": ((count - self._passed) / count)[:, None],
            "gate_corners_w": self._courses.corners,  # to be drawn
        }
