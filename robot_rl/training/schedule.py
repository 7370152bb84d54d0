"""Phases of a run - offline, warm-up, online - and diagnostics of the offline one.

The phases of WSRL (Zhou et al. 2024, arXiv:2412.07762), each of which may be left out: updates from
stored experience alone; steps of the policy that came of it, never random ones, in which nothing is
learned; steps and updates in turn.

The curves of an offline phase are read as "A Workflow for Offline Model-Free Robotic RL" does
(Kumar et al. 2021, arXiv:2109.10813). Without a robot, two failures show in the critics:

- Overfitting: the value of stored actions rises and then falls, while the error on episodes that
  were held out rises above that on the others. Earlier checkpoints are better; fewer weights,
  dropout or more data help.
- Underfitting: the temporal difference stays large beside the spread of the values, or the values
  of actions that nobody has tried are not kept below the stored ones. Larger networks or more
  updates help.

These are hints: rules of thumb over a few numbers, not tests.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.buffers.minibatches import Minibatches
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner, Phase
from robot_rl.training.config import OfflineConfig
from robot_rl.training.prior import Prior

_BLOCK = 20
"""Updates between two looks at the clock; their minibatches are drawn at once."""
_LOOKED_AT = 1024
"""Rows by which the critics are judged."""
_NUMBERS = {Phase.offline: 0.0, Phase.warm_up: 1.0, Phase.online: 2.0}
"""Of the phases in the metrics."""
_logger = logging.getLogger(__name__)


def check_offline(config: OfflineConfig, spec: EnvSpec, learner: Learner) -> None:
    """Refuse updates from stored experience alone where nothing good can come of them.

    Raises:
        ConfigError: Some were asked for, and the learner, or the envs, are not made for them.
    """
    if not config.updates:
        return
    asked = f"training.offline.updates={config.updates}"
    if not learner.learns_offline:
        raise ConfigError(
            f"{asked} was asked of a learner that does not keep the values of untried actions in "
            "check, and would come to believe in them; take learner=cql, cal_ql, wsrl, iql, qc, "
            "silri or expo, or set learner.conservatism.weight"
        )
    if spec.reward_names and not spec.reward_weights:
        raise ConfigError(
            f"{asked} needs the weights of the reward terms before the first step, which this "
            "environment does not tell; expected one with `EnvSpec.reward_weights`, such as env=sim"
        )


class PhaseSchedule:
    """The phases of one run; the trainer asks it what comes next."""

    def __init__(
        self, config: OfflineConfig, learner: Learner, *, start_steps: int,
        prior: Prior | None = None, minibatches: Minibatches | None = None,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            start_steps: Env-steps before the first update online.
            prior: Stored experience; there is some where there is an offline phase.
        """
        self._config, self._learner, self._prior = config, learner, prior
        self.minibatches = minibatches
        """Of the stored experience alone."""
        self.start_steps = start_steps
        self.updates = 0
        """Updates of the offline phase that are done."""
        self.phase: Phase | None = None
        """None before the first step of a session."""
        self._history: list[dict[str, float]] = []

    def warm_start_normalizers(self) -> None:
        """Let the normalisers see stored observations, which may lie far from all others, first."""
        if self._prior is not None:
            self._prior.warm_start_normalizers(self._learner)

    def advance(self, env_steps: int) -> Phase:
        """Phase after so many steps; the learner hears of it when it changes."""
        if self.updates < self._config.updates:
            phase = Phase.offline
        else:
            phase = Phase.warm_up if env_steps < self.start_steps else Phase.online
        if phase is not self.phase:
            self.phase = phase
            self._learner.begin_phase(phase)
        return phase

    def block(self) -> int:
        """Updates until the next look at the clock or the next evaluation, now counted as done.

        Where blocks end depends on the count alone: a resumed run draws as it would have anyway.
        """
        done, interval = self.updates, self._config.evaluation_interval
        ends = ((done // _BLOCK + 1) * _BLOCK, (done // interval + 1) * interval)
        self.updates = min(*ends, self._config.updates)
        return self.updates - done

    @property
    def evaluation_is_due(self) -> bool:
        """True if the last block ended at an interval or at the phase's end."""
        done = self.updates
        return done % self._config.evaluation_interval == 0 or done == self._config.updates

    def inspected(self) -> dict[str, float]:
        """Metrics of the critics on stored experience, while it is all there is."""
        if self.phase is not Phase.offline or self._prior is None:
            return {}
        seen = self._learner.inspect(self._prior.replay.strided_sample(_LOOKED_AT))
        found = {f"train/{name}": float(value) for name, value in seen.items()}
        if self._prior.held_out is not None:
            apart = self._learner.inspect(self._prior.held_out.strided_sample(_LOOKED_AT))
            found["train/held_out_td_error"] = float(apart["td_error"])
        return found

    def phase_metric(self) -> dict[str, float]:
        """The phase as a metric."""
        return {} if self.phase is None else {"train/phase": _NUMBERS[self.phase]}

    def record_diagnostics(self) -> None:
        """At an evaluation: keep what the critics think, and say what is conspicuous about it."""
        if found := self.inspected():
            record = {name.partition("/")[2]: value for name, value in found.items()}
            self._history.append({"updates": float(self.updates), **record})
            for hint in hints(self._history):
                _logger.warning("offline phase, %d updates: %s", self.updates, hint)

    def state_dict(self) -> dict[str, Any]:
        """Counter and remembered metrics."""
        return {"updates": self.updates, "history": list(self._history)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.updates = int(state["updates"])
        self._history = [dict(record) for record in state["history"]]
        self.phase = None


PEAK_SHARE = 0.8
"""The value of stored actions has fallen when it is below this share of its rise."""
GAP_FACTOR = 2.0
"""Held-out errors are above the others when they are this many times as large."""
ERROR_SHARE = 0.25
"""A temporal difference is large when its root is above this share of the stored values' size."""


def hints(history: Sequence[Mapping[str, float]]) -> list[str]:
    """Hints about conspicuous curves.

    Args:
        history: One record per evaluation, oldest first: `updates`, `q_data`, `q_random`,
            `td_error`, and `held_out_td_error` where episodes were held out.

    Returns:
        Sentences; none where nothing is conspicuous or there are fewer than three records.
    """
    if len(history) < 3:
        return []
    found, last = [], history[-1]
    values = [record["q_data"] for record in history]
    top = max(range(len(values)), key=values.__getitem__)
    rise, fall = values[top] - values[0], values[top] - values[-1]
    if 0 < top < len(values) - 1 and rise > 0 and fall > (1 - PEAK_SHARE) * rise:
        found.append(
            f"looks overfitted: the value of stored actions peaked at {values[top]:.3g} after "
            f"{history[top]['updates']:.0f} updates and is {values[-1]:.3g} now; prefer a "
            "checkpoint from about the peak, smaller networks or more data"
        )
    held_out = last.get("held_out_td_error")
    if held_out is not None and held_out > GAP_FACTOR * last["td_error"] > 0:
        found.append(
            f"looks overfitted: the temporal difference of held-out episodes, {held_out:.3g}, is "
            f"{held_out / last['td_error']:.1f} times that of the others; stop earlier, or take "
            "smaller networks or more data"
        )
    size = abs(last["q_data"])
    if last["td_error"] ** 0.5 > ERROR_SHARE * size and last["td_error"] > 0.5 * max(
        record["td_error"] for record in history
    ):
        found.append(
            f"looks underfitted: the temporal difference {last['td_error'] ** 0.5:.3g} (root) has "
            f"not come down and is large beside the stored values, {last['q_data']:.3g}; train "
            "longer, or take larger networks"
        )
    if last["q_random"] > last["q_data"]:
        found.append(
            f"actions that nobody has tried count more ({last['q_random']:.3g}) than stored ones "
            f"({last['q_data']:.3g}): raise learner.conservatism.weight, or train longer"
        )
    return found
