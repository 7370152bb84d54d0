"""A robot as an environment to learn in: one control period a step, whatever happens to the robot.

    step(action): command -> loop (person, safety, limits) -> what was really followed, and its end

Rows are valid only where somebody, policy or person, moved the robot in every tick of the period,
and every sensor was fresh at both of its ends. A pause (the robot holds or was stopped, its process
does not answer) makes the period invalid and truncates the episode, with a `reason`; so
does a camera whose picture the policy must not see: old, frozen, black, of another size.

The step in which an episode ends returns its true successor. The steps after it lead the reset,
are invalid, and ignore their action; the last of them returns the observation that the next episode
begins with. So nothing ever blocks for longer than a control period, and whoever steps can look at
`phase`, `prompt` and `progress` meanwhile. `reset` steps until an episode has begun.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardware.control.safety import SafetyState
from hardware.control.world import GOAL, OUTCOME, SENSED
from hardware.learning.cameras import EpisodeCameras
from hardware.learning.operation import request_towards_policy
from hardware.learning.period import action_of, happened, silence
from hardware.learning.port import Readings, RobotPort
from hardware.learning.reset import Reset, ResetConfig, ResetContext, ResetProgress, reset_step
from hardware.learning.rewards import RewardInputs, RewardRule, StepJudgement
from hardware.learning.setpoints import LedCommand, same, standing
from robot_rl.core.action import ActionMap, describe_meaning
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec, Obs, TermSpec
from robot_rl.core.env_selection import Array, EnvSelection
from robot_rl.core.errors import ConfigError, NonFiniteError, StaleStateError, unknown_name
from robot_rl.core.observation import ObservationInputs, ObservationMap, RobotState, TermConfig
from robot_rl.core.pose_target import TARGET_OFFSET, PoseTarget
from robot_rl.core.robot_command import RobotCommand, opening_of, with_opening
from robot_rl.core.seeding import derive_seed

STATE = "state"
"""Name of the robot's own state among `ages` and `max_age`."""
_METRICS = ("state_age", "command_age", "beyond_action")
_STATE_AGE, _SENSED_AGE = 0.1, 0.5
_PICTURE_PERIODS = 3.0
"""Control periods after a reset in which nobody is told that pictures have not come yet."""
_LATE = 0.5
"""Part of a control period by which a caller may come late without the period beginning then."""


class Phase(Enum):
    """Occupation of a learning environment."""

    reset = "reset"
    """Leads the robot to the start of the next episode."""
    waiting = "waiting"
    """Waits for a person, or for a robot that can be led: `prompt` says for what."""
    running = "running"
    """An episode is under way."""


@dataclass(kw_only=True)
class HardwareEnvConfig:
    """Periods, ends and resets of episodes on a robot."""

    control_dt: float = 0.1
    """Control period [s]."""
    episode_length: float = 10.0
    """Time limit [s]."""
    terminate_on_success: bool = True
    """Success ends the episode, and no future counts; False goes on until the time limit."""
    operates: bool = False
    """Arm the robot and hand it to the policy without a person, also after trouble, but not where a
    person stopped it: for simulated robots only (`request_towards_policy`)."""
    max_age: dict[str, float] = field(default_factory=dict)
    """Age from which on a sensor makes steps invalid [s], by the name of a further input, or
    `state`; what is left out has 0.1 s for the state and 0.5 s for the others."""
    initial_action: float = 0.0
    """Every entry of the "last action" at an episode's start."""
    reset: ResetConfig = field(default_factory=ResetConfig)
    """Tasks, and the way to the start of their episodes."""

    def __post_init__(self) -> None:
        for name in ("control_dt", "episode_length"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be a number > 0, got {getattr(self, name)}")
        if not all(age > 0 for age in self.max_age.values()):
            raise ConfigError(f"max_age must be > 0, got {self.max_age}")

    @property
    def episode_steps(self) -> int:
        """Control periods until an episode is truncated."""
        return max(1, round(self.episode_length / self.control_dt))


class HardwareEnv:
    """One robot as a `BatchEnv`, N = 1, over a `RobotPort`."""

    def __init__(
        self, port: RobotPort, action_map: ActionMap, terms: Sequence[TermConfig],
        config: HardwareEnvConfig, rewards: Mapping[str, RewardRule], *,
        goals: Mapping[str, np.ndarray] | None = None, cameras: EpisodeCameras | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        """Check that everything fits; the robot is first asked for by `reset` or `start_reset`.

        Args:
            port: Access to the robot.
            action_map: From actions to setpoints, joint targets or poses.
            terms: Observation group `actor`, as of the task.
            config: Periods, ends and resets.
            rewards: Rule of each task of `config.reset`.
            goals: Goals that nobody tells, (1, width).
            cameras: Cameras that the policy sees; closed with this.
            seed: Of the starts that a simulated world draws.

        Raises:
            ConfigError: A task has no rule, or a reset asks for what the robot cannot do.
            SpecMismatchError: A term or the action map does not fit the robot.
        """
        action_map.check_robot(port.spec)
        self.port = port
        """The robot."""
        self._map, self._config, self._cameras = action_map, config, cameras
        self._goals = {name: np.asarray(value) for name, value in (goals or {}).items()}
        self._limit = config.episode_steps
        self._rng = np.random.default_rng(derive_seed(seed, "episodes"))
        self._tasks = [task.name for task in config.reset.tasks]
        for name in self._tasks:
            if name not in rewards:
                raise ConfigError(f"rewards: {unknown_name('task', name, rewards)}")
        self._rewards = dict(rewards)
        self._resets = {
            task.name: [reset_step(values) for values in task.steps] for task in config.reset.tasks
        }
        for step in [step for steps in self._resets.values() for step in steps]:
            step.check(port.spec, action_map)
        self._last_action = self._start_action()
        self._target: PoseTarget | None = None
        self._opening: Array | None = None  # of the gripper, followed last
        example = self._example()
        standing(action_map, example.state)  # refuses a kind of command that holds no pose
        self._observer = ObservationMap(terms, example)
        self._ages = {STATE: config.max_age.get(STATE, _STATE_AGE)} | {
            name: config.max_age.get(name, _SENSED_AGE)
            for name in example.sensed
            if name != TARGET_OFFSET
        }
        for name in config.max_age:
            if name not in self._ages:
                raise ConfigError(f"max_age: {unknown_name('sensor', name, self._ages)}")
        self.spec = EnvSpec(
            num_envs=1, device=torch.device("cpu"), action_size=action_map.size,
            control_dt=config.control_dt, robot=port.spec, metric_names=_METRICS, resumable=False,
            groups={"actor": GroupSpec(
                shape=(self._observer.size,),
                terms=tuple(
                    TermSpec(name=one["term"], width=one["width"], history=one["history"])
                    for one in self._observer.layout()
                ),
            ), **({} if cameras is None else cameras.groups)},
            meaning=describe_meaning(action_map, {"actor": terms}),
        )  # fmt: skip
        self.episode = 0
        """Number of the present episode, from 1; 0 before the first."""
        self.steps = 0
        """Control periods of the present episode so far."""
        self.reason = ""
        """Reason why the last episode ended, or is being reset: `success`, `terminated`, `time
        limit`, what `end_episode` was told, or a pause with its cause."""
        self.missed = 0
        """Control periods that were lost since the caller came too late for them."""
        self.sees_success = False
        """The reward rule saw success in the last step, whether or not that ended the episode."""
        self.probability: float | None = None
        """Of success in the newest frame, where the reward rule knows one."""
        self.doubt = ""
        """Question to a person about the present episode, or the last one in a reset: the reward
        rule did not know; empty where it did."""
        self._turn = -1
        self._there_at = math.nan  # time at which the reset had led the robot to its start
        self._ending = ""
        self._fresh = False
        self._faults: list[str] = []
        self._prompt = ""
        self._running = False
        self._readings = Readings(now=port.now())
        self._border = self._readings.now
        self._reset: Reset | None = None
        self._setpoint: LedCommand | None = None
        self._obs = np.zeros((1, self._observer.size), np.float32)

    @property
    def action_names(self) -> list[str]:
        """Meaning of each action entry: an axis of the end effector or a joint, and the gripper."""
        motion = self._map.pose
        names = motion.axes if motion else [joint.name for joint in self.port.spec.joints]
        return [*names, "gripper"] if self._map.gripper else [*names]

    @property
    def phase(self) -> Phase:
        """Occupation: an episode, a reset, or waiting for somebody."""
        if self._running:
            return Phase.running
        return Phase.waiting if self.prompt else Phase.reset

    @property
    def prompt(self) -> str:
        """Text for the person: what is waited for; empty where nothing is."""
        if self._running or self._prompt or self._reset is None:
            return self._prompt
        return self._reset.context.prompt

    @property
    def progress(self) -> float:
        """Part of the reset that is done, in [0, 1]; of the time limit in an episode."""
        if self._running:
            return self.steps / self._limit
        return 0.0 if self._reset is None else self._reset.progress

    @property
    def reset_step(self) -> ResetProgress | None:
        """Present step of the reset; None in an episode, and where none is under way."""
        return None if self._running or self._reset is None else self._reset.present

    @property
    def task(self) -> str:
        """Name of the task of the present episode, or of the next one while it is reset."""
        return self._tasks[self._turn % len(self._tasks)]

    @property
    def readings(self) -> Readings:
        """Everything that was known of the robot at the end of the last period."""
        return self._readings

    @property
    def target_offset(self) -> dict[str, Any]:
        """Way from the measured pose to the target at the end of the last period, (1, 6), by name.

        Empty where actions displace no target, or nothing is measured.
        """
        state = self._readings.state
        return {} if state is None else self._offset(state.fields)

    @property
    def stamp(self) -> float:
        """Measurement time of the state in the last observation, clock of the loop [s]."""
        return self._readings.state_stamp

    @property
    def picture_stamps(self) -> dict[str, float]:
        """Time at which each camera's newest frame was taken, by group, clock of the loop [s]."""
        return {} if self._cameras is None else self._cameras.stamps

    @property
    def ages(self) -> dict[str, float]:
        """Age of every sensor at the end of the last period, by name [s]; infinite before any."""
        readings = self._readings
        stamps = {STATE: readings.state_stamp, **readings.sensed_stamps}
        return {name: readings.now - stamps.get(name, -math.inf) for name in self._ages}

    def confirm(self) -> None:
        """Say that what the prompt asks for is done."""
        if self._reset is not None:
            self._reset.context.confirmed = True

    def skip_reset_step(self) -> None:
        """Go on to the next step of the reset.

        Raises:
            ConfigError: None is under way, or the present one must not be skipped.
        """
        if self._running or self._reset is None:
            raise ConfigError("no reset is under way: there is no step to skip")
        self._reset.skip()

    def end_episode(self, reason: str) -> None:
        """Truncate the episode at the end of the present period; ends nothing in a reset."""
        if self._running:
            self._ending = reason

    def start_reset(self, reason: str = "") -> None:
        """Leave the episode and begin the reset; the following steps lead it.

        Episodes go on to the next task only when one has ended: a reset that is begun anew, or an
        episode that is left, is of the same task again.
        """
        self._border = self.port.now()
        self._readings = self.port.read()
        self._begin_reset(reason, next_task=self._turn < 0)

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        """Begin an episode; steps through the reset, however long a person takes for it."""
        self.spec.check_reset(mask, state)
        if seed is not None:
            self._rng = np.random.default_rng(derive_seed(seed, "episodes"))
        if state is not None:
            self.load_state_dict(state)
        if mask is None or bool(mask.any()):
            self.start_reset()
            while not self._running:
                self._lead()
        return self._observed()

    def step(self, action: Tensor) -> EnvStep:
        """One control period: of the episode, or of the reset after it, which takes no action."""
        self.spec.check_action(action)
        if self._running:
            return self._act(action.detach().numpy().astype(np.float64))
        if self._turn < 0:
            raise ConfigError("step was asked for before the first reset; call reset first")
        self._lead()
        return self._step(StepJudgement(), valid=False, intervened=False)

    def check(self) -> None:
        """Say what was not finite since the last check.

        Raises:
            NonFiniteError: Names it.
        """
        faults, self._faults = list(dict.fromkeys(self._faults)), []
        if faults:
            raise NonFiniteError(
                f"{' and '.join(faults)} was NaN or infinite in env 0; expected finite numbers: "
                "look at the policy, or at the sensor of that term"
            )

    def state_dict(self) -> dict[str, Any]:
        """Stream of starts, and whose turn it is; a robot itself cannot be saved."""
        return {"rng": self._rng.bit_generator.state, "turn": self._turn, "episode": self.episode}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore these; the episode that was under way is lost."""
        self._rng.bit_generator.state = state["rng"]
        self._turn, self.episode = int(state["turn"]), int(state["episode"])
        if self._running:
            self.start_reset("restored")

    def close(self) -> None:
        """Let go of the robot; allowed more than once."""
        self.port.close()
        if self._cameras is not None:
            self._cameras.close()

    # The period of an episode.

    def _act(self, action: np.ndarray) -> EnvStep:
        before = self._readings
        asked = self._clean(action)
        command = self._command(asked, before)
        self.port.send(command, before.state_stamp)
        after = self._pass_period()
        intervened, pause = happened(before, after)
        executed, beyond = self._executed(asked, command, after, intervened)
        self._last_action = executed.astype(np.float32)
        self.steps += 1
        inputs = self._inputs(after)
        self._obs = self._observer.update(inputs)
        if self._cameras is not None:
            self._look(self._cameras)
            self._cameras.move_on()
            pause = pause or self._cameras.fault
        judgement = self._judge(inputs, after, intervened) if not pause else StepJudgement()
        self.sees_success, self.probability = judgement.success, judgement.probability
        if judgement.uncertain and not self.doubt:
            self.doubt = (
                f"the reward is uncertain from step {self.steps} of episode {self.episode} on: "
                "label it as a success or a failure"
            )
        was_fresh, self._fresh = self._fresh, self._is_fresh()
        known = after.executed is not None and self._is_made(after.executed.setpoint)
        valid = not pause and known and was_fresh and self._fresh and self._finite()
        done = judgement.success and self._config.terminate_on_success
        terminated = judgement.terminated or done
        truncated = self._truncation(pause)
        if terminated or truncated:
            self.reason = truncated
            if terminated:
                self.reason = "success" if judgement.success else "terminated"
        made = self._step(
            judgement, valid=valid, intervened=intervened, terminated=terminated,
            truncated=bool(truncated) and not terminated, beyond=beyond,
        )  # fmt: skip
        if terminated or truncated:
            self._begin_reset(self.reason, next_task=True)
        return made

    def _clean(self, action: np.ndarray) -> np.ndarray:
        """Action within [-1, 1], (1, A), float64; one that is no number stands still."""
        finite = np.isfinite(action)
        if not finite.all():
            self._faults.append("the action")
            still = self._last_action
            if self._map.pose:  # displacements; the gripper has none
                joints = self._map.size - self._map.gripper
                still = np.where(np.arange(self._map.size) < joints, 0.0, still)
            action = np.where(finite, action, still)
        return action.clip(-1.0, 1.0)

    def _command(self, action: np.ndarray, readings: Readings) -> RobotCommand:
        if self._target is None:
            return self._map.to_command(action)
        assert readings.state is not None  # no episode runs without one
        return self._target.command(action, readings.state)

    def _pass_period(self) -> Readings:
        """Let a period pass; it begins where the one before ended, or now for a late caller."""
        late = self.port.now() - self._border
        if late > _LATE * self._config.control_dt:
            self.missed += max(1, round(late / self._config.control_dt))
            self._border += late
        self._border += self._config.control_dt
        self.port.wait_until(self._border)
        self._readings = self.port.read()
        self._operate()
        return self._readings

    def _operate(self) -> None:
        status = self._readings.status
        if not self._config.operates or status is None or silence(self._readings):
            return
        request = request_towards_policy(status)
        if request is not None:
            self.port.request(request)

    def _executed(
        self, asked: np.ndarray, command: RobotCommand, after: Readings, person: bool
    ) -> tuple[np.ndarray, bool]:
        """Action that was really executed, (1, A), and True if it is only the nearest one."""
        followed = None if after.executed is None else after.executed.setpoint
        if followed is None or not self._is_made(followed):
            return asked, False
        if self._map.gripper:
            followed = with_opening(followed, self._opening)
            self._opening = opening_of(followed)
        if not person and same(followed, command):
            found = asked, False
        else:
            found = action_of(followed, self._map, self._target)
        if self._target is not None:
            self._target.follow(followed)
        return found

    def _is_made(self, setpoint: RobotCommand | None) -> bool:
        """True if actions make such setpoints: a person may lead the robot by others."""
        return setpoint is not None and self._map.makes(setpoint)

    def _judge(self, inputs: ObservationInputs, after: Readings, intervened: bool) -> StepJudgement:
        return self._rewards[self.task].judge(
            RewardInputs(
                inputs=inputs,
                obs=self._arrays(),
                outcome=after.outcome,
                step=self.steps,
                stamp=after.state_stamp,
                intervened=intervened,
            )
        )

    def _truncation(self, pause: str) -> str:
        """Reason to truncate the episode now; empty for none."""
        ending, self._ending = self._ending, ""
        if pause or ending:
            return pause or ending
        return "time limit" if self.steps >= self._limit else ""

    def _finite(self) -> bool:
        """False, and noted, where the observation is not finite."""
        good = bool(np.isfinite(self._obs).all())
        if not good:
            self._faults.append("the observation")
        return good

    # The periods of a reset.

    def _begin_reset(self, reason: str, *, next_task: bool) -> None:
        self.reason, self._running, self._ending = reason, False, ""
        self.probability = None
        self._turn += next_task
        self._reset, self._setpoint, self._prompt = None, None, ""
        self._there_at = math.nan
        self._plan()

    def _lead(self) -> None:
        """One period of a reset; begins the episode at its end, where all is done."""
        if self._setpoint is not None:
            self.port.send(self._setpoint, self._readings.state_stamp)
        self._pass_period()
        self._plan()
        reset = self._reset
        sees = self._cameras is None or not self._cameras.fault
        if reset is not None and reset.done and sees and not self._prompt:
            self._begin_episode(reset.context.hold)
        elif self._readings.state is not None and not self._untold:
            self._obs = self._observer.look(self._inputs(self._readings))

    @property
    def _untold(self) -> list[str]:
        """Goals and further inputs that have never been told."""
        told = {GOAL + name for name in {**self._goals, **self._readings.goal}}
        told |= {SENSED + name for name in self._readings.sensed}
        return [name for name in self.port.world_widths if name not in (*told, OUTCOME)]

    def _plan(self) -> None:
        """Decide on the setpoint of the next period, from the newest readings."""
        readings, self._prompt, self._setpoint = self._readings, "", None
        executed, trouble = readings.executed, silence(readings)
        if trouble or executed is None or readings.state is None:
            self._prompt = trouble or "the robot has not measured anything yet"
            return
        hold = standing(self._map, readings.state)
        if self._reset is None:
            held = executed.setpoint if executed.safety is SafetyState.POLICY else None
            self._reset = Reset(
                self._resets[self.task],
                ResetContext(
                    readings=readings, hold=_kept(held, hold), action_map=self._map,
                    dt=self._config.control_dt, speed=self._config.reset.speed,
                    turn_speed=self._config.reset.turn_speed, begin_world=self._begin_world,
                ),
            )  # fmt: skip
        if executed.safety is not SafetyState.POLICY:
            self._setpoint = self._reset.interrupt(readings)
            self._prompt = self._unled(executed.safety)
            self._there_at = math.nan
            return
        self._setpoint = self._reset.advance(readings)
        if self._reset.done and not self._is_fresh():
            old = [name for name, age in self.ages.items() if age > self._ages[name]]
            self._prompt = f"waits for new measurements of {', '.join(old)}"
        elif self._reset.done and self._untold:
            self._prompt = f"waits for {', '.join(self._untold)}"
        elif self._reset.done and self._cameras is not None:
            if math.isnan(self._there_at):
                self._there_at = readings.now
            self._look(self._cameras, since=self._there_at)
            late = readings.now - self._there_at > _PICTURE_PERIODS * self._config.control_dt
            if self._cameras.fault and late:
                self._prompt = f"waits for pictures: {self._cameras.fault}"

    def _look(self, cameras: EpisodeCameras, since: float = -math.inf) -> None:
        """Judge the newest pictures."""
        state = self._readings.state
        cameras.look({} if state is None else state.fields, self._readings.now, since)

    def _unled(self, safety: SafetyState) -> str:
        """Prompt while the robot does not follow the policy's channel."""
        if safety is SafetyState.HUMAN:
            return "a person moves the robot: hand it back to go on"
        status = self._readings.status
        why = status.refused or status.trip if status is not None else ""
        return f"the robot is in '{safety.value}'{f' ({why})' if why else ''}: enable the policy"

    def _begin_world(self) -> int:
        return self.port.begin_world(int(self._rng.integers(2**31)))

    def _begin_episode(self, hold: LedCommand) -> None:
        state = self._readings.state
        assert state is not None
        self.episode, self.steps, self._running = self.episode + 1, 0, True
        self._last_action = self._start_action()
        self._opening = hold.gripper
        if self._map.pose is not None:
            self._target = PoseTarget(self._map, state)
            self._target.start(hold.position_w, hold.orientation_w)  # type: ignore[union-attr]
        inputs = self._inputs(self._readings)
        self._obs = self._observer.reset(EnvSelection(np.ones(1, bool)), inputs)
        if self._cameras is not None:  # `_plan` has just looked
            self._cameras.move_on(starting=True)
        self._fresh, self.doubt = self._is_fresh(), ""
        self._rewards[self.task].begin(
            RewardInputs(
                inputs=inputs,
                obs=self._arrays(),
                outcome=self._readings.outcome,
                step=0,
                stamp=self._readings.state_stamp,
            )
        )

    # What is observed and handed on.

    def _inputs(self, readings: Readings) -> ObservationInputs:
        if readings.state is None:
            raise StaleStateError("an observation was asked for, but the robot measured nothing")
        return self._as_inputs(readings.state.fields, readings.goal, readings.sensed)

    def _example(self) -> ObservationInputs:
        """Inputs of the right widths, with attitudes that are some."""
        fields = {
            name: np.eye(1, width) if width == 4 else np.zeros((1, width))
            for name, width in self.port.spec.state_widths.items()
        }
        widths = self.port.world_widths
        parts: dict[str, dict[str, np.ndarray]] = {"goal": {}, "sensed": {}}
        for name, width in widths.items():
            kind, _, short = name.partition("/")
            if kind in parts:
                parts[kind][short] = np.zeros((1, width))
        return self._as_inputs(fields, parts["goal"], parts["sensed"])

    def _as_inputs(
        self, fields: Mapping[str, Any], goal: Mapping[str, Any], sensed: Mapping[str, Any]
    ) -> ObservationInputs:
        def narrow(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
            return {name: np.asarray(value, dtype=np.float32) for name, value in values.items()}

        own = self._offset(fields)
        return ObservationInputs(
            state=RobotState(narrow(fields)), goal=narrow({**self._goals, **goal}),
            last_action=self._last_action, sensed=narrow({**sensed, **own}),
        )  # fmt: skip

    def _offset(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Way from the measured pose to the target, where actions displace one."""
        if self._map.pose is None:
            return {}
        away = None if self._target is None else self._target.offset(RobotState(fields))
        return {TARGET_OFFSET: np.zeros((1, 6)) if away is None else away}

    def _start_action(self) -> np.ndarray:
        return np.full((1, self._map.size), self._config.initial_action, np.float32)

    def _is_fresh(self) -> bool:
        return all(age <= self._ages[name] for name, age in self.ages.items())

    def _arrays(self) -> dict[str, np.ndarray]:
        """Observation groups, overwritten by the next period."""
        return {"actor": self._obs, **({} if self._cameras is None else self._cameras.stacks)}

    def _observed(self) -> Obs:
        return {name: torch.from_numpy(group.copy()) for name, group in self._arrays().items()}

    def _step(
        self, judgement: StepJudgement, *, valid: bool, intervened: bool, terminated: bool = False,
        truncated: bool = False, beyond: bool = False,
    ) -> EnvStep:  # fmt: skip
        reward = judgement.reward
        if not math.isfinite(reward):
            self._faults.append("the reward")
            reward, valid = 0.0, False
        success = judgement.success and (terminated or truncated)
        executed = self._readings.executed
        answers = -math.inf if executed is None else executed.answers
        command_age = self._readings.now - answers if math.isfinite(answers) else 0.0
        state_age = min(self.ages[STATE], 1e6)
        return EnvStep(
            obs=self._observed(), next_obs=self._observed(), reward=torch.tensor([float(reward)]),
            terminated=torch.tensor([terminated]), truncated=torch.tensor([truncated]),
            success=torch.tensor([success]), valid=torch.tensor([valid]),
            action=torch.from_numpy(self._last_action.copy()),
            intervened=torch.tensor([intervened]),
            metrics={
                name: torch.tensor([float(value)])
                for name, value in zip(_METRICS, (state_age, command_age, beyond), strict=True)
            },
        )  # fmt: skip


def _kept(held: RobotCommand | None, measured: LedCommand) -> LedCommand:
    """Setpoint that a reset begins at: the one that is followed, or the measured pose."""
    return held if isinstance(held, type(measured)) else measured
