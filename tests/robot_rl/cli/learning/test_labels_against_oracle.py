"""Ten thousand episodes that people label late, undo, relabel and discard, against a plain account.

The robot keeps a diary of every step, the person one of every key. What the learner must end up
with is worked out from both diaries at the end; what it has is what the real actor recorded, read
back from its spool. Times lie on a grid of 1 ms, keys half-way between.
"""

import contextlib
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from hardware.learning.hardware_env import Phase
from robot_rl.cli.learning.actor import Actor
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from robot_rl.link.corrections import Correction
from robot_rl.link.records import decode
from robot_rl.link.spool import Spool
from robot_rl.link.store import Begun
from robot_rl.link.transitions import Changed, Transition, TransitionAssembler
from robot_rl.training.collector import missing_step
from robot_rl.training.config import OnlineConfig
from tests.fakes import CPU, small_sac
from tests.robot_rl.cli.learning.test_actor import Person, weights_of

SPEC = EnvSpec(
    num_envs=1, device=CPU, groups={"actor": GroupSpec(shape=(2,))}, action_size=1, control_dt=0.1
)
LEAST, MOST = 300, 1000
"""Reaction of people [ms]."""


@dataclass
class Step:
    """A step in the robot's diary; times in ms."""

    episode: int
    index: int
    begin: int
    end: int
    obs: list[float]
    action: float
    after: list[float]
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    seen: bool
    success: bool
    intervened: bool
    segment: str


class ChanceRobot:
    """A robot in which everything happens by chance, and is written down."""

    spec = SPEC
    prompt = ""
    action_names = ("ahead",)
    picture_stamps = MappingProxyType({})

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now = rng, 10_000
        self.diary: list[Step] = []
        self.episode, self.index = -1, 0
        self.phase, self.sees_success, self.doubt = Phase.reset, False, ""
        self.probability, self.progress, self.reset_step = None, 0.0, None
        self.name = ""  # of the person's steps, since the last that was none
        self.ending = ""
        self._left, self._person, self._seen = 1, False, False
        self._obs = [0.0, 0.0]

    @property
    def stamp(self) -> float:
        return self.now / 1000

    def start_reset(self, reason: str = "") -> None:
        self.phase = Phase.reset

    def skip_reset_step(self) -> None:
        raise AssertionError("nobody skips")

    def end_episode(self, reason: str) -> None:
        assert self.phase is Phase.running
        self.ending = reason

    def confirm(self) -> None:
        pass

    def check(self) -> None:
        pass

    def step(self, action: torch.Tensor) -> EnvStep:
        begin, rng = self.now, self.rng
        self.now += rng.randint(70, 130)
        if self.phase is Phase.reset:
            self._left -= 1
            if self._left <= 0:
                self.phase, self._ends = Phase.running, rng.random() < 0.5
                self._limit, self._seen = rng.randint(1, 14), False
                self._obs = self._drawn()
            return missing_step(SPEC, self._as_obs(), 1)
        if self.index == 0:
            self.episode += 1
        self._person = rng.random() < (0.7 if self._person else 0.15)
        self._seen = rng.random() < (0.6 if self._seen else 0.1)
        made = float(np.float32(rng.uniform(-1, 1))) if self._person else action.item()
        before, self._obs = self._obs, self._drawn()
        pause, ending, self.ending = rng.random() < 0.02, self.ending, ""
        terminated = not pause and (rng.random() < 0.03 or (self._seen and self._ends))
        truncated = not terminated and bool(pause or ending or self.index + 1 == self._limit)
        self.sees_success = self._seen and not pause
        self.name = self.name if self._person else ""
        step = Step(
            episode=self.episode, index=self.index, begin=begin, end=self.now, obs=before,
            action=made, after=self._obs, reward=float(np.float32(rng.uniform(-1, 1))),
            terminated=terminated, truncated=truncated, valid=not pause, seen=self.sees_success,
            success=self.sees_success and (terminated or truncated), intervened=self._person,
            segment=(self.name or "human") if self._person else "policy",
        )  # fmt: skip
        self.diary.append(step)
        self.index += 1
        if terminated or truncated:
            self.phase, self.index, self._left = Phase.reset, 0, rng.randint(1, 12)
        flags = {n: torch.tensor([getattr(step, n)]) for n in (
            "terminated", "truncated", "valid", "success", "intervened")}  # fmt: skip
        return EnvStep(
            obs=self._as_obs(), next_obs=self._as_obs(), reward=torch.tensor([step.reward]),
            action=torch.tensor([[made]]), metrics={}, **flags,
        )  # fmt: skip

    def _drawn(self) -> list[float]:
        return [float(np.float32(self.rng.uniform(-1, 1))) for _ in range(2)]

    def _as_obs(self) -> dict[str, torch.Tensor]:
        return {"actor": torch.tensor([self._obs])}


class NoLearner:
    """A link over which nothing but the first weights ever came."""

    connected, trouble = False, "nobody listens"

    def __init__(self, newest: Any) -> None:
        self.newest = newest
        self.learner: dict[str, Any] = {}

    def ask(self, wish: str, do: str, arguments: Any, *, lasting: bool = False) -> None:
        raise AssertionError("nobody wished for anything")

    def answers(self) -> list[Any]:
        return []


@dataclass
class Key:
    """Meaning of a key, in the person's diary."""

    kind: str
    episode: int
    index: int = 0
    until: int = -1
    value: float = 0.0
    text: str = ""
    pressed: float = 0.0
    taken_back: bool = False


@dataclass
class Keys:
    """A person's diary, and what must become of each key."""

    robot: ChanceRobot
    person: Person
    rng: random.Random
    given: list[Key] = field(default_factory=list)
    corrections: int = 0
    expected: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    due: list[tuple[int, Step]] = field(default_factory=list)
    reactions: int = 0
    used: set[int] = field(default_factory=set)

    def act(self) -> None:
        """Before a control period: react to a success that was seen, or do anything at all."""
        robot, rng = self.robot, self.rng
        steps = robot.diary
        if steps and steps[-1].seen and self._first(len(steps) - 1) == len(steps) - 1:
            self.due.append((steps[-1].end + rng.randint(LEAST, MOST - 1), steps[-1]))
        for press, event in [one for one in self.due if one[0] <= robot.now]:
            self.due.remove((press, event))
            self._press("success", press, event)
        draw = rng.random()
        if draw < 0.1:
            self._press(rng.choice(("success", "fail")), robot.now - rng.randint(0, 250))
        elif draw < 0.14:
            self._discard(robot.now - rng.randint(0, 250))
        elif draw < 0.2:
            self._undo(robot.now - rng.randint(0, 250))
        elif draw < 0.26 and robot.diary:
            self._relabel(robot.now)
        elif draw < 0.34:
            robot.name = rng.choice(("recovery", "correction", "human"))
            self._ask({"do": "segment", "kind": robot.name}, robot.now, ok=True, ends=False)

    def _press(self, do: str, press: int, event: Step | None = None) -> None:
        press = self._free(press)
        found = self._success(press) if do == "success" else self._event(press)
        if found is not None and event is not None and self._is_plain(press, event):
            self.reactions += 1
            assert (found.episode, found.index) == (event.episode, event.index)
        if found is not None:
            key = Key(do, found.episode, found.index, value=float(do == "success"))
            self._give(key, press)
        self._ask({"do": do}, press, ok=found is not None, ends=self._runs(found))

    def _discard(self, press: int) -> None:
        what, press = self.rng.choice(("episode", "intervention", "last")), self._free(press)
        if what == "intervention":
            part: list[Step] = []
            for step in reversed(self.robot.diary):
                if step.intervened and (not part or step.episode == part[0].episode):
                    part.append(step)
                elif part:
                    break
            if part:
                self._give(
                    Key("discard", part[0].episode, part[-1].index, part[0].index + 1), press
                )
            self._ask({"do": "discard", "what": what}, press, ok=bool(part), ends=False)
            return
        found = self._event(press)
        number = -1 if found is None else found.episode
        ends = self._runs(found)
        if what == "last" and ends:
            number, ends = number - 1, False
        if number >= 0:
            self._give(Key("discard", number), press)
        self._ask({"do": "discard", "what": what}, press, ok=number >= 0, ends=ends)

    def _undo(self, press: int) -> None:
        press = self._free(press)
        left = [one for one in self.given if not one.taken_back]
        if left:
            left[-1].taken_back = True
            self.corrections += 1
        self._ask({"do": "undo"}, press, ok=bool(left), ends=False)

    def _relabel(self, press: int) -> None:
        rng, press = self.rng, self._free(press)
        kind = rng.choice(("success", "fail", "discard", "undiscard", "reward", "segment"))
        number, index = rng.randint(max(0, self.robot.episode - 5), self.robot.episode), 0
        number, index = max(number, 0), rng.randint(0, 8)
        value: Any = None
        key = Key(kind, number, index, value=float(kind == "success"))
        if kind == "reward":
            value = key.value = float(np.float32(rng.uniform(-5, 5)))
        if kind == "segment":
            value = key.text = rng.choice(("demo", "recovery"))
        self._give(key, press)
        asked = {
            "id": uuid.uuid4().hex, "session": "", "episode": number, "kind": kind, "from": index,
            "value": value,
        }  # fmt: skip
        self._ask({"do": "relabel", "correction": asked, "id": asked["id"]}, press, True, False)

    def _ask(self, command: dict[str, Any], press: int, ok: bool, ends: bool) -> None:
        self.person.ask(
            command.pop("do"),
            **{"id": uuid.uuid4().hex, **command, "t": _unix(press)},
        )
        self.expected[self.person.given[-1]["id"]] = ok, ends
        if self.rng.random() < 0.2:  # sent again: done once
            self.person.given.append(dict(self.person.given[-1]))

    def _give(self, key: Key, press: int) -> None:
        key.pressed = press
        self.given.append(key)
        self.corrections += 1

    def _free(self, press: int) -> int:
        """A time at which nobody has pressed anything yet [ms]."""
        while press in self.used:
            press += 1
        self.used.add(press)
        return press

    def _runs(self, step: Step | None) -> bool:
        """The step is of the episode that is under way."""
        robot = self.robot
        return step is not None and robot.index > 0 and step.episode == robot.episode

    def _success(self, press: int) -> Step | None:
        """By the definition: the first step of the newest run that reaches into the window."""
        steps = self.robot.diary[-80:]
        window = [
            place for place, step in enumerate(steps)
            if step.seen and step.begin <= press and step.end > press - MOST
        ]  # fmt: skip
        if not window:
            return self._event(press)
        return steps[self._first(window[-1], steps)]

    def _event(self, press: int) -> Step | None:
        steps = self.robot.diary[-80:]
        early = [step for step in steps if step.begin <= press - LEAST]
        begun = [step for step in steps if step.begin <= press]
        return early[-1] if early else begun[0] if begun else None

    def _first(self, place: int, steps: list[Step] | None = None) -> int:
        steps = self.robot.diary if steps is None else steps
        while place and steps[place - 1].seen and steps[place - 1].episode == steps[place].episode:
            place -= 1
        return place

    def _is_plain(self, press: int, event: Step) -> bool:
        """No success began after the one that the person reacted to."""
        later = [one for one in self.robot.diary[-80:] if event.end <= one.begin <= press]
        seen = [one.seen and one.episode == event.episode for one in later]
        others = [one.seen and one.episode != event.episode for one in later]
        return not any(others) and seen == sorted(seen, reverse=True)


def _unix(milliseconds: float) -> float:
    """Time of a key on the actor's clock [unix s]."""
    return time.time() - time.monotonic() + (milliseconds + 0.5) / 1000


def expected_outcome(step: Step, keys: list[Key]) -> tuple[Any, ...]:
    """Outcome of a step, worked out from all keys at once."""
    mine = sorted(
        (one for one in keys if one.episode == step.episode and not one.taken_back),
        key=lambda one: one.pressed,
    )
    within = [
        one for one in mine
        if one.index <= step.index and (one.until == -1 or step.index < one.until)
    ]  # fmt: skip
    reward = ([step.reward] + [one.value for one in within if one.kind == "reward"])[-1]
    segment = ([step.segment] + [one.text for one in within if one.kind == "segment"])[-1]
    thrown = [one.kind for one in within if one.kind in ("discard", "undiscard")]
    valid = step.valid and thrown[-1:] != ["discard"]
    ends = [one for one in mine if one.kind in ("success", "fail")][-1:]
    flags = (step.terminated, step.truncated, step.success)
    for end in ends:
        valid = valid and step.index <= end.index
        if step.index == end.index:
            reward, flags = end.value, (True, False, end.kind == "success")
    return (reward, *flags, valid, segment)


def wrong_steps(folder: Any, episodes: int, seed: int) -> tuple[Counter[str], Keys]:
    """Fields that are wrong after so many episodes, counted; and the person's diary."""
    rng = random.Random(seed)
    robot, person = ChanceRobot(rng), Person()
    keys = Keys(robot, person, rng)
    acting, teacher = small_sac(SPEC, seed=2), small_sac(SPEC, seed=1)
    with contextlib.closing(Spool(folder / "spool", quota_bytes=1 << 30)) as spool:
        actor = Actor(
            robot, acting, spool, NoLearner(weights_of(teacher, 1)),  # type: ignore[arg-type]
            config=OnlineConfig(), console=person,
        )  # fmt: skip
        actor.start()
        wrong: Counter[str] = Counter()
        while robot.episode < episodes:
            keys.act()
            asked = [*keys.expected.items()]
            keys.expected.clear()
            runs = robot.index > 0
            actor.commands.poll()
            for name, (ok, _) in asked:
                wrong["answer"] += person.answers[name][0] is not ok
            wrong["end"] += bool(robot.ending) is not (runs and any(e for _, (_, e) in asked))
            actor.tick()
        records = []
        while part := spool.batch(spool.session, len(records), most_bytes=1 << 24):
            records += [decode(one) for one in part]
        session = spool.session
    assembler = TransitionAssembler()
    assembler.take(Begun(session, "arm"))
    made: dict[tuple[int, int], Transition] = {}
    outcomes: dict[tuple[int, int], Any] = {}
    for record in records:
        for event in assembler.take(record):
            if isinstance(event, Transition | Changed):
                outcomes[event.episode[1], event.index] = event.outcome
            if isinstance(event, Transition):
                assert (event.episode[1], event.index) not in made
                made[event.episode[1], event.index] = event
    wrong["corrections"] += keys.corrections != sum(isinstance(r, Correction) for r in records)
    by_episode: dict[int, list[Key]] = {}
    for key in keys.given:
        by_episode.setdefault(key.episode, []).append(key)
    for step in robot.diary:
        if step.episode == robot.episode:
            continue  # under way
        place = (step.episode, step.index)
        if place not in made:
            wrong["lost"] += 1
            continue
        one, outcome = made.pop(place), outcomes[place]
        assert one.frame.action is not None
        wrong["obs"] += one.frame.obs["actor"].tolist() != step.obs
        wrong["successor"] += one.next_obs["actor"].tolist() != step.after
        wrong["action"] += one.frame.action.tolist() != [step.action]
        wrong["intervened"] += one.frame.intervened != step.intervened
        got = (
            outcome.reward, outcome.terminated, outcome.truncated, outcome.success, outcome.valid,
            outcome.segment,
        )  # fmt: skip
        names = ("reward", "terminated", "truncated", "success", "valid", "segment")
        for name, a, b in zip(
            names, got, expected_outcome(step, by_episode.get(step.episode, [])), strict=True
        ):
            wrong[name] += a != b
    wrong["invented"] += sum(episode < robot.episode for episode, _ in made)
    return wrong, keys


@pytest.mark.parametrize(
    ("episodes", "seed"),
    [(150, 0), *(pytest.param(1250, seed, marks=pytest.mark.slow) for seed in range(1, 9))],
)
def test_whatever_people_press_every_step_is_as_the_diaries_say(tmp_path, episodes, seed):
    wrong, keys = wrong_steps(tmp_path, episodes, seed=seed)
    assert not +wrong, dict(+wrong)
    assert len(keys.given) > episodes / 2
    assert keys.reactions > episodes / 20
    assert sum(one.taken_back for one in keys.given) > episodes / 20
