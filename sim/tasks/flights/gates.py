"""Gates: fly through a row of gates in their order, then wait behind the last."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot_state import Mirrored, RobotState
from sim.robots.multirotor_robot import MultirotorRandomization
from sim.task import InitialState, StepOutcome, Task, TaskContext
from sim.tasks import checks
from sim.tasks.flights.course import CourseConfig, Courses
from sim.tasks.flights.flight import FlightStartConfig
from sim.tasks.terms import closeness, square_sum


@dataclass(kw_only=True)
class GatesConfig:
    """The gates task: success is that all gates have been passed, without touching one.

    It stands beside `FlightTaskConfig`, whose goal is a place to be near to.
    """

    train_steps: int = 8_000_000
    """World-steps of training: half of the courses are passed then (docs/worlds.md)."""
    episode_length: float = 8.0
    """Time limit [s]."""
    robot_radius: float = 0.07
    """Of the ball that the robot is taken for [m]: how near to a frame its centre may come."""
    radius: float = 3.0
    """Distance from the next gate beyond which an episode terminates [m]."""
    max_rates: float = 40.0
    """Body rate beyond which an episode terminates [rad/s]: who tumbles so is lost."""
    pace: float = 1.5
    """Speed towards the next gate that is paid at most [m/s]: who hurries hits frames."""
    close: float = 0.2
    """Distance from the place behind the last gate at which `waiting` is one half [m]."""
    course: CourseConfig = field(default_factory=CourseConfig)
    """Where the gates stand, in training and in evaluation."""
    start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Where training episodes begin, around the origin; the first gate stands before it."""
    evaluation_start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Where evaluation episodes begin, likewise."""
    randomization: MultirotorRandomization = field(default_factory=MultirotorRandomization)
    """Physical parameters drawn per episode."""
    reward: dict[str, float] = field(default_factory=dict)
    """Weight of each reward term; terms left out weigh 0."""
    actor: list[TermConfig] = field(default_factory=list)
    """What the policy sees: only what the robot measures, and the next two gates."""
    critic: list[TermConfig] = field(default_factory=list)
    """What the critic sees: the true state and what only a simulator knows."""

    def __post_init__(self) -> None:
        """Refuse tasks that cannot be judged, and gates that nobody fits through."""
        checks.positive(
            self,
            "episode_length",
            "robot_radius",
            "radius",
            "max_rates",
            "pace",
            "close",
        )
        if 2 * self.robot_radius >= self.course.opening:
            raise ConfigError(
                f"task.robot_radius {self.robot_radius:g} m does not fit through an opening of "
                f"{self.course.opening:g} m; widen task.course.opening"
            )
        farthest = max(self.course.spacing[1], self.course.runout)
        if self.radius <= farthest:
            raise ConfigError(
                f"task.radius must exceed the way to the next gate, up to {farthest:g} m, "
                f"got {self.radius:g} m"
            )


class GatesTask(Task):
    """Fly one course per world."""

    def __init__(self, config: GatesConfig, context: TaskContext) -> None:
        """Prepare N envs."""
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
        """What a mirror does to normals and to the number of gates ahead."""
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

    def state_dict(self) -> dict[str, Any]:
        """Courses, and how far the robots are."""
        return {
            "courses": self._courses.state_dict(),
            "passed": self._passed.clone(),
            "before": self._before.clone(),
            "goal": {name: value.clone() for name, value in self.goal.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._courses.load_state_dict(state["courses"])
        self._passed.copy_(state["passed"])
        self._before.copy_(state["before"])
        for name, value in state["goal"].items():
            self.goal[name].copy_(value)

    def _look(self) -> dict[str, Tensor]:
        """What the next two gates ask for; behind the last, normals are zero."""
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
