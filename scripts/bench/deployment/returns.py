"""Returns of a policy in its training environment, and deployed, from the same starts and goals."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs.compose import to_plain
from configs.schema import RunConfig
from configs.twin_builder import exactly_measured
from policies.bundle import SEALED_FILES, seal
from robot_rl.cli.bundling import BundlePolicy
from robot_rl.cli.components import make_sim_env
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.training.reporting.statistics import bootstrap_interval
from scripts.bench.deployment.episodes import Episode, deployed_episodes
from scripts.bench.deployment.figures import Figure

DIFFERENCE_PERCENT = 5.0
"""Bars of a deployment."""
_FIRST_SEED = 1000


@dataclass(frozen=True, kw_only=True)
class PairedReturns:
    """Episodes of one bundle, pair by pair from the same start."""

    what: str
    """Name of the policy."""
    control_dt: float
    """[s]."""
    steps: int
    """Control steps of an episode."""
    simulated: list[Episode]
    deployed: list[Episode]

    @property
    def differences(self) -> np.ndarray:
        """Deployed minus simulated return, as percentages of the mean simulated one."""
        ours = np.array([episode.total_return for episode in self.deployed])
        theirs = np.array([episode.total_return for episode in self.simulated])
        return 100 * (ours - theirs) / abs(theirs.mean())

    def figures(self) -> list[Figure]:
        """The one with the bar first."""
        found = self.differences
        mean = float(found.mean())
        low, high = bootstrap_interval(found, center=np.mean)
        return [
            Figure(what="difference of the mean returns, either way", value=abs(mean),
                   unit="%", most=DIFFERENCE_PERCENT,
                   note=f"deployed {mean:+.2f} %, 95 % interval {low:+.2f} .. {high:+.2f}"),
            self._mean("simulated", self.simulated),
            self._mean("deployed", self.deployed),
        ]  # fmt: skip

    def lines(self) -> list[str]:
        """Measurements, and their outcome."""
        seconds = self.steps * self.control_dt
        lost = [episode.lost for episode in self.deployed if episode.lost]
        slow = statistics.median(e.seconds / (e.steps * self.control_dt) for e in self.deployed)
        clamped = statistics.fmean(episode.clamped for episode in self.deployed)
        answer = self.deployed[-1].answer
        return [
            f"{self.what}: {len(self.deployed)} pairs of episodes of up to {seconds:g} s; nominal "
            "plant, exact sensors",
            *(figure.line for figure in self.figures()),
            f"  sensor stamp -> command applied, p50: {1e3 * answer:.1f} ms, of a control period "
            f"of {1e3 * self.control_dt:g} ms; in training it is none",
            f"  limits changed {100 * clamped:.1f} % of the commands; time passed at "
            f"{1 / slow:.2f} of its speed; the robot stopped its policy in {len(lost)}",
            *(f"    {reason}" for reason in sorted(set(lost))),
        ]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "what": self.what, "steps": self.steps, "control_dt": self.control_dt,
            "figures": [figure.record() for figure in self.figures()],
            "simulated": [asdict(episode) for episode in self.simulated],
            "deployed": [asdict(episode) for episode in self.deployed],
        }  # fmt: skip

    def _mean(self, who: str, episodes: list[Episode]) -> Figure:
        returns = [episode.total_return for episode in episodes]
        succeeded = sum(episode.success for episode in episodes)
        lost = sum(episode.terminated and not episode.success for episode in episodes)
        return Figure(
            what=f"mean return, {who}", value=statistics.fmean(returns),
            note=f"spread {np.std(returns):.3g}; {succeeded} successes, {lost} lost",
        )  # fmt: skip


def measure_returns(
    folder: Path, bundle: Path, *, episodes: int, seconds: float, domain: int, patience: float,
    say: Callable[[str], None],
) -> PairedReturns:  # fmt: skip
    """Play the same episodes in the training environment and on the deployed twin.

    Args:
        folder: For files that are needed meanwhile.
        bundle: The policy.
        episodes: How many pairs.
        seconds: Longest episode [s]; 0 takes the task's.
        domain: ROS_DOMAIN_ID.
        patience: Factor on what the robot waits for.
        say: Takes lines about the progress.
    """
    exact = write_exact_bundle(bundle, folder / "bundle")
    plan = Deployment(DeployOptions(bundle=str(exact), domain=domain))
    control_dt = plan.runner.spec.control_dt
    steps = round(seconds / control_dt) if seconds else 0
    seeds = range(_FIRST_SEED, _FIRST_SEED + episodes)
    simulated = simulated_episodes(plan.twin_config, exact, seeds, steps)
    steps = steps or max(episode.steps for episode in simulated)
    deployed = deployed_episodes(
        folder, exact, seeds, steps=steps, control_dt=control_dt, domain=domain,
        patience=patience, say=say,
    )  # fmt: skip
    return PairedReturns(
        what=f"{bundle}, {plan.robot.name}", control_dt=control_dt, steps=steps,
        simulated=simulated, deployed=deployed,
    )  # fmt: skip


def write_exact_bundle(bundle: Path, folder: Path) -> Path:
    """A copy of a bundle whose robot measures exactly and whose plant is the nominal one.

    Only the configuration that worlds are built from differs: the policy is the same.
    """
    plan = Deployment(DeployOptions(bundle=str(bundle)))
    _ = plan.runner  # refuses what is damaged, before it is sealed anew
    exact = exactly_measured(plan.config)
    nominal = replace(exact.task, randomization=exact.task.randomization.nominal())
    exact = replace(exact, task=nominal)
    files = {name: (bundle / name).read_bytes() for name in SEALED_FILES}
    provenance = json.loads(files["provenance.json"])
    provenance["config"] = to_plain(exact)
    files["provenance.json"] = json.dumps(provenance, indent=2).encode()
    policy = json.loads((bundle / "spec.json").read_bytes())["policy"]
    folder.mkdir(parents=True)
    for name, content in {**files, "spec.json": seal(policy, files)}.items():
        (folder / name).write_bytes(content)
    return folder


def simulated_episodes(
    config: RunConfig, bundle: Path, seeds: Sequence[int], steps: int
) -> list[Episode]:
    """One world of the training environment, with the bundle's own deterministic actions.

    Args:
        config: The run, with the plant and the sensors that are meant.
        bundle: The policy.
        seeds: Of the starts and goals.
        steps: Control steps of an episode; 0 for the task's.
    """
    env = make_sim_env(
        config, num_envs=1, device=torch.device("cpu"), seed=seeds[0], evaluation=True
    )
    policy = BundlePolicy.load(bundle, env, None)
    limit = min(steps or env.task.episode_steps, env.task.episode_steps)
    everyone = torch.ones(1, dtype=torch.bool)
    episodes: list[Episode] = []
    for seed in seeds:
        obs = env.reset(seed=seed)
        policy.begin(everyone)
        total, length, success = 0.0, 0, False
        ended = terminated = False
        while not ended and length < limit:
            step = env.step(policy(obs))
            obs, length, total = step.obs, length + 1, total + float(step.reward)
            terminated, success = bool(step.terminated), bool(step.success)
            ended = terminated or bool(step.truncated)
        episodes.append(
            Episode(total_return=total, steps=length, terminated=terminated, success=success)
        )
    return episodes
