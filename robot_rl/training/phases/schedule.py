"""Where a run stands - offline, warming up, online - and what its offline phase has shown.

The phases of WSRL (Zhou et al. 2024, arXiv:2412.07762), each of which may be left out: updates from
stored experience alone; steps of the policy that came of it, never random ones, in which nothing is
learned; steps and updates in turn.
"""

import logging
from collections.abc import Mapping
from typing import Any

from robot_rl.buffers.minibatches import Minibatches
from robot_rl.core.env import BatchEnv, HasRewardWeights
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner, ObservesStoredData, OfflineLearner, Phase
from robot_rl.training.phases.config import OfflineConfig
from robot_rl.training.phases.workflow import hints
from robot_rl.training.prior_data.prior import Prior

_BLOCK = 20
"""Updates between two looks at the clock; their minibatches are drawn at once."""
_LOOKED_AT = 1024
"""Rows by which the critics are judged."""
_SEEN = 65_536
"""Rows that normalisers see before the first update."""
_NUMBERS = {Phase.offline: 0.0, Phase.warm_up: 1.0, Phase.online: 2.0}
"""Of the phases in the metrics."""
_logger = logging.getLogger(__name__)


class PhaseSchedule:
    """The phases of one run; the trainer asks it what comes next."""

    def __init__(
        self, config: OfflineConfig, learner: Learner, prior: Prior | None,
        minibatches: Minibatches | None, env: BatchEnv, *, start_steps: int,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            config: The offline phase.
            learner: Is told where the run stands.
            prior: Stored experience; there is some where there is an offline phase.
            minibatches: Of the stored experience alone.
            env: Must tell what its rewards weigh where there is an offline phase.
            start_steps: World-steps before the first update online.

        Raises:
            ConfigError: The learner or the environment cannot do without the worlds.
        """
        self._config, self._prior = config, prior
        self._learner = learner if isinstance(learner, OfflineLearner) else None
        self.minibatches = minibatches
        """Of the stored experience alone."""
        self._seen = learner if isinstance(learner, ObservesStoredData) else None
        self.start_steps = start_steps
        self.updates = 0
        """Updates of the offline phase that are done."""
        self.phase: Phase | None = None
        """None before the first step of a session."""
        self._history: list[dict[str, float]] = []
        if config.updates:
            self._check(env)

    def warm_start_normalizers(self) -> None:
        """Let the normalisers see the stored observations, offline or not.

        Before the first update: demonstrations may lie far from all that random actions show.
        """
        if self._seen is not None and self._prior is not None:
            stored = self._prior.replay.strided_sample(_SEEN)
            valid = stored.weight > 0  # rows that are not hold zeros
            if bool(valid.any()):
                self._seen.observe_stored(
                    {name: group[valid] for name, group in stored.obs.items()}
                )

    def advance(self, world_steps: int) -> Phase:
        """Where the run stands after so many steps; the learner hears of it when it changes."""
        if self.updates < self._config.updates:
            phase = Phase.offline
        else:
            phase = Phase.warm_up if world_steps < self.start_steps else Phase.online
        if phase is not self.phase:
            self.phase = phase
            if self._learner is not None:
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
        """Whether the last block ended at an interval or at the phase's end."""
        done = self.updates
        return done % self._config.evaluation_interval == 0 or done == self._config.updates

    def inspected(self) -> dict[str, float]:
        """What the critics think of stored experience, while it is all there is."""
        if self.phase is not Phase.offline or self._learner is None or self._prior is None:
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

    def _check(self, env: BatchEnv) -> None:
        if self._learner is None or not self._learner.learns_offline:
            raise ConfigError(
                f"training.offline.updates={self._config.updates} was asked of a learner that does "
                "not keep the values of untried actions in check, and would come to believe in "
                "them; take learner=cql, cal_ql, wsrl, iql or qc, or set "
                "learner.conservatism.weight"
            )
        if env.spec.reward_names and not isinstance(env, HasRewardWeights):
            raise ConfigError(
                f"training.offline.updates={self._config.updates} needs the weights of the reward "
                "terms before the first step, which this environment does not tell; expected one "
                "with `reward_weights`, such as env=sim"
            )
