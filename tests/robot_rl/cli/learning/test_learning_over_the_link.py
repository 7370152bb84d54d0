"""A point mass is learned by an actor and a learner that know each other by the link alone."""

import contextlib
from typing import Any

import pytest

from robot_rl.cli.learning.actor import Actor
from robot_rl.cli.learning.environment import SimulatedRobot
from robot_rl.cli.learning.operator import NoConsole
from robot_rl.cli.learning.parts import frame_spec
from robot_rl.link.client import LinkClient
from robot_rl.link.records import Frame
from robot_rl.link.server import LinkServer
from robot_rl.link.spool import Spool
from robot_rl.link.store import ExperienceStore
from robot_rl.link.transport import Security
from robot_rl.link.weights import WeightStore
from robot_rl.training.config import OnlineConfig, PriorConfig, TrainerConfig
from robot_rl.training.evaluation import evaluate
from robot_rl.training.online import OnlineTrainer
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.fakes import PointMass, ToyEnv, small_sac
from tests.robot_rl.link.linked import QUOTA, until

STEPS = 3000
SETTINGS: dict[str, Any] = {
    "batch_size": 128, "gamma": 0.95, "tau": 0.02, "actor_lr": 3e-3, "critic_lr": 3e-3,
    "temperature_lr": 3e-3, "init_temperature": 0.1, "actor": {"hidden": [32, 32]},
    "critic": {"hidden": [32, 32]},
}  # fmt: skip


def masses(num_envs, seed=0):
    return ToyEnv(
        PointMass(), num_envs, limit=60, reward_weights=lambda _: [1.0, 0.1, 0.01], seed=seed
    )


@pytest.mark.slow
def test_a_point_mass_is_learned_over_the_link(tmp_path):
    env = masses(1, seed=3)
    learner = small_sac(env.spec, seed=1, **SETTINGS)
    with (
        contextlib.closing(ExperienceStore(tmp_path / "log")) as store,
        contextlib.closing(Spool(tmp_path / "spool", quota_bytes=QUOTA)) as spool,
    ):
        weights = WeightStore(tmp_path / "weights")
        trainer = OnlineTrainer(
            TrainerConfig(updates_per_step=1, replay_capacity=10_000, prior=PriorConfig(share=0)),
            OnlineConfig(start_steps=200), spec=env.spec, learner=learner, store=store,
            checkpoints=CheckpointStore(tmp_path / "checkpoints"), publish=weights.publish,
            record=lambda record: None, interval_seconds=1.0, seed=0,
        )  # fmt: skip
        server = LinkServer(
            store, weights, address="127.0.0.1:0", security=Security(),
            spec=frame_spec(env.spec, learner), controls=trainer.ask, metrics=trainer.metrics,
        )  # fmt: skip
        acting = small_sac(env.spec, seed=2, **SETTINGS)
        link = LinkClient(
            spool, WeightStore(tmp_path / "robot"), address=f"127.0.0.1:{server.port}",
            robot="mass", spec=frame_spec(env.spec, acting), security=Security(),
        )  # fmt: skip
        actor = Actor(
            SimulatedRobot(env, pace=False), acting, spool, link, config=OnlineConfig(),
            console=NoConsole(),
        )  # fmt: skip
        trainer.publish()
        link.start()
        actor.start()
        try:
            while trainer.steps < STEPS:
                for _ in range(10):
                    actor.tick()
                trainer.take()
                while trainer.learn():
                    pass
                if trainer.updates > 200 * trainer.version:
                    trainer.publish()
                    until(lambda: link.newest and link.newest.version == trainer.version)
        finally:
            link.stop()
            server.stop()
        assert spool.unacknowledged < 100
        assert link.newest is not None
        versions = {one.policy_version for _, one in store.read(0) if isinstance(one, Frame)}
        assert len(versions) > 10
    # By the return (about -5 of a good controller), not the success rule: a policy that rests
    # 0.2 from the origin is now within that rule's edge and now not, and when steps arrive, and so
    # all that is learned from them, differs from run to run.
    learned = evaluate(masses(100), acting.policy(), seed=9)
    assert learned.returns.mean() > -10
    untrained = small_sac(env.spec, seed=2, **SETTINGS).policy()
    assert evaluate(masses(100), untrained, seed=9).returns.mean() < -20
