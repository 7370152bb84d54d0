"""The robot that an actor moves, as an environment with one env: the one place that builds it.

An actor asks for what `RobotEnv` says: a step takes a control period, the steps between two
episodes lead the reset and take no action, and nothing blocks longer than a period.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor

from configs.schema import RunConfig, make_env
from hardware.learning.hardware_env import Phase
from hardware.learning.reset import ResetProgress
from hardware.ros.compat import require_ros
from policies.bundle import read_bundle
from policies.networks.frozen import FrozenBase, base_digest, base_folder
from robot_rl.cli.checks import check_beside_robots
from robot_rl.cli.components import make_base
from robot_rl.cli.learned_reward import check_one_process, with_reward
from robot_rl.cli.learning.direct_robot import DirectRobot
from robot_rl.cli.learning.led_robot import LedRobot
from robot_rl.cli.learning.options import LearnOptions, Person, Role
from robot_rl.cli.learning.real_robot import RealRobot
from robot_rl.cli.learning.ros_robot import RosRobot
from robot_rl.cli.learning.twin_robot import TwinRobot
from robot_rl.cli.teleoperation.twin_person import person_rule
from robot_rl.core.action import ActionMap
from robot_rl.core.base_action import BASE_ACTION, BaseActionEnv, BasePolicy, with_base_action
from robot_rl.core.env import BatchEnv, EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.cloning import CloningConfig
from robot_rl.learners.residual import ResidualConfig
from robot_rl.training.collector import missing_step


class RobotEnv(BatchEnv, Protocol):
    """A `BatchEnv` of one robot that says what it is doing."""

    @property
    def action_names(self) -> list[str]:
        """Meaning of each action entry; empty where it is not known."""
        ...

    @property
    def phase(self) -> Phase:
        """Occupation."""
        ...

    @property
    def prompt(self) -> str:
        """Text for the person that is waited for; empty where nobody is."""
        ...

    @property
    def progress(self) -> float:
        """Part of the reset that is done, in [0, 1]; of the time limit in an episode."""
        ...

    @property
    def reset_step(self) -> ResetProgress | None:
        """Present step of the reset; None where none is under way."""
        ...

    @property
    def stamp(self) -> float:
        """Measurement time of the newest observation, monotonic clock [s]."""
        ...

    @property
    def picture_stamps(self) -> Mapping[str, float]:
        """Time of each camera's newest frame, by group, likewise [s]; none where it is `stamp`."""
        ...

    @property
    def sees_success(self) -> bool:
        """The reward rule saw success in the last step, whether or not that ended the episode."""
        ...

    @property
    def probability(self) -> float | None:
        """Probability of success in the newest frame, where the reward rule knows one."""
        ...

    @property
    def doubt(self) -> str:
        """Question to a person: the reward rule did not know; empty where it did."""
        ...

    def start_reset(self, reason: str = "") -> None:
        """Leave the episode; the following steps lead the reset."""
        ...

    def skip_reset_step(self) -> None:
        """Go on to the next step of the reset; raises ConfigError where that must not be."""
        ...

    def end_episode(self, reason: str) -> None:
        """Truncate the episode at the end of the present period."""
        ...

    def confirm(self) -> None:
        """Say that what the prompt asks for is done."""
        ...


class SimulatedRobot:
    """A `RobotEnv` over one simulated env, in real time; its resets take no time."""

    prompt = ""
    """Nobody is ever waited for."""
    doubt = ""
    """Nobody is ever asked."""
    progress = 0.0
    """Not known."""
    reset_step = None
    """None takes any time."""
    probability = None
    """The task's rule knows yes and no."""
    picture_stamps: Mapping[str, float] = MappingProxyType({})
    """Pictures are of the newest observation."""

    def __init__(self, env: BatchEnv, *, pace: bool) -> None:
        """Take over an environment of one env; an episode begins in the first step."""
        self._env, self._pace = env, pace
        self.spec: EnvSpec = env.spec
        """Of the environment."""
        self.action_names: list[str] = []
        """Not known."""
        self.stamp = self._border = time.monotonic()
        """Time of the newest observation [s]."""
        self.phase = Phase.reset
        """Occupation."""
        self.sees_success = False
        """The last step met the task's rule."""
        self._ending = False

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        """Begin an episode."""
        self.phase, self._ending = Phase.running, False
        self._border = self.stamp = time.monotonic()
        return self._env.reset(seed, mask, state)

    def step(self, action: Tensor) -> EnvStep:
        """One control period; an episode that was to end is truncated after it."""
        if self.phase is Phase.reset:
            return missing_step(self.spec, self.reset(), 1)
        step = self._env.step(action)
        if self._ending and not bool(step.ended.any()):
            after = {name: group.clone() for name, group in step.next_obs.items()}
            step = replace(
                step, obs=self._env.reset(), next_obs=after,
                truncated=torch.ones_like(step.truncated),
            )  # fmt: skip
        self._ending, self.sees_success = False, bool(step.success)
        self._border = max(self._border + self.spec.control_dt, time.monotonic() - 1.0)
        if self._pace:
            time.sleep(max(0.0, self._border - time.monotonic()))
        self.stamp = time.monotonic()
        return step

    def start_reset(self, reason: str = "") -> None:
        """Leave the episode; the next step begins another."""
        self.phase = Phase.reset

    def skip_reset_step(self) -> None:
        """Refused; raises ConfigError."""
        raise ConfigError("resets of this environment take no time: there is no step to skip")

    def end_episode(self, reason: str) -> None:
        """Truncate the episode after the next step."""
        self._ending = self.phase is Phase.running

    def confirm(self) -> None:
        """Nothing waits."""

    def check(self) -> None:
        """Say what was not finite since the last check."""
        self._env.check()

    def state_dict(self) -> dict[str, Any]:
        """Of the environment."""
        return self._env.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of the environment."""
        self._env.load_state_dict(state)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class BasedRobot(BaseActionEnv):
    """A `RobotEnv` that observes what a base would do, whose plans begin with each episode.

    The base is not asked in a reset, whose observations nobody acts on.
    """

    def __init__(self, env: RobotEnv, base: BasePolicy) -> None:
        """Wrap a robot."""
        super().__init__(env, base)
        self._robot = env

    def step(self, action: Tensor) -> EnvStep:
        """One control period of the robot, and the base's answer to what came of it."""
        began = self._robot.phase is Phase.running
        step = self._robot.step(action)
        after = self.base.next(step.next_obs) if began else torch.zeros_like(self._action)
        self._action = after
        if self._robot.phase is Phase.running and (not began or bool(step.ended)):
            self._begin(torch.ones(1, dtype=torch.bool), step.obs)
        return replace(step, obs=self._shown(step.obs), next_obs=_with(step.next_obs, after))

    @property
    def action_names(self) -> list[str]:
        """As the robot."""
        return self._robot.action_names

    @property
    def phase(self) -> Phase:
        """As the robot."""
        return self._robot.phase

    @property
    def prompt(self) -> str:
        """As the robot."""
        return self._robot.prompt

    @property
    def progress(self) -> float:
        """As the robot."""
        return self._robot.progress

    @property
    def reset_step(self) -> ResetProgress | None:
        """As the robot."""
        return self._robot.reset_step

    @property
    def stamp(self) -> float:
        """As the robot [s]."""
        return self._robot.stamp

    @property
    def picture_stamps(self) -> Mapping[str, float]:
        """As the robot [s]."""
        return self._robot.picture_stamps

    @property
    def sees_success(self) -> bool:
        """As the robot."""
        return self._robot.sees_success

    @property
    def probability(self) -> float | None:
        """As the robot."""
        return self._robot.probability

    @property
    def doubt(self) -> str:
        """As the robot."""
        return self._robot.doubt

    def start_reset(self, reason: str = "") -> None:
        """As the robot."""
        self._robot.start_reset(reason)

    def skip_reset_step(self) -> None:
        """As the robot."""
        self._robot.skip_reset_step()

    def end_episode(self, reason: str) -> None:
        """As the robot."""
        self._robot.end_episode(reason)

    def confirm(self) -> None:
        """As the robot."""
        self._robot.confirm()


def _with(obs: Obs, base_action: Tensor) -> Obs:
    return {**obs, BASE_ACTION: base_action}


def led_robot(config: RunConfig, options: LearnOptions) -> LedRobot:
    """The robot that a loop stands before.

    Raises:
        ConfigError: The run's robot cannot be learned on so.
    """
    helped = options.person is not Person.none
    match options.driver:
        case "twin":
            return TwinRobot(config, options.twin)
        case "ros2":
            return RosRobot(config, options.ros2, helped=helped, topics=options.cameras)
        case plugin:
            return DirectRobot(
                config, options.direct, driver=plugin, driver_options=options.driver_options,
                helped=helped, topics=options.cameras,
            )  # fmt: skip


def make_robot_env(config: RunConfig, options: LearnOptions, *, seed: int) -> RobotEnv:
    """The robot that the options name.

    Raises:
        RobotRLError: The run's robot cannot be learned on so, or another actor commands it.
    """
    if options.driver != "sim":
        env: RobotEnv = led_robot(config, options).channel_env(options.channels, seed)
    else:
        env = SimulatedRobot(_simulated(config, seed), pace=options.pace)
    if not isinstance(config.learner, ResidualConfig):
        return env
    return BasedRobot(env, make_base(config, env.spec, 1))


def check_run(config: RunConfig, options: LearnOptions, words: Sequence[str] = ()) -> None:
    """Refuse learner, robot or person before anything is written or started.

    Args:
        words: Of the command line, beside the options.

    Raises:
        ConfigError: The run cannot learn on a robot so, or nobody of this kind can help.
    """
    if isinstance(config.learner, CloningConfig):
        raise ConfigError("this learner learns from demonstrations alone; take learner=rlpd")
    if getattr(config.learner, "noiseless_teacher", False):
        raise ConfigError(
            "learner.noiseless_teacher=true is for robot-rl train: a robot measures no true state; "
            "set learner.noiseless_teacher=false"
        )
    check_beside_robots(config, words)
    if isinstance(config.learner, ResidualConfig):
        base = make_base(config, robot_spec(config, options), 1)
        if options.driver != "sim":
            _check_base(base, led_robot(config, options).action_map)
    if options.driver == "sim":
        return
    robot = led_robot(config, options)
    robot.check_gripper()
    commands = getattr(getattr(config.learner, "gripper", None), "commands", None)
    if commands and not robot.action_map.gripper:
        raise ConfigError(
            f"learner.gripper.commands={commands} decide the last action, and none moves a gripper "
            "here; set learner.gripper.commands=[], or add that action: gripper=true of the "
            "driver's group, such as twin.gripper=true"
        )
    if isinstance(robot, RealRobot):
        robot.check()
    over_ros = isinstance(robot, RosRobot) or (isinstance(robot, RealRobot) and robot.cameras)
    if over_ros and options.role is not Role.learner:
        require_ros()
    if options.person is not Person.none:
        robot.person_target()
    if options.person is Person.simulated:
        person_rule(config, "person=console")


def _check_base(base: FrozenBase, here: ActionMap) -> None:
    """Refuse bundles whose actions mean something else than those of the robot here."""
    for path in (one.path for one in base.policies if one.path.is_dir()):
        told = read_bundle(path, verify=False)[0].action_map
        if _plain(told) != _plain(here):
            raise SpecMismatchError(
                f"actions of the base {path} mean something else than those of this robot: "
                f"{_plain(told)}, expected {_plain(here)}; take a base that learned, or was "
                "cloned, with the same driver= and options of its group, such as twin.translation"
            )


def _plain(action_map: ActionMap) -> str:
    return json.dumps(action_map.to_dict(), sort_keys=True)


def learner_spec(config: RunConfig, spec: EnvSpec) -> EnvSpec:
    """Shapes as the learner sees them: of a residual with what its base would do.

    Args:
        config: The run.
        spec: As `robot_spec` tells it.
    """
    return with_base_action(spec) if isinstance(config.learner, ResidualConfig) else spec


def robot_spec(config: RunConfig, options: LearnOptions) -> EnvSpec:
    """Shapes of that robot's environment, for the learner, which moves none; without a base."""
    if options.driver == "twin":
        with contextlib.closing(TwinRobot(config, options.twin).lockstep_env()) as robot:
            return robot.spec
    if options.driver != "sim":
        return led_robot(config, options).shapes(f"{options.channels}.{os.getpid()}")
    env = _simulated(config, config.seed)
    env.close()
    return env.spec


def robot_meaning(config: RunConfig, options: LearnOptions) -> dict[str, Any]:
    """Meaning of actions and observations, in plain values, on which learner and robot agree.

    Empty for the environments of others, which tell neither.
    """
    if config.robot is None or config.task is None:
        return {}
    told = {"action": config.robot.action_map(config.task).to_dict()}
    if options.driver != "sim":
        told = led_robot(config, options).meaning
    groups = {group: getattr(config.task, group, []) for group in ("actor", "critic")}
    terms = {name: [asdict(one) for one in groups[name]] for name in groups}
    base = {}
    if isinstance(config.learner, ResidualConfig):
        paths = config.learner.base.paths
        base = {"base": [base_digest(base_folder(one)) for one in paths]}
    return {**told, "terms": terms, **base}


def _simulated(config: RunConfig, seed: int) -> BatchEnv:
    env = make_env(
        config, num_envs=1, device=torch.device("cpu"), seed=derive_seed(seed, "robot") >> 32,
        evaluation=False,
    )  # fmt: skip
    check_one_process(config, "robot-rl learn")
    return with_reward(config, env)
