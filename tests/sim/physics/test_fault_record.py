"""Worlds that broke: what is kept of them breaks again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.errors import StorageError
from sim.physics.fault_record import FaultRecord
from tests.sim.physics.test_engines import pendulums


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: Any) -> FaultRecord:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    engine = pendulums(decimation=50)
    engine.model_field("body_mass")[2] *= 3
    engine.step()
    assert engine.fault_records == []
    engine.qvel[2] = 1e9  # finite, but the next acceleration is not within MuJoCo's bounds
    engine.step()
    (record,) = engine.fault_records
    return record


def test_the_step_that_broke_a_world_breaks_it_again_also_read_back(broken, tmp_path):
    assert broken.world == 2
    assert broken.reasons
    first, *rest = [(data.qpos.copy(), data.qvel.copy()) for data in broken.replay()]
    assert np.isfinite(first[0]).all()
    assert np.all(first[1] == 1e9)
    assert len(rest) == 50
    last = rest[-1][1]
    assert not np.isfinite(last).all() or np.abs(last).max() > 1e6  # nobody put it back
    path = tmp_path / "new" / "fault.npz"
    broken.save(path)
    found = FaultRecord.load(path)
    np.testing.assert_array_equal(found.state, broken.state)
    np.testing.assert_array_equal(found.model, broken.model)
    assert (found.world, found.reasons, found.decimation) == (2, broken.reasons, 50)
    path.write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="not a readable faulted world"):
        FaultRecord.load(path)


def test_a_step_that_began_with_other_controls_is_taken_with_them(monkeypatch: Any) -> None:
    engine = pendulums(decimation=4)
    ramp = engine.ramp
    ramp[1] = 0.5
    ramp[:, 3] = 0.1
    before = engine.qvel.clone()
    engine.step(ramped=True)
    assert engine.control.eq(0.1).all(), "what held at the end"
    assert not torch.equal(engine.qvel[0], engine.qvel[1]) or before.isnan().any()
    engine.qvel[1] = torch.nan
    engine.step(ramped=True)
    (record,) = engine.fault_records
    np.testing.assert_array_equal(record.ramp, ramp[1].numpy())
    *_, last = ((data.ctrl.copy(), data.time) for data in record.replay())
    np.testing.assert_allclose(last[0], 0.1)
