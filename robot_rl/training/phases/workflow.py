"""Reads the curves of an offline phase as "A Workflow for Offline Model-Free Robotic RL" does.

(Kumar et al. 2021, arXiv:2109.10813.) Without a robot, two failures show in the critics:

- Overfitting: the value of stored actions rises and then falls, while the error on episodes that
  were held out rises above that on the others. Earlier checkpoints are better; fewer weights,
  dropout or more data help.
- Underfitting: the temporal difference stays large beside the spread of the values, or the values
  of actions that nobody has tried are not kept below the stored ones. Larger networks or more
  updates help.

These are hints: rules of thumb over a few numbers, not tests.
"""

from collections.abc import Mapping, Sequence

PEAK_SHARE = 0.8
"""The value of stored actions has fallen when it is below this share of its rise."""
GAP_FACTOR = 2.0
"""Held-out errors are above the others when they are this many times as large."""
ERROR_SHARE = 0.25
"""A temporal difference is large when its root is above this share of the stored values' size."""


def hints(history: Sequence[Mapping[str, float]]) -> list[str]:
    """What the curves say, in words.

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
