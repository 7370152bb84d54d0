"""A simulated person does the peg by the stick, watches a policy, takes over, and labels late."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.control.monitors import StampedCommand
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.simulated_person import PegRule, PersonConfig, PersonView, SimulatedPerson
from hardware.teleop.targets import PoseTarget
from hardware.teleop.teleoperator import Teleoperator
from robot_rl.cli.main import main
from robot_rl.cli.teleop import _record
from robot_rl.cli.teleoperation.options import TeleopOptions
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import JointCommand
from robot_rl.datasets.reader import EpisodeDataset
from tests.compositions import composed
from tests.robot_rl.cli.twin_session import TwinSession

S = SafetyState


@pytest.fixture(scope="module")
def session():
    return TwinSession(composed(["task=peg", "robot=panda"]).config)


class Watched:
    """A policy that holds still, and a person who watches it."""

    def __init__(self, session, config, seed=0):
        self.session = session
        session.begin(7)
        self.hand = Teleoperator(session.port, PoseTarget())
        self.person = SimulatedPerson(self.hand, PegRule(), config, seed=seed)
        self.held = np.asarray(session.twin.read().joint_position, float)
        self.labels, self.states, self.tick = [], [], 0
        self.run(0.1)
        session.loop.requests.ask(Condition.ENABLE_POLICY)
        self.run(0.1)
        assert session.loop.safety is S.POLICY
        self.person.begin(session.clock.now())
        self.begun = session.clock.now()

    def run(self, seconds, over=False):
        session, joints, zero = self.session, self.session.twin.spec.joints, np.zeros((1, 7))
        for _ in range(round(seconds / session.twin.period)):
            now = session.clock.now()
            if self.tick % 4 == 0:
                session.policy.command = StampedCommand(
                    command=JointCommand(
                        q=np.asarray(session.twin.read().joint_position, float),
                        dq=zero, tau=zero, kp=np.array([[j.stiffness for j in joints]]),
                        kd=np.array([[j.damping for j in joints]]),
                    ),
                    stamp=now,
                )  # fmt: skip
                view = PersonView(state=session.twin.read(), sensed=session.twin.sensed, over=over)
                self.person.tick(view, now)
                self.hand.tick(now)
                if label := self.person.take_label(now):
                    self.labels.append(label)
            self.tick += 1
            session.tick()
            self.states.append(session.loop.safety)

    def until(self, safety, seconds=12.0):
        begin = self.session.clock.now()
        while self.session.loop.safety is not safety:
            self.run(0.1)
            assert self.session.clock.now() - begin < seconds
        return self.session.clock.now() - self.begun


CALM: dict[str, Any] = {"wrong_takeovers": 0.0, "wrong_corrections": 0.0}


@pytest.mark.slow
def test_a_policy_that_stalls_is_taken_over_led_and_given_back(session):
    scene = Watched(session, PersonConfig(**CALM, finishes=1.0, noise=0.0, stall_time=1.0))
    assert scene.until(S.HUMAN) == pytest.approx(1.3, abs=0.25)  # the stall, and the reaction
    scene.until(S.POLICY)
    tip = session.twin.simulation.sensors["peg_position"][0]
    assert float(tip[2]) < -0.03
    scene.run(1.5)
    (label, pressed), = scene.labels  # fmt: skip
    assert label == "success"
    one = scene.hand.interventions.newest
    assert not one.interrupted
    assert pressed > one.granted


@pytest.mark.slow
def test_who_does_not_finish_gives_back_a_state_over_the_hole(session):
    scene = Watched(session, PersonConfig(**CALM, finishes=0.0, noise=0.0))
    scene.until(S.HUMAN)
    scene.until(S.POLICY)
    tip = session.twin.simulation.sensors["peg_position"][0].numpy()
    assert math.hypot(*tip[:2]) < 0.01
    assert tip[2] > -0.03


@pytest.mark.slow
def test_somebody_takes_over_without_a_reason_as_often_as_said(session):
    scene = Watched(session, PersonConfig(stall_time=60.0, drift=1.0, wrong_takeovers=2.0))
    took = scene.until(S.HUMAN)
    assert took < 4.0
    assert scene.person.wrong == 1


def test_a_failure_is_labelled_late_when_the_episode_is_over(session):
    scene = Watched(session, PersonConfig(**CALM, stall_time=60.0))
    ended = session.clock.now()
    scene.run(1.5, over=True)
    (label, pressed), = scene.labels  # fmt: skip
    assert label == "fail"
    assert 0.3 - 0.021 <= pressed - ended <= 1.0 + 0.021


def test_a_wrong_lead_goes_away_first(session):
    config = PersonConfig(
        stall_time=0.2, wrong_takeovers=0.0, wrong_corrections=1.0, wrong_time=0.6, noise=0.0
    )
    scene = Watched(session, config, seed=4)
    scene.until(S.HUMAN)
    scene.run(0.3)
    way = np.array(scene.hand.status(session.clock.now())["shaped"])
    np.testing.assert_allclose(np.linalg.norm(way[:3]), 0.5, atol=1e-6)
    np.testing.assert_array_equal(way[3:], np.zeros(3))


@pytest.mark.parametrize("config", [{"reaction": -1.0}, {"label_delay": (1.0, 0.3)},
                                    {"noise": math.nan}])  # fmt: skip
def test_skills_that_are_none_are_refused(config):
    with pytest.raises(ConfigError):
        PersonConfig(**config)


class TestCommand:
    def record(self, folder, *more):
        main(["teleop", f"out={folder}", "episodes=2", *more])

    @pytest.mark.slow
    def test_it_records_episodes_that_a_data_set_reads(self, tmp_path, capsys):
        self.record(tmp_path / "peg", "skill=perfect", "seconds=5")
        episodes = list(EpisodeDataset(tmp_path / "peg"))
        assert len(episodes) == 2
        for one in episodes:
            assert one.num_steps == 125
            assert one.obs["actor"].shape == (126, 35)
            assert one.action.shape == (125, 6)
            assert one.intervened.all()
            assert one.success[-1]
            assert np.abs(one.action).max() > 0.2  # towards the hole
        assert "2 of 2 episodes succeeded" in capsys.readouterr().out

    @pytest.mark.slow
    def test_the_same_seed_records_the_same_and_it_goes_on_only_when_asked(self, tmp_path, capsys):
        for name in ("one", "two"):
            self.record(tmp_path / name, "seconds=1", "seed=3")
        first, second = (list(EpisodeDataset(tmp_path / n)) for n in ("one", "two"))
        for a, b in zip(first, second, strict=True):
            assert a.digest() == b.digest()
        with pytest.raises(SystemExit):
            self.record(tmp_path / "one")
        assert "append=true" in capsys.readouterr().err

    def test_starts_that_are_stored_do_not_come_again_when_it_goes_on(self, tmp_path):
        """Behind episodes that had been left out, stored ones were recorded once more."""
        played = []

        def record(number):
            played.append(number)
            success = np.array([len(played) not in (1, 3)])
            episode = SimpleNamespace(success=success, reward=np.zeros(1), source=f"x {number}")
            return SimpleNamespace(episode=episode, label="")

        writer: Any = SimpleNamespace(sources=[], folder=tmp_path, num_steps=0)
        writer.add = lambda episode: writer.sources.append(episode.source)
        recorder: Any = SimpleNamespace(record=record, source=lambda number: f"x {number}")
        for episodes in (3, 6):
            options = TeleopOptions(out="x", episodes=episodes, only_successes=True)
            _record(options, recorder, writer, 0)
        assert len(set(writer.sources)) == len(writer.sources) == 6

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["task=reach"], "task of a simulated person 'reach' is unknown; known: peg"),
            (["person=gamepad:/dev/none"], "/dev/none cannot be opened"),
            (["person=joystick"], "'joystick' is no device"),
            (["skill=clumsy"], "skill must be human or perfect"),
            (["task=velocity", "robot=go2"], "displace the end effector of 'go2', which has none"),
        ],
    )
    def test_what_cannot_be_recorded_is_refused_and_leaves_nothing(
        self, tmp_path, capsys, words, said
    ):
        with pytest.raises(SystemExit):
            self.record(tmp_path / "new", *words)
        assert said in capsys.readouterr().err
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("beside", "done"), [(0.0, True), (0.08, False)])
def test_a_peg_beside_the_block_is_as_deep_but_not_done(beside, done):
    state = RobotState({
        "end_effector_position_b": np.array([[0.5 + beside, 0.0, 0.1 + 0.06 - 0.036]]),
        "end_effector_orientation_b": np.array([[0.0, 1.0, 0.0, 0.0]]),
    })  # fmt: skip
    hole = {"hole_position": np.array([[0.5, 0.0, 0.1]]), "hole_axis": np.array([[1.0, 0.0, 0.0]])}
    assert PegRule().done(PersonView(state=state, sensed=hole)) is done
