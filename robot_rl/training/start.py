"""Begin a run with the learner of another: weights, targets, optimisers, temperature, normalisers.

The other run may have had another learner, as long as its networks are the same and nothing is
missing: Cal-QL hands on to plain SAC. Random streams are the new run's own.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.core.learner import Learner
from robot_rl.training.config import StartCheckpoint, StartConfig
from robot_rl.training.runs.run_folder import RunFolder, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore

_FIELDS = {
    "penalty": "learner.conservatism and learner.dynamics_gap",
    "return": "learner.reward_scale",
}
"""Settings that ask for parts that not every learner keeps."""
_logger = logging.getLogger(__name__)


def load_start(config: StartConfig, learner: Learner) -> None:
    """Put the state of another run's learner into this one.

    Raises:
        ConfigError: There is no such run, or its learner does not fit.
        CheckpointError: What is there is damaged.
    """
    run = _open(config)
    store = CheckpointStore(run.checkpoints, read_only=True)
    try:
        checkpoint = store.load(config.checkpoint.value)
    except CheckpointError as error:
        raise CheckpointError(f"training.start.run={config.run}: {error}") from error
    own = learner.state_dict()
    state = with_own_streams(checkpoint.state["learner"], own)
    if "switch" in own:  # what counts from the switch to online counts from here
        state["switch"] = state["updates"]
    if "teacher" in own:  # the one that was named now; how long it acts counts from here
        state |= {"teacher": own["teacher"], "updates": own["updates"]}
    try:
        learner.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines()[:3]]
        reason, fields = "; ".join(lines), "learner.actor and learner.critic"
        if isinstance(error, KeyError):
            reason, fields = f"it has no {error}", _FIELDS.get(str(error.args[0]), fields)
        raise ConfigError(
            f"training.start.run={config.run}: the learner of {checkpoint.path} does not fit this "
            f"one ({reason}); expected the same networks and observations, and all that this "
            f"learner keeps: take the {fields} of {run.config_path}"
        ) from error
    _logger.info("begins with the learner of %s, step %d", run.path, checkpoint.step)


def with_own_streams(state: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's state with the random streams of another one's, however deep they lie."""
    kept = dict(state)
    for name, part in own.items():
        if name == "generator":
            kept[name] = part
        elif isinstance(part, Mapping) and isinstance(state.get(name), Mapping):
            kept[name] = with_own_streams(state[name], part)
    return kept


def _open(config: StartConfig) -> RunFolder:
    """A run, or of a folder of runs the newest that has such a checkpoint."""
    path, which = Path(config.run), config.checkpoint
    if (path / "config.yaml").is_file():
        return RunFolder.open(path)
    runs = [RunFolder.open(one) for one in find_runs(path)]
    saved = [one for one in runs if _has(one, which)]
    if runs and not saved:
        scored = any(_has(one, StartCheckpoint.latest) for one in runs)
        raise ConfigError(
            f"training.start.run={path}: none of its {len(runs)} runs has a checkpoint "
            f"{'that was scored' if scored else 'yet'}; "
            f"{'take training.start.checkpoint=latest' if scored else 'train one'}, or name "
            "another folder"
        )
    if saved:
        return saved[-1]
    try:
        return RunFolder.open(path)
    except ConfigError as error:
        raise ConfigError(f"training.start.run: {error}") from error


def _has(run: RunFolder, which: StartCheckpoint) -> bool:
    store = CheckpointStore(run.checkpoints, read_only=True)
    return (store.best() if which is StartCheckpoint.best else store.latest()) is not None
