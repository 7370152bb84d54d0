"""What surrounds a session: messages before it has a folder, torchrun's signals, broken envs."""

import logging
import signal

import pytest
import torch

from robot_rl.cli import session
from robot_rl.training.ranks import Ranks
from sim.physics.fault_record import FaultRecord
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.flying import flight_envs
from tests.sim.legs import leg_envs


def test_a_logger_is_heard_meanwhile_and_as_before_after_it(capsys):
    logger = logging.getLogger("worlds.that.take.memory")
    with session.log_to_stdout(logger.name):
        logger.info("4096 worlds: 428 MB")
    logger.info("nobody asked")
    assert capsys.readouterr().out == "4096 worlds: 428 MB\n"
    assert not logger.handlers
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("count", [1, 2])
def test_a_rank_says_who_died_although_torchrun_ends_it_meanwhile(count):
    asked: list[str] = []
    ranks = Ranks()
    ranks.count = count
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with session.stop_on_signals(lambda: asked.append("asked to stop"), ranks) as caught:
            signal.raise_signal(signal.SIGTERM)
        after = signal.getsignal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (asked, caught) == (["asked to stop"], [signal.SIGTERM])
    assert after == (before[signal.SIGTERM] if count == 1 else signal.SIG_IGN)


@pytest.mark.slow
def test_what_broke_is_saved_once_and_not_without_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    folder = tmp_path / "faults"
    env = leg_envs(4)
    assert isinstance(env.simulation, MujocoSimulation)
    env.reset(seed=0)
    for step in range(10):
        env.simulation.engine.qvel[1] = 1e30
        result = env.step(torch.zeros(4, 12))
        assert result.valid.tolist() == [True, False, True, True]
        session.keep_faults(env, folder, 100 * step)
        session.keep_faults(env, folder, 100 * step + 1)  # nothing new
    found = sorted(folder.iterdir())
    assert [path.name for path in found][:2] == [
        "step_000000000000_world_1.npz", "step_000000000100_world_1.npz",
    ]  # fmt: skip
    assert len(found) == 10
    assert FaultRecord.load(found[0]).world == 1
    for step in range(10, 30):
        env.simulation.engine.qvel[2] = 1e30
        env.step(torch.zeros(4, 12))
        session.keep_faults(env, folder, 100 * step)
    assert len(list(folder.iterdir())) == session.MAX_FAULT_FILES
    session.keep_faults(flight_envs("hover", 1), tmp_path / "none", 0)
    assert not (tmp_path / "none").exists()
