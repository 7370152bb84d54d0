"""A person flies a simulated drone: by a target that waits for it, and not into a fall."""

from dataclasses import replace

import numpy as np
import pytest

from hardware.control.monitors import StampedCommand
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.targets import FlightTarget
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.core.robot_command import PoseCommand
from tests.compositions import composed
from tests.robot_rl.cli.twin_session import TwinSession

pytestmark = pytest.mark.slow

S = SafetyState
STILL = [0.0] * 6


class Flight:
    def __init__(self, session):
        self.session = session
        session.begin(3)
        self.person = Teleoperator(session.port, FlightTarget())
        self.axes, self.present = STILL, True
        self.every = round(TELEOP_PERIOD / session.twin.period)
        self.run(0.1)

    @property
    def now(self):
        return self.session.clock.now()

    @property
    def place(self):
        return self.session.twin.simulation.true_state.position_w[0].numpy().copy()

    def run(self, seconds):
        path = []
        for tick in range(round(seconds / self.session.twin.period)):
            if tick % self.every == 0:
                if self.present:
                    self.person.set_intent({"axes": self.axes, "clutch": True}, self.now)
                self.person.tick(self.now)
            self.session.tick()
            path.append(self.place)
        return np.array(path)

    def taken(self):
        self.person.take_over(self.now)
        self.run(1.0)
        assert self.session.loop.safety is S.HUMAN
        return self


@pytest.fixture(scope="module", params=["x500", "crazyflie"])
def session(request):
    config = composed(["task=hover", f"robot={request.param}"]).config
    calm = config.task.evaluation_start.at_rest()
    return TwinSession(replace(config, task=replace(config.task, evaluation_start=calm)))


def test_taken_over_it_hovers_where_it_was(session):
    scene = Flight(session)
    before = scene.place
    scene.taken()
    path = scene.run(3.0)
    assert np.linalg.norm(path[-1] - before) < 0.12


def test_a_stick_flies_it_and_at_rest_it_stops(session):
    scene = Flight(session).taken()
    scene.run(2.0)
    start = scene.place
    scene.axes = [0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
    scene.run(1.5)
    scene.axes = STILL
    path = scene.run(4.0)
    # 1 m/s times 1.5 s times the curve of half a stick
    assert 0.2 < path[-1][2] - start[2] < 0.8
    assert np.linalg.norm(path[-1][:2] - start[:2]) < 0.15
    assert np.abs(path[-1] - path[-100]).max() < 0.02


def test_without_a_person_it_is_levelled_and_does_not_fall(session):
    scene = Flight(session).taken()
    scene.run(1.0)
    before = scene.place
    scene.present = False
    scene.run(0.5)
    assert session.loop.safety is S.HOLD
    scene.run(1.0)
    assert scene.place[2] > before[2] - 0.3
    assert session.twin.applied.speed.min() > 0.2


def test_a_target_that_is_elsewhere_is_refused_with_the_distance(session):
    scene = Flight(session)
    far = PoseCommand(
        position_w=scene.place[None] + [[0.0, 1.5, 0.0]],
        orientation_w=np.array([[1.0, 0, 0, 0]]),
    )
    session.port.send(StampedCommand(command=far, stamp=scene.now))
    session.port.heard(scene.now)
    session.loop.requests.ask(Condition.HAND_TO_HUMAN)
    session.tick()
    assert session.loop.safety is S.READY
    assert "1.50 m from the drone" in session.loop.status.refused
