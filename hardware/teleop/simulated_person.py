"""A simulated person behind the interface of a real one: imperfect on purpose, and seeded.

    sees, late -> takes over, leads or gives back -> stick, with noise -> labels, late

What they know of the task is a `PersonRule`. Everything else is as of people: they react after
0.3 s, knowing what they did meanwhile (Smith, "Closer control of loops with dead time", 1957), they
watch a policy and take over when it stalls or drifts, now and then without a reason; sometimes they
lead the wrong way at first; they press the key 0.3 to 1 s after the event.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.cartesian_impedance import clipped
from hardware.teleop.intent import Floats, Intent, StickConfig, shaped
from hardware.teleop.teleoperator import Teleoperator
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState


@dataclass(kw_only=True)
class PersonConfig:
    """Skills and faults; the defaults are guesses at a trained operator."""

    reaction: float = 0.3
    """Age of what they act on [s]."""
    response: float = 0.22
    """Time constant with which the robot follows, which they are used to [s]."""
    gain: float = 2.0
    """Speed per distance that they steer with [1/s]."""
    noise: float = 0.05
    """Standard deviation of the deflection, which wanders with `noise_time`."""
    noise_time: float = 0.3
    """Time constant of that noise [s]."""
    stall_time: float = 1.5
    """Time without progress after which they take over [s]."""
    progress: float = 0.003
    """Decrease of the distance that counts as progress [m]."""
    drift: float = 0.05
    """Increase of the distance over the least so far at which they take over [m]."""
    wrong_takeovers: float = 0.02
    """Rate of take-overs without a reason [1/s]."""
    wrong_corrections: float = 0.15
    """Chance that an intervention begins with a lead the wrong way."""
    wrong_time: float = 0.5
    """Time of such a lead [s]."""
    finishes: float = 0.5
    """Chance that they finish the task in an intervention; else they give back a good state."""
    least_lead: float = 0.6
    """Least time of an intervention [s]."""
    label_delay: tuple[float, float] = (0.3, 1.0)
    """Range of the time from an event to the key [s]."""
    wrong_labels: float = 0.0
    """Chance that a label says the opposite."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            values = value if isinstance(value, tuple | list) else [value]
            if not all(0 <= one < math.inf for one in values):
                raise ConfigError(f"simulated person: {name} must be >= 0, got {value}")
        if self.label_delay[0] > self.label_delay[1]:
            raise ConfigError(f"simulated person: label_delay {self.label_delay} is no range")

    @classmethod
    def perfect(cls) -> "PersonConfig":
        """Somebody who sees at once, never errs and always finishes."""
        return cls(
            reaction=0.0, gain=5.0, noise=0.0, wrong_takeovers=0.0, wrong_corrections=0.0,
            finishes=1.0, label_delay=(0.0, 0.0),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PersonView:
    """Robot and scene as a person sees them at a time."""

    state: RobotState
    """Of the robot, as measured."""
    sensed: Mapping[str, np.ndarray]
    """Measurements beside it, (1, width) each."""
    over: bool = False
    """The episode has ended."""


_TRY_AGAIN = 0.5
"""Time after which a request that was refused is made again [s]."""


class PersonRule(Protocol):
    """Way to do a task, in terms of the end effector's motion."""

    def begin(self) -> None:
        """Forget the episode before."""
        ...

    def twist(self, view: PersonView, moved: Floats, ahead: Floats, gain: float) -> Floats:
        """Motion that goes on with the task, (6,), [m/s, rad/s], base axes.

        Args:
            moved: Motion that was asked for since the last call, (6,), [m, rad].
            ahead: Motion that was asked for and is not to be seen yet, (6,), [m, rad].
            gain: Speed per distance [1/s].
        """
        ...

    def distance(self, view: PersonView) -> float:
        """Distance that is left [m]."""
        ...

    def good(self, view: PersonView) -> bool:
        """A state from which a policy may be expected to go on."""
        ...

    def done(self, view: PersonView) -> bool:
        """The task looks done."""
        ...


class SimulatedPerson:
    """Watches, takes over, leads, gives back and labels, through a `Teleoperator`."""

    def __init__(
        self,
        teleoperator: Teleoperator,
        rule: PersonRule,
        config: PersonConfig | None = None,
        *,
        alone: bool = False,
        seed: int = 0,
        speeds: tuple[float, float] = (0.1, 0.6),
    ) -> None:
        """Sit down at the robot.

        Args:
            alone: There is no policy: they take the robot over at once and keep it.
            seed: Of everything that is drawn.
            speeds: Linear [m/s] and angular [rad/s] speed at full deflection, as of the target.
        """
        self.config = config or PersonConfig()
        """Skills and faults."""
        self._hand, self._rule, self._alone = teleoperator, rule, alone
        self._stick: StickConfig = teleoperator.config.stick
        self._speeds = np.array([speeds[0]] * 3 + [speeds[1]] * 3)
        self._random = np.random.default_rng(seed)
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A new episode begins."""
        self._rule.begin()
        self._seen: deque[tuple[float, PersonView]] = deque()
        self._asked: deque[tuple[float, Floats]] = deque()  # motion of each tick [m, rad]
        self._noise = np.zeros(6)
        self._least, self._progress_at = math.inf, now
        self._leads = False
        self._led_since, self._wrong_until, self._finish = now, now, True
        self._wrong_way = np.zeros(6)
        self._tried_at = -math.inf
        self._event: tuple[str, float] | None = None
        self._told = False
        self._ticked = now
        self.takeovers = self.wrong = 0
        """Take-overs of this episode, and those of them without a reason."""

    def tick(self, view: PersonView, now: float) -> None:
        """See, decide, and hold the device; before the teleoperator's own tick.

        Args:
            now: Clock of the loop [s].
        """
        dt, self._ticked = now - self._ticked, now
        self._seen.append((now, view))
        while len(self._seen) > 1 and self._seen[1][0] <= now - self.config.reaction:
            self._seen.popleft()
        since, known = self._seen[0]
        leads = self._hand.status(now)["authority"] == "human"
        if leads and not self._leads:
            self._begin_lead(now)
        self._leads = leads
        if leads and view.over and now - self._tried_at >= _TRY_AGAIN:
            self._tried_at = now
            self._hand.give_back(now)
        axes = np.zeros(6)
        if since <= now - self.config.reaction:  # else they have seen nothing yet
            self._watch_for_labels(known, now)
            if leads and not known.over:
                axes = self._lead(known, now, dt)
            elif self._wants_robot(known, now):
                self._take_over(now)
        said = {"axes": axes.tolist(), "clutch": bool(leads and axes.any())}
        self._hand.set_intent(said, now)

    def take_label(self, now: float) -> tuple[str, float] | None:
        """Key that is pressed by now, `success` or `fail`, with the time of the press; once."""
        if self._event is None or now < self._event[1]:
            return None
        event, self._event = self._event, None
        return event

    def _lead(self, view: PersonView, now: float, dt: float) -> Floats:
        """Deflections that go on with the task, or the wrong way at first."""
        config, ahead = self.config, np.zeros(6)
        while self._asked and now - self._asked[0][0] > config.reaction + 4 * config.response:
            self._asked.popleft()
        for asked, moved in self._asked:  # what is not to be seen yet
            late = now - asked - config.reaction
            ahead += moved if late <= 0 else math.exp(-late / config.response) * moved
        moved = self._asked[-1][1] if self._asked else np.zeros(6)
        twist = self._rule.twist(view, moved, ahead, config.gain)
        share = np.clip(twist / self._speeds, -1.0, 1.0)
        if now < self._wrong_until:
            share = self._wrong_way
        if self._may_give_back(view, now):
            self._hand.give_back(now)
        if config.noise > 0 and dt > 0:
            keep = math.exp(-dt / config.noise_time)
            fresh = self._random.normal(size=6) * config.noise * math.sqrt(1 - keep * keep)
            self._noise = keep * self._noise + fresh
        axes = np.clip(self._deflection(share) + self._noise, -1.0, 1.0)
        done = shaped(Intent(axes=axes, clutch=True), self._stick)  # a hand is felt at once
        self._asked.append((now, done * self._speeds * dt))
        return axes

    def _deflection(self, share: Floats) -> Floats:
        """Deflections that the stick's curve turns into these shares: people get used to it."""
        dead = np.array(self._stick.deadband)
        size = dead + (1 - dead) * np.abs(share) ** (1 / self._stick.exponent)
        return np.where(share == 0, 0.0, np.sign(share) * size)

    def _wants_robot(self, view: PersonView, now: float) -> bool:
        """True where the policy stalls or drifts, or for no reason."""
        if view.over or now - self._tried_at < _TRY_AGAIN:
            return False
        if self._alone:
            return True
        config, left = self.config, self._rule.distance(view)
        if left < self._least - config.progress:
            self._least, self._progress_at = left, now
        stalls = now - self._progress_at > config.stall_time and not self._rule.done(view)
        if stalls or left > self._least + config.drift:
            return True
        if self._random.random() < config.wrong_takeovers * 0.02:
            self.wrong += 1
            return True
        return False

    def _take_over(self, now: float) -> None:
        self.takeovers += 1
        self._tried_at = now
        self._hand.take_over(now)

    def _begin_lead(self, now: float) -> None:
        config, draw = self.config, self._random
        self._led_since = now
        self._finish = self._alone or bool(draw.random() < config.finishes)
        if draw.random() < config.wrong_corrections:
            self._wrong_until = now + config.wrong_time
            way = draw.normal(size=3)
            self._wrong_way = np.concatenate([0.5 * way / np.linalg.norm(way), np.zeros(3)])
        self._asked.clear()

    def _may_give_back(self, view: PersonView, now: float) -> bool:
        if self._alone or now - self._led_since < self.config.least_lead:
            return False
        if now - self._tried_at < _TRY_AGAIN:
            return False
        if self._rule.done(view) or (not self._finish and self._rule.good(view)):
            self._tried_at = now
            self._least, self._progress_at = math.inf, now
            return True
        return False

    def _watch_for_labels(self, view: PersonView, now: float) -> None:
        done = self._rule.done(view)
        if self._told or not (done or view.over):
            return
        self._told = True
        label = "success" if done else "fail"
        if self._random.random() < self.config.wrong_labels:
            label = "fail" if label == "success" else "success"
        # What they saw is `reaction` old already; the key comes so long after the event.
        delay = self._random.uniform(*self.config.label_delay)
        self._event = label, now - self.config.reaction + max(delay, self.config.reaction)


_TOOL_LENGTH = 0.06
"""From the end effector to the peg's tip [m]."""
_OVER = 0.005
"""Height of the tip over the mouth from which it goes down [m]."""
_ALIGNED, _LARGEST_STRAY = 0.00035, 0.0007
"""Distance from the axis at which the tip goes down, and at which it comes up again [m]."""
_STEEPEST = 0.05
"""Height over that at which the tip comes from the side, at most [m]: not into the block's edge."""
_SQUARE = 0.02
"""Turn against the hole at which the tip goes down [rad]."""
_RIM, _RIM_TIME = 0.0015, 0.3
"""Height of a tip that stands on the rim [m], and the time after which it is lifted again [s]."""
_CAUGHT = -0.002
"""Height of the tip below which the walls lead it [m]."""
_HOLE_DEPTH, _DONE_DEPTH = 0.04, 0.032
"""Depth of the hole, and of a peg that looks inserted [m]."""
_WITHIN = 0.005
"""Distance from the axis within which a tip below the mouth is in the hole [m]."""
_PUSH = 0.012
"""Depth under the tip that is aimed at before the walls lead it [m]: how hard it pushes."""
_SMOOTHING, _MOVING_SMOOTHING = 0.4, 0.1
"""Time constants with which a measured place is averaged by eye, at rest and in motion [s]."""
_STILL = 0.0008
"""Motion to the side that is still on its way, below which the tip counts as at rest [m]."""


class PegRule:
    """Brings a peg over its hole, aligns it, and pushes it in: needs `hole_position`, `hole_axis`.

    The end effector's z axis points along the peg, and its x axis along the hole's at the end.
    """

    def __init__(self, period: float = 0.02) -> None:
        """Begin; `twist` is asked for once in a period [s]."""
        self._period = period
        self._share = [-math.expm1(-period / time) for time in (_SMOOTHING, _MOVING_SMOOTHING)]
        self.begin()

    def begin(self) -> None:
        """Forget where the hole was."""
        self._holes: list[Floats] = []
        self._axes: list[Floats] = []
        self._aim: Floats | None = None
        self._down = self._lifts = False
        self._resting = 0

    def twist(self, view: PersonView, moved: Floats, ahead: Floats, gain: float) -> Floats:
        """Over the mouth, then down, up again where it strays or stands on the rim."""
        mouth, axis = self._hole(view)
        tip, attitude = _tip_of(view)
        # Where the tip will come to rest: what one asks for is exact, what one sees is not.
        coming = tip + ahead[:3]
        self._aim = coming if self._aim is None else self._aim + moved[:3]
        moves = float(np.linalg.norm(ahead[:2])) > _STILL
        self._aim = self._aim + self._share[moves] * (coming - self._aim)
        aim = self._aim - mouth
        height = float(tip[2] - mouth[2])
        turn = _turn_to(attitude, axis) - ahead[3:]
        beside = float(np.linalg.norm(aim[:2]))
        caught = height < _CAUGHT
        if caught or (not moves and beside < _ALIGNED and float(np.linalg.norm(turn)) < _SQUARE):
            self._down = True
        elif beside > _LARGEST_STRAY:
            self._down = False
        self._resting = self._resting + 1 if self._down and abs(height) < _RIM else 0
        if self._resting * self._period > _RIM_TIME:
            self._lifts = True
        if self._lifts:
            self._down, self._lifts = False, height < 0.6 * _OVER
        goal = np.array([0.0, 0.0, _OVER + min(beside, _STEEPEST)])
        if self._down:
            goal[2] = -_HOLE_DEPTH if caught else height - _PUSH
        return np.concatenate([clipped(gain * (goal - aim), 0.1), clipped(gain * turn, 0.6)])

    def distance(self, view: PersonView) -> float:
        """From the tip to the hole's ground [m]."""
        mouth, _ = self._hole(view)
        tip, _ = _tip_of(view)
        return float(np.linalg.norm(tip - mouth + [0.0, 0.0, _HOLE_DEPTH]))

    def good(self, view: PersonView) -> bool:
        """The tip is over the hole or in it."""
        mouth, _ = self._hole(view)
        tip, _ = _tip_of(view)
        return float(np.linalg.norm(tip[:2] - mouth[:2])) < 0.003

    def done(self, view: PersonView) -> bool:
        """The tip is deep in the hole, not beside the block."""
        mouth, _ = self._hole(view)
        tip, _ = _tip_of(view)
        beside = float(np.linalg.norm(tip[:2] - mouth[:2]))
        return float(tip[2] - mouth[2]) < -_DONE_DEPTH and beside < _WITHIN

    def _hole(self, view: PersonView) -> tuple[Floats, Floats]:
        """Mouth and axis by all that was seen of them: a block stands still."""
        place = np.array(view.sensed["hole_position"][0], dtype=np.float64)
        if not self._holes or not np.array_equal(place, self._holes[-1]):
            self._holes.append(place)
            self._axes.append(np.array(view.sensed["hole_axis"][0], dtype=np.float64))
        return np.mean(self._holes, axis=0), np.mean(self._axes, axis=0)


def _tip_of(view: PersonView) -> tuple[Floats, rotations.Quaternion]:
    attitude = rotations.quaternion(view.state.end_effector_orientation_b)
    hand = np.array(view.state.end_effector_position_b[0], dtype=np.float64)
    along = np.array(rotations.rotate(attitude, (0.0, 0.0, _TOOL_LENGTH)))
    return hand + along, attitude


def _turn_to(attitude: rotations.Quaternion, axis: Floats) -> Floats:
    """Rotation vector to the attitude that points down with its x axis along a direction."""
    yaw = math.atan2(axis[1], axis[0])
    down = (0.0, math.cos(0.5 * yaw), math.sin(0.5 * yaw), 0.0)
    return np.array(
        rotations.rotation_vector(rotations.multiply(down, rotations.conjugate(attitude)))
    )
