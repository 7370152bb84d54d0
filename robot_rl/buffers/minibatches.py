"""Between replay and learner: as many minibatches as there are updates, drawn at the right time."""

from collections.abc import Iterator

from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch


class Minibatches:
    """Draws what a learner eats, and hears how wrong it was."""

    def __init__(self, replay: ReplayBuffer, size: int) -> None:
        """Join the parts.

        Args:
            replay: Of the run itself.
            size: Transitions of a minibatch.
        """
        self._replay, self._size = replay, size

    def draw(self, count: int, progress: float) -> Iterator[Batch]:
        """Minibatches, one after another.

        Drawn uniformly, all come from one gather. Drawn by priority, each is drawn when it is asked
        for: it knows what the updates before it have told.

        Args:
            count: How many.
            progress: Part of the training that is over, in [0, 1].
        """
        if self._replay.prioritized:
            for _ in range(count):
                yield self._replay.sample(self._size, progress=progress)
            return
        batch = self._replay.sample(count * self._size)
        for i in range(count):
            yield batch.take(i * self._size, (i + 1) * self._size)

    def tell(self, batch: Batch, error: Tensor | None) -> None:
        """Hand a learner's errors on to the priorities.

        Args:
            batch: As it was drawn.
            error: Second answer of `Learner.update`, (B,).

        Raises:
            ConfigError: Rows are drawn by priority, and the learner sets none.
        """
        if not self._replay.prioritized:
            return
        if error is None:
            raise ConfigError(
                "training.replay.priority is above 0, but this learner sets no priorities: its "
                "update returns None; use training.replay.priority=0 or another learner"
            )
        self._replay.set_priorities(batch.extra["index"], error)
