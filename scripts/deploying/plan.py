"""What a deployment consists of, worked out before anything is started."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.compose import compose, from_plain
from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.command_path import Laws
from hardware.control.robot_process import Mailboxes
from hardware.control.safety_limits import SafetyLimits
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig
from hardware.controllers.mixer import RotorLayout
from hardware.ros.command_messages import Gains
from hardware.ros.policy_node import gains_of
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from robot_rl.core.errors import BundleError, ConfigError, unknown_name
from robot_rl.core.robot import RobotSpec
from sim.twin import Twin

DRIVERS, MODES = ("twin",), ("policy", "shadow")
_RESTING = 0.15
"""How far a walking robot that lies on its own stops presses into them [rad]."""
LOOP_NODE = "loop"
"""Name of the node that speaks for the robot process: its services are `loop/arm` and so on."""


@dataclass(kw_only=True)
class RobotOptions:
    """Which policy, which robot, and where it is heard."""

    bundle: str = ""
    """Folder of the policy."""
    robot: str = ""
    """Name of the robot; the bundle's own if empty."""
    driver: str = "twin"
    """Who moves the robot: twin, a simulated one."""
    patience: float = 1.0
    """Factor on every time that the robot waits for policy, samples and loop: above 1 for a
    simulated robot on a busy machine."""
    domain: int = -1
    """ROS_DOMAIN_ID; -1 takes the environment's."""
    namespace: str = ""
    """Of all topics; the robot's name if empty."""

    def __post_init__(self) -> None:
        """Refuse what cannot be deployed."""
        if self.driver not in DRIVERS:
            raise ConfigError(unknown_name("driver", self.driver, DRIVERS))
        if not self.patience >= 1:
            raise ConfigError(f"patience must be >= 1, got {self.patience}")


@dataclass(kw_only=True)
class DoctorOptions(RobotOptions):
    """What `scripts/doctor.py` takes."""

    listen: float = 3.0
    """How long to listen to the robot's topics [s]."""


@dataclass(kw_only=True)
class DeployOptions(RobotOptions):
    """What `scripts/deploy.py` takes."""

    mode: str = "policy"
    """`policy` lets it move; `shadow` computes and holds."""
    seconds: float = 0.0
    """How long the policy is in charge [s]; 0 until Ctrl-C."""
    seed: int = 0
    """Of the twin's start, goals and noise."""

    def __post_init__(self) -> None:
        """Refuse what cannot be deployed."""
        super().__post_init__()
        if self.mode not in MODES:
            raise ConfigError(unknown_name("mode", self.mode, MODES))
        if not self.bundle:
            raise ConfigError("which policy? bundle=runs/<run>/bundle")
        if not self.seconds >= 0:
            raise ConfigError(f"seconds must be >= 0, got {self.seconds}")


def refuse_others(options: type[RobotOptions], rest: Sequence[str]) -> None:
    """Refuse fields of a run, which a bundle has settled, and whatever else is no option.

    Raises:
        ConfigError: There is one.
    """
    if rest:
        name = rest[0].partition("=")[0]
        raise ConfigError(unknown_name("option", name, [one.name for one in fields(options)]))


@dataclass(frozen=True)
class Deployment:
    """A bundle, a robot, and what joins them; every process makes its own from the options."""

    options: RobotOptions

    @cached_property
    def config(self) -> RunConfig:
        """The run that the bundle comes from, with the robot at hand."""
        path = Path(self.options.bundle) / "provenance.json"
        try:
            provenance: dict[str, Any] = json.loads(path.read_bytes())
            plain = provenance["config"]
        except (OSError, ValueError, KeyError) as error:
            raise BundleError(
                f"{path} does not say what the policy was trained for ({error}); export it again "
                "with scripts/export.py"
            ) from None
        config = from_plain(plain)
        if self.options.robot and self.options.robot != config.robot.spec.name:
            task = f"task={plain['schemas']['task']}"
            config.robot = compose([task, f"robot={self.options.robot}"]).config.robot
        return config

    @property
    def robot(self) -> RobotSpec:
        """The robot at hand."""
        return self.config.robot.spec

    @cached_property
    def runner(self) -> PolicyRunner:
        """The policy; a bundle of another robot is refused here."""
        robot = self.config.robot
        return load_bundle(
            self.options.bundle, robot=robot.spec, control_dt=robot.physics_dt * robot.decimation
        )

    @cached_property
    def gain_sets(self) -> dict[str, Gains]:
        """Sets of gains that the robot and the policy agree on."""
        return gains_of(self.runner.spec)

    @property
    def gain_names(self) -> list[str]:
        """Their names, in the order of the mailboxes; one empty name where there are no gains."""
        return [*self.gain_sets] or [""]

    @property
    def period(self) -> float:
        """Of the robot's loop [s]: the physics step of the twin."""
        return self.config.robot.physics_dt

    @property
    def domain(self) -> int | None:
        """For `RosSession`."""
        return None if self.options.domain < 0 else self.options.domain

    @property
    def namespace(self) -> str:
        """Of all topics."""
        return f"/{self.options.namespace or self.robot.name}"

    @property
    def mailboxes(self) -> Mailboxes:
        """Of the robot process; robots in other ROS domains do not meet."""
        return Mailboxes(f"{self.namespace.strip('/').replace('/', '.')}.{self.options.domain}")

    @property
    def world_widths(self) -> dict[str, int]:
        """Topics that the twin's world fills."""
        spec = self.runner.spec
        goals = {f"goal/{name}": width for name, width in spec.goal_widths.items()}
        return goals | {f"sensed/{name}": width for name, width in spec.sensed_widths.items()}

    def laws(self) -> Laws:
        """Controllers that the robot needs to be stopped."""
        if not self.robot.rotors:
            return Laws()
        plant = self.config.robot.model
        rotors = RotorLayout(
            rotor_position=plant.rotor_position, rotor_yaw_sign=plant.rotor_yaw_sign,
            thrust_curve=plant.thrust_curve, torque_per_thrust=plant.torque_per_thrust,
        )  # fmt: skip
        lag = max(plant.rotor_rise_time, plant.rotor_fall_time)
        # Twice the damping that makes a loop around such rotors critical: see `derivative`.
        damping = max(0.2, 2.0 * (20.0 * lag) ** 0.5 - 1.0)
        gains = BodyRatesConfig(inertia=plant.inertia, derivative=[damping, damping, 0.0])
        return Laws(stop=BodyRates(rotors, gains))

    def limits(self) -> SafetyLimits:
        """Thresholds of the robot.

        A policy that drives joints by stiffness asks for targets that its joints never reach: as a
        jump counts what lies beyond the reach of its actions.
        """
        return _patient(self._limits, self.options.patience)

    @property
    def _limits(self) -> SafetyLimits:
        if self.robot.rotors:
            return SafetyLimits.for_flight()
        action_map, joints = self.runner.spec.action_map, self.robot.num_joints
        ranges = zip(action_map.low[:joints], action_map.high[:joints], strict=True)
        reach = max((high - low) / 2 for low, high in ranges)
        usual = SafetyLimits()
        return replace(
            usual,
            first_command_jump=reach + usual.first_command_jump,
            range_tolerance=_RESTING if self.robot.feet else usual.range_tolerance,
        )

    @property
    def hover_thrust(self) -> float:
        """Share of the largest thrust that carries a drone."""
        plant = self.config.robot.model
        return 9.81 * plant.mass / (len(self.robot.rotors) * sum(plant.thrust_curve))

    def make_twin(self, seed: int) -> Twin:
        """The simulated robot, with a seed of its start, goals and noise."""
        return build_twin(self.config, seed=seed)


def _patient(limits: SafetyLimits, factor: float) -> SafetyLimits:
    """The same limits with longer times."""
    times = ("command_late", "command_lost", "state_late", "state_lost")
    return replace(
        limits,
        **{name: factor * getattr(limits, name) for name in times},
        overrun_share=min(1.0, factor * limits.overrun_share),
        overrun_ticks=round(factor * limits.overrun_ticks),
    )
