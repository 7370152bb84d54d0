"""MuJoCo's compiled models as bytes: a world's own model, with all that was drawn for it."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
from numpy.typing import NDArray

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
