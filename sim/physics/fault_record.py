"""Compiled models as bytes, and records of envs before the step that broke them, for replay."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.rendering.files import StoredArrays


@contextmanager
def warnings_unsaid() -> Iterator[None]:
    """Meanwhile MuJoCo's library, of the whole process, warns nobody."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


_NAME = "world.mjb"
"""Models are read by the name of a file, which may lie in memory."""


def compiled(model: mujoco.MjModel) -> NDArray[np.uint8]:
    """A model as bytes; only the version of MuJoCo that wrote them reads them."""
    content = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    return content


def loaded(content: NDArray[np.uint8]) -> mujoco.MjModel:
    """The model that `compiled` wrote."""
    return mujoco.MjModel.from_binary_path(_NAME, {_NAME: content.tobytes()})


STATE = mujoco.mjtState.mjSTATE_INTEGRATION
"""State that decides an env's future, controls included."""
MAX_RECORDS = 4
"""Faulted worlds that an engine remembers at a time: one tells as much as a hundred."""


@dataclass(frozen=True, kw_only=True)
class FaultRecord(StoredArrays):
    """One world before the control step in which MuJoCo gave it up."""

    stored_as: ClassVar[str] = "faulted world"

    world: int
    """Number of the env."""
    reasons: list[str]
    """MuJoCo's warnings of the step, and `not finite`."""
    decimation: int
    """Integration steps of the control step."""
    state: NDArray[np.float64]
    """Integration state before it, with the controls that were held."""
    model: NDArray[np.uint8]
    """The world's own model, compiled."""
    ramp: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    """Controls of its integration steps where they were not held, (steps, nu)."""

    def replay(self) -> Iterator[mujoco.MjData]:
        """Take the step again: the world before it, and after each integration step (one object).

        MuJoCo would put a world with bad numbers back to its reference pose; here it may not.
        """
        model = loaded(self.model)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET.value
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, self.state, STATE.value)
        mujoco.mj_forward(model, data)
        yield data
        held = data.ctrl.copy()
        for step in range(self.decimation):
            data.ctrl = self.ramp[step] if step < len(self.ramp) else held
            mujoco.mj_step(model, data)
            yield data
