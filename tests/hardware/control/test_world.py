"""Setpoints that ticks followed, and episodes of a world that another process asks for."""

import os
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from hardware.control.ipc import CommandLayout, ExecutedPublisher, ExecutedSubscriber
from hardware.control.robot_loop import Executed
from hardware.control.safety import Condition, SafetyState
from hardware.control.world import (
    OUTCOME,
    OUTCOME_WIDTH,
    EpisodePublisher,
    EpisodeRequest,
    EpisodeSubscriber,
    WorldEpisodes,
    WorldOutcome,
)
from robot_rl.core.robot_command import JointCommand, PoseCommand
from tests.hardware.control.loops import Process, to
from tests.hardware.control.robots import two_joints

C, S = Condition, SafetyState
NAME = f"test-world-{os.getpid()}"


def counts(executed: Executed) -> tuple[int, int, int]:
    return executed.policy_ticks, executed.human_ticks, executed.other_ticks


class TestExecuted:
    def test_nobody_is_followed_before_a_policy_is_in_charge(self):
        process = Process(two_joints()).ready()
        executed = process.loop.executed
        assert executed.setpoint is None
        assert counts(executed) == (0, 0, process.loop.status.ticks)
        assert executed.answers == -np.inf

    def test_it_is_the_setpoint_within_its_limits_and_its_blend_not_what_was_asked_for(self):
        process = Process(two_joints()).in_policy(to(0.45, -0.4))
        executed = process.loop.executed
        assert executed.safety is S.POLICY
        assert 0.2 <= executed.setpoint.q[0, 0] < 0.25  # 2 rad/s from 0.2 rad, blended in
        np.testing.assert_array_equal(executed.setpoint.q, process.loop._pipeline.followed.q)
        assert executed.answers < executed.time
        process.ticks(seconds=2.0, command=to(0.45, -0.4))
        np.testing.assert_allclose(process.loop.executed.setpoint.q, [[0.45, -0.4]])

    def test_its_counts_tell_whose_every_tick_was(self):
        process = Process(two_joints()).in_policy(to(0.2, -0.5))
        before = np.array(counts(process.loop.executed))
        said = {"command": to(0.2, -0.5), "person": to(0.25, -0.5)}
        process.ticks(4, **said)
        process.act(C.HAND_TO_HUMAN, **said)
        process.ticks(6, **said)
        assert process.loop.executed.safety is S.HUMAN
        process.act(C.ENABLE_POLICY, **said)
        process.ticks(2, **said)
        process.act(C.HOLD, **said)
        process.ticks(3, **said)
        assert (np.array(counts(process.loop.executed)) - before).tolist() == [4 + 3, 7, 4]
        assert process.loop.executed.setpoint is None

    def test_a_person_who_falls_silent_is_still_the_one_in_charge(self):
        process = Process(two_joints()).in_policy(to(0.2, -0.5))
        said = {"command": to(0.2, -0.5), "person": to(0.2, -0.5)}
        process.ticks(4, **said)
        process.act(C.HAND_TO_HUMAN, **said)
        before = process.loop.executed.human_ticks
        process.ticks(seconds=0.2)
        assert process.loop.executed.human_ticks - before == 100
        process.ticks(seconds=0.2)
        assert process.safety is S.HOLD
        assert process.loop.executed.setpoint is None

    def test_it_passes_its_channel_as_it_is(self):
        layout = CommandLayout(two_joints(), two_joints().command)
        loop = Process(two_joints()).in_policy(to(0.4, -0.4)).loop
        with (
            closing(ExecutedPublisher(NAME, layout)) as publisher,
            closing(ExecutedSubscriber(NAME, layout)) as subscriber,
        ):
            assert subscriber.newest() is None
            nobody = Executed(time=1.0, safety=S.HOLD, other_ticks=3)
            publisher.send(nobody)
            assert subscriber.newest() == nobody
            publisher.send(loop.executed)
            got = subscriber.newest()
            assert got is not None
            assert isinstance(got.setpoint, JointCommand)
            np.testing.assert_array_equal(got.setpoint.q, loop.executed.setpoint.q)
            assert (got.time, got.answers) == (loop.executed.time, loop.executed.answers)
            assert counts(got) == counts(loop.executed)
            led = PoseCommand(position_w=np.zeros((1, 3)), orientation_w=np.eye(1, 4))
            publisher.send(replace(loop.executed, setpoint=led, human_ticks=9))
            other = subscriber.newest()
            assert other is not None
            assert other.setpoint is None  # another kind than this channel's
            assert other.human_ticks == 9


@dataclass
class Teleported:
    """A world that remembers its starts, and puts the fake robot of a process there."""

    process: Process
    frozen: bool = False
    seeds: list[int] = field(default_factory=list)

    @property
    def goal(self) -> dict[str, np.ndarray]:
        return {"place": np.ones((1, 2))}

    @property
    def sensed(self) -> dict[str, np.ndarray]:
        return {"peg": np.zeros((1, 3))}

    @property
    def outcome(self) -> Any:
        return SimpleNamespace(
            steps=4, total_return=2.5, reward=0.5, terminated=True, success=False
        )

    def begin(self, seed: int) -> None:
        self.seeds.append(seed)
        self.process.driver.body.q = np.array([[-0.3, 0.1]])
        self.process.driver.body.dq = np.zeros((1, 2))


def test_requests_pass_their_channel_and_their_numbers_grow_when_a_learner_comes_again():
    with closing(EpisodeSubscriber(NAME)) as subscriber:
        with closing(EpisodePublisher(NAME)) as publisher:
            assert subscriber.newest() is None
            number = publisher.begin(7)
            assert subscriber.newest() == (number, 7)
        with closing(EpisodePublisher(NAME)) as publisher:
            assert publisher.begin(7) >= number


def test_a_world_tells_its_goals_inputs_and_judgement():
    world = Teleported(Process(two_joints()))
    fields = WorldEpisodes(world).fields()
    unjudged = WorldEpisodes(world, judged=False).fields()
    assert unjudged.keys() == fields.keys() - {OUTCOME}
    assert sorted(fields) == ["goal/place", "outcome", "sensed/peg"]
    assert fields[OUTCOME].shape == (1, OUTCOME_WIDTH)
    assert WorldOutcome.from_row(fields[OUTCOME]) == WorldOutcome(
        begun=0, steps=4, total_return=2.5, reward=0.5, terminated=True
    )


def test_an_episode_begins_once_and_stands_still_until_its_first_command():
    old, new = to(0.9, -1.0), to(-0.3, 0.1)
    process = Process(two_joints()).in_policy(to(0.4, -0.6))
    process.ticks(seconds=1.0, command=old)
    world = Teleported(process)
    episodes = WorldEpisodes(world)
    request = EpisodeRequest(12, 3)
    for _ in range(5):
        episodes.between_ticks(process.loop, request, process.clock)
        process.ticks()  # the policy has not heard of it: its command is the one of before
        assert world.frozen
    assert world.seeds == [3]
    episodes.between_ticks(process.loop, request, process.clock)
    process.loop._pipeline._controller_set.on_setpoint = lambda _: episodes.on_setpoint()
    process.ticks(command=new)
    assert not world.frozen
    # The fake robot is never frozen, and yet the command of before has hardly moved it.
    np.testing.assert_allclose(process.loop.executed.setpoint.q, [[-0.3, 0.1]], atol=0.03)
    outcome = WorldOutcome.from_row(episodes.fields()[OUTCOME])
    assert outcome.begun == 12
    assert outcome.since < process.clock.now()


def test_a_robot_that_nobody_commands_is_not_frozen():
    process = Process(two_joints()).ready()
    world = Teleported(process)
    WorldEpisodes(world).between_ticks(process.loop, EpisodeRequest(1, 0), process.clock)
    assert world.seeds == [0]
    assert not world.frozen
