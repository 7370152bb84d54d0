"""A person takes a simulated Panda over, leads it, and gives it back: without a bump."""

import math
import re

import numpy as np
import pytest

from hardware.control.monitors import StampedCommand
from hardware.control.safety import Condition, SafetyState
from hardware.controllers import rotations
from hardware.teleop.targets import JointTarget, PoseTarget, TargetConfig
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.control_laws import chain_of
from robot_rl.core.robot_command import JointCommand, PoseCommand
from tests.compositions import composed
from tests.robot_rl.cli.twin_session import TwinSession

pytestmark = pytest.mark.slow

STILL = [0.0] * 6
S = SafetyState


class Scene:
    """The twin, a policy that holds still unless told otherwise, and a person."""

    def __init__(self, session: TwinSession, target=None, config=None):
        self.session = session
        session.begin(5)
        self.target = target or PoseTarget()
        self.person = Teleoperator(session.port, self.target, config)
        self.axes, self.present, self.more = STILL, True, {}
        self.offset = np.zeros(7)
        self.speaks = True
        q = session.twin.read().joint_position
        self.held = np.asarray(q, float)
        self.path = []
        self.run(0.06)

    @property
    def now(self):
        return self.session.clock.now()

    @property
    def safety(self):
        return self.session.loop.safety

    def status(self):
        return self.person.status(self.now)

    def tip(self):
        return self.session.twin.simulation.true_state.end_effector_position_b[0].numpy().copy()

    def run(self, seconds):
        """Let time pass; returns the path of the tip."""
        path = []
        for tick in range(round(seconds / self.session.twin.period)):
            if self.speaks and tick % 8 == 0:
                self._policy()
            if tick % 4 == 0:
                if self.present:
                    said = {"axes": self.axes, "clutch": True, **self.more}
                    self.person.set_intent(said, self.now)
                self.person.tick(self.now)
            self.session.tick()
            path.append(self.tip())
        return np.array(path)

    def _policy(self):
        joints = self.session.twin.spec.joints
        zero = np.zeros((1, 7))
        command = JointCommand(
            q=self.held + self.offset, dq=zero, tau=zero,
            kp=np.array([[j.stiffness for j in joints]]),
            kd=np.array([[j.damping for j in joints]]),
        )  # fmt: skip
        self.session.policy.command = StampedCommand(command=command, stamp=self.now)

    def in_policy(self):
        self.session.loop.requests.ask(Condition.ENABLE_POLICY)
        self.run(0.5)
        assert self.safety is S.POLICY
        return self

    def in_human(self):
        self.person.take_over(self.now)
        self.run(0.5)
        assert self.safety is S.HUMAN
        return self


@pytest.fixture(scope="module")
def session():
    return TwinSession(composed(["task=peg", "robot=panda"]).config)


def test_taking_over_from_a_policy_moves_nothing(session):
    scene = Scene(session).in_policy()
    before = scene.tip()
    scene.person.take_over(scene.now)
    path = scene.run(1.0)
    assert scene.safety is S.HUMAN
    assert np.abs(path - before).max() < 1.5e-3  # [m]; noise of the measured pose is 0.5 mm
    assert np.abs(np.diff(path, axis=0)).max() / session.twin.period < 0.02  # [m/s]
    assert scene.status()["handover"] == 1.0


def test_a_stick_moves_the_robot_in_the_next_tick_of_the_loop(session):
    scene = Scene(session).in_human()
    before = session.followed.position_w.copy()
    scene.person.set_intent({"axes": [1.0, 0, 0, 0, 0, 0], "clutch": True}, scene.now)
    scene.session.clock.advance(TELEOP_PERIOD)
    scene.person.tick(scene.now)
    session.tick()
    moved = session.followed.position_w - before
    assert moved[0, 0] > 1e-4


def test_a_person_moves_the_tip_as_far_as_they_ask_and_stops_it(session):
    scene = Scene(session).in_human()
    start = scene.tip()
    scene.axes = [1.0, 0, 0, 0, 0, 0]
    scene.run(0.5)
    scene.axes = STILL
    end = scene.run(1.0)[-1]
    assert end[0] - start[0] == pytest.approx(0.05, abs=3e-3)  # 0.1 m/s
    np.testing.assert_allclose(end[1:], start[1:], atol=2e-3)


def test_the_tool_frame_turns_with_the_hand(session):
    scene = Scene(session).in_human()
    start, attitude = scene.tip(), scene.target.orientation
    scene.axes, scene.more = [0, 0, -1.0, 0, 0, 0], {"frame": "tool"}
    scene.run(0.3)
    scene.axes = STILL
    end = scene.run(1.0)[-1]
    along = np.array(rotations.rotate(attitude, (0.0, 0.0, -1.0)))  # the hand points down
    np.testing.assert_allclose(end - start, 0.03 * along, atol=3e-3)


def test_the_target_waits_for_an_arm_that_is_held_up(session):
    config = TargetConfig(lower=[-math.inf, -math.inf, 0.0])
    scene = Scene(session, PoseTarget(config)).in_human()
    scene.axes = [0, 0, -1.0, 0, 0, 0]
    scene.run(4.0)  # down onto the block with the hole: 5 cm away, 40 cm asked for
    target = np.array(scene.status()["target"])
    assert np.linalg.norm(target - scene.tip()) < config.leash + 0.003
    assert scene.safety is S.HUMAN


def test_a_lost_lease_holds_the_robot_and_never_gives_it_to_the_policy(session):
    scene = Scene(session).in_policy().in_human()
    scene.axes = [1.0, 0, 0, 0, 0, 0]
    scene.run(0.3)
    scene.present = False
    scene.run(0.2)
    assert scene.safety is S.HUMAN
    path = scene.run(2.0)
    assert scene.safety is S.HOLD
    assert scene.status()["authority"] == "nobody"
    assert np.linalg.norm(path[-1] - path[200]) < 1e-3  # after the springs have settled
    assert scene.person.interventions.newest.interrupted
    scene.person.give_back(scene.now)  # a late request of the person's own page
    scene.run(0.4)
    assert scene.safety is S.HOLD
    assert "'enable_policy' is refused" in scene.status()["refusal"]


def test_a_robot_that_is_not_ready_is_refused_in_words(session):
    scene = Scene(session)
    session.loop.requests.ask(Condition.HOLD)
    scene.run(0.05)
    scene.person.take_over(scene.now)
    scene.run(0.3)
    assert scene.status()["refusal"] == "a robot in 'hold' cannot be taken over: arm it"
    scene = Scene(session)
    scene.present = False
    scene.person.set_intent(None, scene.now)
    scene.person.take_over(scene.now)
    assert "no device is heard" in scene.status()["refusal"]


def test_giving_back_to_a_policy_that_is_far_away_is_refused_with_the_distance(session):
    scene = Scene(session).in_policy().in_human()
    scene.offset = np.array([0.8, 0, 0, 0, 0, 0, 0])
    scene.run(0.1)
    scene.person.give_back(scene.now)
    scene.run(0.2)
    assert scene.safety is S.HUMAN
    assert "policy_jump (first command is 0.80 rad from the pose)" in scene.status()["refusal"]
    scene.offset = np.zeros(7)
    scene.run(0.1)
    scene.person.give_back(scene.now)
    path = scene.run(1.0)
    assert scene.safety is S.POLICY
    assert scene.status()["refusal"] == ""
    assert np.abs(np.diff(path, axis=0)).max() / session.twin.period < 0.05  # [m/s]


@pytest.mark.parametrize(
    ("step", "turn", "said"),
    [(0.25, 0.0, r"first command is 0\.25 m from the end effector"),
     (0.0, 0.9, r"first command is turned by 0\.90 rad from the pose")],
)  # fmt: skip
def test_a_person_whose_target_is_elsewhere_is_refused_with_the_distance(session, step, turn, said):
    scene = Scene(session)
    state = session.twin.read()
    place, attitude = PoseTarget().measured(state)
    spin = rotations.from_rotation_vector((0.0, 0.0, turn))
    far = PoseCommand(
        position_w=place[None] + [[step, 0, 0]],
        orientation_w=np.array([rotations.multiply(spin, attitude)]),
    )
    session.port.send(StampedCommand(command=far, stamp=scene.now))
    session.port.heard(scene.now)
    session.loop.requests.ask(Condition.HAND_TO_HUMAN)
    session.tick()
    assert scene.safety is S.READY
    assert re.search(said, session.loop.status.refused)


def test_a_rewind_goes_back_along_the_path_and_ends_there(session):
    scene = Scene(session).in_human()
    start = scene.tip()
    scene.axes = [0, 1.0, 0, 0, 0, 0]
    scene.run(0.4)
    scene.axes = [1.0, 0, 0, 0, 0, 0]
    corner = scene.run(0.4)[-1]
    scene.axes = STILL
    scene.run(0.3)
    scene.person.rewind(5.0, scene.now)
    path = scene.run(0.2)
    assert scene.status()["rewinding"]
    path = np.concatenate([path, scene.run(2.0)])
    assert not scene.status()["rewinding"]
    np.testing.assert_allclose(path[-1], start, atol=3e-3)
    # It goes back around the corner, not straight.
    assert path[:, 1].max() > corner[1] - 5e-3
    assert np.abs(np.diff(path, axis=0)).max() / session.twin.period < 0.2
    assert scene.safety is S.HUMAN


def test_a_rewind_does_not_lead_back_to_before_a_stop(session):
    """It led in a straight line from where the robot was armed again to where it was stopped."""
    scene = Scene(session).in_human()
    scene.axes = [1.0, 0, 0, 0, 0, 0]
    scene.run(0.4)
    assert scene.status()["path_seconds"] > 0.3
    session.loop.requests.ask(Condition.ESTOP_PRESSED)
    scene.run(0.1)
    assert scene.safety is S.ESTOP
    assert scene.status()["path_seconds"] == 0


def test_a_deflection_interrupts_a_rewind_and_a_policy_can_be_rewound(session):
    scene = Scene(session).in_policy()
    start = scene.tip()
    scene.offset = np.array([0.15, 0, 0, 0, 0, 0, 0])
    scene.run(1.5)
    away = np.linalg.norm(scene.tip() - start)
    assert away > 0.04
    scene.person.rewind(3.0, scene.now)  # takes the robot over first
    scene.run(0.4)
    assert scene.safety is S.HUMAN
    assert scene.status()["rewinding"]
    assert scene.status()["segment"] == "recovery"
    scene.axes = [0, 0, 0.5, 0, 0, 0]
    scene.run(0.1)
    assert not scene.status()["rewinding"]
    scene.axes = STILL
    scene.run(0.3)
    scene.person.rewind(3.0, scene.now)
    scene.run(3.0)
    assert np.linalg.norm(scene.tip() - start) < 5e-3


def test_a_robot_that_takes_joint_targets_only_is_led_by_inverse_kinematics(session):
    target = JointTarget(session.twin.spec, chain_of(session.twin))
    scene = Scene(session, target).in_policy()
    before = scene.tip()
    scene.person.take_over(scene.now)
    path = scene.run(0.5)
    assert scene.safety is S.HUMAN
    assert np.abs(path - before).max() < 2e-3
    scene.axes = [0, 1.0, 0, 0, 0, 0]
    scene.run(0.5)
    scene.axes = STILL
    end = scene.run(1.0)[-1]
    assert end[1] - before[1] == pytest.approx(0.05, abs=4e-3)
    np.testing.assert_allclose(end[[0, 2]], before[[0, 2]], atol=3e-3)


def test_request_and_authority_have_their_own_times(session):
    scene = Scene(session).in_policy()
    scene.person.take_over(scene.now)
    asked = scene.now
    scene.run(0.5)
    one = scene.person.interventions.newest
    assert one.requested == pytest.approx(asked)
    assert 0 < one.granted - one.requested <= 2 * TELEOP_PERIOD
