"""Worlds that broke in a run lie in its folder, a limited number of them."""

import importlib

import torch

from sim.physics.fault_record import FaultRecord
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.flying import flight_worlds
from tests.sim.legs import leg_worlds


def test_what_broke_is_saved_once_and_not_without_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    faults = importlib.import_module("robot_rl.cli.session")
    folder = tmp_path / "faults"
    env = leg_worlds(4)
    assert isinstance(env.simulation, MujocoSimulation)
    env.reset(seed=0)
    for step in range(10):
        env.simulation.engine.qvel[1] = 1e30
        result = env.step(torch.zeros(4, 12))
        assert result.valid.tolist() == [True, False, True, True]
        faults.keep_faults(env, folder, 100 * step)
        faults.keep_faults(env, folder, 100 * step + 1)  # nothing new
    found = sorted(folder.iterdir())
    assert [path.name for path in found][:2] == [
        "step_000000000000_world_1.npz", "step_000000000100_world_1.npz",
    ]  # fmt: skip
    assert len(found) == 10
    assert FaultRecord.load(found[0]).world == 1
    for step in range(10, 30):
        env.simulation.engine.qvel[2] = 1e30
        env.step(torch.zeros(4, 12))
        faults.keep_faults(env, folder, 100 * step)
    assert len(list(folder.iterdir())) == faults.MOST
    faults.keep_faults(flight_worlds("hover", 1), tmp_path / "none", 0)
    assert not (tmp_path / "none").exists()
