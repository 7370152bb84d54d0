"""The proof of compiled updates: they learn as PyTorch operations do, five seeds each."""

from itertools import pairwise
from math import isnan
from statistics import fmean, stdev

from configs.builders import run_device
from robot_rl.cli.components import make_learner, make_sim_env
from robot_rl.training.reporting.statistics import detectable_difference, permutation_test
from scripts.proofs.hover import HOVER
from scripts.proofs.pages.record import ProofRecord, SeedResult
from scripts.proofs.pages.results import Bar
from scripts.proofs.pages.tables import table
from scripts.proofs.proving.plan import Group, Proof
from scripts.proofs.proving.stages import Preparation
from scripts.proofs.proving.training import ProofError

_COMPILED, _OPERATIONS = "compiled", "PyTorch operations"
_SEEDS = 5
_LIMIT = 0.05
"""Smallest p-value that passes."""
_SUCCESS = 0.9
"""Share of the validation starts that a training is timed to."""
_TRAINING = (
    "task=hover", "training.total_steps=2_000_000", "training.evaluation_interval=250_000",
)  # fmt: skip
_CONDITION = HOVER.conditions[0]


def prepare(given: Preparation) -> None:
    """Refuse a machine on which both groups would be trained by PyTorch operations.

    Raises:
        ProofError: There is no compiler, or the updates are not covered.
    """
    config = given.jobs[_COMPILED][0].config
    env = make_sim_env(config, num_envs=1, device=run_device(config), seed=0, evaluation=True)
    method = make_learner(config, env.spec).update_method
    if not method.startswith("compiled"):
        raise ProofError(f"group '{_COMPILED}' needs compiled updates, got: {method}")


def bars(record: ProofRecord) -> list[Bar]:
    """Bars of the proof."""
    return [
        Bar(what="seeds", value=min(len(g.seeds) for g in record.groups.values()), limit=_SEEDS),
        *(
            Bar(what=f"p-value, {what}", value=permutation_test(*both), limit=_LIMIT)
            for what, both in _measures(record).items()
        ),
    ]


def findings(record: ProofRecord) -> str:
    """Both groups beside each other, and the differences that the tests could have seen."""
    head = ["mean and standard deviation over seeds", _COMPILED, _OPERATIONS,
            "difference (95 % interval)", "p-value", "p < 0.05 from a difference of"]  # fmt: skip
    rows = []
    for what, (compiled, operations) in _measures(record).items():
        size, least = detectable_difference(compiled, operations, level=_LIMIT)
        difference = fmean(compiled) - fmean(operations)
        low, high = difference - least, difference + least
        rows.append([
            what, _spread(compiled), _spread(operations),
            f"{difference:+.3g} ({low:+.3g} to {high:+.3g})",
            f"{permutation_test(compiled, operations):.3f}",
            f"{least:.3g} ({size:.2f} pooled standard deviations)",
        ])  # fmt: skip
    came = [
        f"{sum(not isnan(_million_steps(seed)) for seed in group.seeds)} of {len(group.seeds)} "
        f"({name})"
        for name, group in record.groups.items()
    ]
    return "\n\n".join([
        table(head, rows),
        "The last column is the smallest difference of the means, in either direction, that would "
        "have given p < 0.05 if the seeds lay around their group's mean as they do; the interval "
        "is as wide to both sides. A smaller difference can be there unseen. Trainings that came "
        f"to 90 % success at all: {', '.join(came)}.",
    ])  # fmt: skip


def _measures(record: ProofRecord) -> dict[str, tuple[list[float], list[float]]]:
    """Values of all seeds of both groups, by what they are."""
    compiled, operations = (record.groups[name].seeds for name in (_COMPILED, _OPERATIONS))

    def area(seed: SeedResult) -> float:
        return fmean(value for _, value in seed.evaluations)

    measures = {"evaluation return, mean over the curve": area}
    if any(isnan(_million_steps(seed)) for seed in (*compiled, *operations)):
        measures["evaluation return, last"] = lambda seed: seed.evaluations[-1][1]
    else:
        measures["million steps to 90 % success"] = _million_steps
    return {
        what: ([value(seed) for seed in compiled], [value(seed) for seed in operations])
        for what, value in measures.items()
    }


def _million_steps(seed: SeedResult) -> float:
    """Steps to `_SUCCESS`, in millions, between evaluations on a line; NaN if never reached."""
    curve = [(0.0, 0.0), *seed.more_evaluations["eval/success"]]
    for (before, low), (step, rate) in pairwise(curve):
        if rate >= _SUCCESS:
            return (before + (step - before) * (_SUCCESS - low) / (rate - low)) / 1e6
    return float("nan")


def _spread(values: list[float]) -> str:
    return f"{fmean(values):.4g} +- {stdev(values) if len(values) > 1 else 0.0:.3g}"


COMPILED = Proof(
    name="compiled",
    title="Compiled updates",
    about="The compiled update (`learner.compile=true`, the default) shall learn as PyTorch "
    "operations do (`learner.compile=false`). Both train hover for 2 million steps with the same "
    "five seeds and are evaluated every 250,000 steps on 256 validation starts. Runs of one seed "
    "begin with the same networks and random numbers, but rounding differs and grows, so that "
    "all ten count as independent. A two-sided exact permutation test over all 252 splits of the "
    "ten runs into two groups of five compares the mean of the evaluation return over the eight "
    "evaluations (the area under the curve), and the steps to 90 % success, on a line between "
    "evaluations, or the last return if a run does not come to 90 %. The bar is p >= 0.05 in both: "
    "equal updates would miss it in at most one of ten such proofs. It does not say that there is "
    "no difference, but how large one can be at most.",
    groups=(
        # No group bears the bars: more seeds would have too many splits to try them all.
        Group(
            name=_COMPILED, about="`learner.compile=true`.",
            overrides=(*_TRAINING, "learner.compile=true"), seeds=_SEEDS, trials=(_CONDITION.name,),
        ),
        Group(
            name=_OPERATIONS, about="`learner.compile=false`.",
            overrides=(*_TRAINING, "learner.compile=false"), seeds=_SEEDS,
            trials=(_CONDITION.name,),
        ),
    ),
    conditions=(_CONDITION,),
    columns=HOVER.columns,
    curve="eval/return",
    more_curves=("eval/success",),
    bars=bars,
    findings=findings,
    prepare=prepare,
)  # fmt: skip
