"""The learner beside robots: what it owes, how it resumes, what it publishes, what persons wish."""

import dataclasses
import threading
import uuid
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli.learning.parts import take_weights
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from robot_rl.core.errors import CheckpointError
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, encode
from robot_rl.link.server import ControlError
from robot_rl.link.store import ExperienceStore
from robot_rl.link.weights import WeightStore
from robot_rl.training.config import OnlineConfig, PriorConfig, TrainerConfig
from robot_rl.training.online import CHECK, POLICY, OnlineTrainer
from robot_rl.training.prior import write_dataset
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.equality import tensors
from tests.fakes import CPU, small_sac
from tests.robot_rl.learners.small_offline import small_qc

SPEC = EnvSpec(
    num_envs=1, device=CPU, groups={"actor": GroupSpec(shape=(3,))}, action_size=2, control_dt=0.1
)
SESSION = "c" * 32


def send(store, episodes, *, first=0, steps=10, intervened=range(0), version=0):
    """Episodes of a robot, straight into the store; returns the number of the next record."""
    rng, seq = np.random.default_rng(first), first
    store.begin(SESSION, "arm")
    records = []
    for episode in episodes:
        for index in range(steps + 1):
            records.append(Frame(
                session=SESSION, episode=episode, index=index, seq=seq,
                obs={"actor": rng.normal(size=3).astype(np.float32)},
                action=None if index == steps else rng.uniform(-1, 1, 2).astype(np.float32),
                reward=1.0, truncated=index == steps - 1, intervened=index in intervened,
                policy_version=version,
            ))  # fmt: skip
            seq += 1
    store.append(SESSION, first, [encode(one) for one in records])
    return seq


def make(folder, store, *, online=None, records=None, learner=None, **options):
    weights = WeightStore(folder / "weights")
    values = {"updates_per_step": 2, "replay_capacity": 1000, "prior": PriorConfig(share=0.5)}
    learner = learner or small_sac(SPEC, seed=1, batch_size=8)
    return OnlineTrainer(
        TrainerConfig(**{**values, **options}), online or OnlineConfig(start_steps=5), spec=SPEC,
        learner=learner, store=store, checkpoints=CheckpointStore(folder / "checkpoints"),
        publish=weights.publish, record=(records if records is not None else []).append,
        interval_seconds=0.01, seed=0,
    )  # fmt: skip


def learn_all(trainer):
    while trainer.learn():
        pass


def equal(one, two):
    left, right = tensors(one), tensors(two)
    assert left.keys() == right.keys()
    return [name for name in left if not torch.equal(left[name], right[name])] == []


@pytest.fixture
def store(tmp_path):
    store = ExperienceStore(tmp_path / "log")
    yield store
    store.close()


def test_it_does_the_updates_that_received_steps_allow_and_no_more(tmp_path, store):
    trainer = make(tmp_path, store)
    assert not trainer.take()
    assert not trainer.learn()
    send(store, [0])
    assert trainer.take()
    learn_all(trainer)
    assert (trainer.steps, trainer.updates) == (10, 2 * (10 - 5))
    trainer.paused = True
    send(store, [1], first=11)
    trainer.take()
    assert not trainer.learn()
    trainer.paused = False
    learn_all(trainer)
    assert (trainer.steps, trainer.updates) == (20, 30)


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_another_ratio_of_updates_holds_from_there_on(tmp_path, store, before, after):
    trainer = make(tmp_path, store, updates_per_step=before)
    first = send(store, [0])
    trainer.take()
    learn_all(trainer)
    trainer.save()
    state = CheckpointStore(tmp_path / "checkpoints").load().state
    resumed = make(tmp_path, store, updates_per_step=after)
    resumed.load_state_dict(state)
    assert resumed.owed == 0
    send(store, [1], first=first)
    resumed.take()
    learn_all(resumed)
    assert resumed.updates == 5 * before + 10 * after
    again = make(tmp_path, store, updates_per_step=after)
    again.load_state_dict(resumed.state_dict())
    assert again.owed == 0


def test_what_each_robot_saw_last_is_valued_for_its_console(tmp_path, store):
    trainer = make(tmp_path, store, online=OnlineConfig(start_steps=100))
    send(store, [0])
    passes = iter(range(2))
    trainer.run(over=lambda: next(passes, None) is None)
    last = list(store.read(0))[-1][1].obs["actor"]
    learner: Any = trainer.learner
    obs = {"actor": torch.from_numpy(last.copy())[None]}
    with torch.no_grad():
        expected = float(learner.critic(obs, learner.policy()(obs)).mean())
    assert trainer.metrics(SESSION)["q"] == pytest.approx(expected, abs=1e-6)
    assert "q" not in trainer.metrics("d" * 32)


def test_a_measurement_that_is_no_number_is_in_no_normaliser(tmp_path, store):
    trainer, seen = make(tmp_path, store), []
    learner: Any = trainer.learner
    learner.observe = seen.append
    store.begin(SESSION, "arm")
    obs = [np.full(3, value, np.float32) for value in (np.nan, 1.0, 2.0, np.nan, 3.0)]
    store.append(SESSION, 0, [
        encode(Frame(
            session=SESSION, episode=0, index=k, seq=k, obs={"actor": one}, reward=1.0,
            action=None if k == 4 else np.zeros(2, np.float32), valid=bool(np.isfinite(one).all()),
        ))
        for k, one in enumerate(obs)
    ])  # fmt: skip
    trainer.take()
    assert trainer.steps == 4
    assert [bool(step.valid) for step in seen] == [True, False, False]
    assert all(bool(step.obs["actor"].isfinite().all()) for step in seen)


@pytest.mark.parametrize("count", [3, 20])
def test_few_demonstrations_are_half_of_every_minibatch_too(tmp_path, store, count):
    prior = PriorConfig(run=str(demonstrations(tmp_path / "demos", count)), share=0.5)
    trainer, sources = make(tmp_path, store, prior=prior), []
    learner: Any = trainer.learner
    update = learner.update

    def watched(batch):
        sources.append(batch.extra["source"])
        return update(batch)

    learner.update = watched
    send(store, [0])
    trainer.take()
    assert trainer.learn()
    assert all(float((source == 1).float().mean()) == 0.5 for source in sources)


@pytest.mark.slow
def test_a_resumed_learner_does_the_same_next_updates_bit_for_bit(tmp_path, store):
    trainer = make(tmp_path, store)
    last = send(store, [0, 1, 2, 3], intervened=range(2, 6))
    late = Correction(
        id=uuid.uuid4().hex, session=SESSION, episode=1, kind="success", index=7, value=1.0, time=1
    )
    store.append(SESSION, last, [encode(late)])
    trainer.take()
    for _ in range(10):
        trainer.learn()
    trainer.save()
    saved = trainer.state_dict()
    send(store, [4], first=last + 1)  # comes after the checkpoint: taken again after a resume

    def go_on(trainer):
        trainer.take()
        learn_all(trainer)
        state = trainer.state_dict()
        return {name: state[name] for name in ("learner", "replay", "policy")}

    resumed = make(tmp_path, store)
    checkpoint = CheckpointStore(tmp_path / "checkpoints").load()
    resumed.load_state_dict(checkpoint.state)
    assert equal(resumed.state_dict()["learner"], saved["learner"])
    assert resumed.updates == trainer.updates == 20
    assert resumed.replay.interventions == 16
    one, two = go_on(trainer), go_on(resumed)
    assert trainer.updates == resumed.updates > 60
    assert equal(one, two)
    untrained = make(tmp_path, store)
    assert not equal(one["policy"], untrained.learner.policy().state_dict())


def test_a_checkpoint_is_refused_beside_another_log(tmp_path, store):
    trainer = make(tmp_path, store)
    send(store, [0])
    trainer.take()
    state = trainer.state_dict()
    other = ExperienceStore(tmp_path / "other")
    with pytest.raises(CheckpointError, match="put back the log of the run"):
        make(tmp_path, other).load_state_dict(state)
    other.close()


def test_half_of_a_minibatch_are_persons_steps_once_there_are_enough(tmp_path, store):
    trainer = make(tmp_path, store)
    sources, update = [], trainer.learner.update

    def look(batch):
        sources.append(
            batch.extra["source"].float().mean().item() if "source" in batch.extra else 0
        )
        return update(batch)

    trainer.learner.update = look
    next_seq = send(store, [0])
    trainer.take()
    learn_all(trainer)
    assert set(sources) == {0}
    send(store, [1], first=next_seq, intervened=range(10))
    trainer.take()
    learn_all(trainer)
    assert sources[-1] == 0.5


def demonstrations(folder, count):
    """A data set of one env, whose actions are all 0.5."""
    replay = ReplayBuffer(SPEC, ("actor",), capacity=count, gamma=0.99)
    for k in range(count):
        obs = {"actor": torch.full((1, 3), float(k))}
        ends = torch.tensor([k % 5 == 4])
        replay.add(obs, EnvStep(
            obs=obs, next_obs=obs, reward=torch.ones(1), terminated=ends, truncated=~ends & ends,
            success=ends, valid=torch.tensor([True]), action=torch.full((1, 2), 0.5),
            intervened=torch.tensor([False]),
        ))  # fmt: skip
    return write_dataset(folder, replay)


def test_persons_steps_join_the_demonstrations_and_both_are_there_after_a_resume(tmp_path, store):
    prior = PriorConfig(run=str(demonstrations(tmp_path / "demos", 20)), share=0.5)
    trainer = make(tmp_path, store, prior=prior)
    send(store, [0], intervened=range(4, 7))
    trainer.take()
    learn_all(trainer)
    batch = trainer.replay.prior.strided_sample(23)
    assert (batch.action == 0.5).all(dim=1).tolist() == [True] * 20 + [False] * 3
    trainer.save()
    state = CheckpointStore(tmp_path / "checkpoints").load().state
    resumed = make(tmp_path, store, prior=prior)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.replay.prior.ordered_rows(), trainer.replay.prior.ordered_rows())
    assert equal(resumed.state_dict()["replay"], state["replay"])
    other = PriorConfig(run=str(demonstrations(tmp_path / "others", 25)), share=0.5)
    with pytest.raises(CheckpointError, match="are not those that the run was mixed with"):
        make(tmp_path, store, prior=other).load_state_dict(state)


def test_normalisers_see_the_demonstrations_before_the_first_step(tmp_path, store):
    """They began as the identity here, and the first steps of a robot, all alike, blew them up."""
    prior = PriorConfig(run=str(demonstrations(tmp_path / "demos", 20)), share=0.5)
    trainer = make(tmp_path, store, prior=prior)
    seen = trainer.replay.prior.strided_sample(20).obs["actor"]
    learner: Any = trainer.learner
    for network in (learner.actor, learner.critic):
        assert torch.allclose(network.normalizer.mean, seen.mean(0), atol=1e-6)


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_by_what_the_policy_did_alone(tmp_path, store):
    trainer = make(tmp_path, store)
    last = send(store, range(20), steps=3)
    labels = [
        Correction(
            id=f"{k:032d}", session=SESSION, episode=k, kind="success", index=2, value=1.0, time=k
        )
        for k in range(10)
    ]
    store.append(SESSION, last, [encode(one) for one in labels])
    trainer.take()
    trainer.save()
    assert CheckpointStore(tmp_path / "checkpoints").load().score == 0.5
    send(store, range(20, 40), first=last + 10, steps=3, intervened=range(1))
    more = [dataclasses.replace(labels[0], id=f"a{k}", episode=20 + k) for k in range(20)]
    store.append(SESSION, last + 10 + 80, [encode(one) for one in more])
    trainer.take()
    trainer.save()
    assert CheckpointStore(tmp_path / "checkpoints").load().score == 0.0


def test_weights_that_were_taken_back_are_scored_by_what_they_do_from_then_on(tmp_path, store):
    """Those of a bad checkpoint became the best by the episodes of the good ones before."""
    trainer = make(tmp_path, store)
    checkpoints = CheckpointStore(tmp_path / "checkpoints")
    trainer.save()
    trainer.publish()
    last = send(store, range(20), steps=3, version=trainer.version)
    trainer.take()
    wish = trainer.ask("rollback", {"checkpoint": "0"})
    trainer._fulfil_wishes()
    assert wish.result(0).startswith("the weights are those of step 0, as version 2")
    assert checkpoints.load().score is None
    trainer = make(tmp_path, store)
    trainer.load_state_dict(checkpoints.load().state)
    last = send(store, range(20, 39), first=last, steps=3, version=2)
    trainer.take()
    trainer.save()
    assert checkpoints.load().score is None
    send(store, [39], first=last, steps=3, version=3)
    trainer.take()
    trainer.save()
    assert checkpoints.load().score == 0.0


def test_a_learner_that_is_behind_comes_to_its_end_though_robots_go_on(tmp_path, store):
    trainer = make(tmp_path, store, total_steps=20)
    send(store, [0, 1, 2])
    trainer.take()
    learn_all(trainer)
    assert trainer.steps == 30
    assert trainer.updates == 2 * (20 - 5)
    assert trainer.finished


def test_a_wish_that_breaks_the_learner_is_answered(tmp_path, store, monkeypatch):
    trainer = make(tmp_path, store)

    def broken(do, arguments):
        raise OSError("no space left")

    monkeypatch.setattr(trainer, "_fulfil", broken)
    asked = []

    def ask():
        with pytest.raises(ControlError, match="no space left"):
            trainer.ask("rollback", {}).result(20)
        asked.append(True)

    person = threading.Thread(target=ask)
    person.start()
    with pytest.raises(OSError, match="no space left"):
        trainer.run()
    person.join(10)
    assert asked


def test_published_weights_act_as_the_learner_does_and_versions_only_grow(tmp_path, store):
    trainer = make(tmp_path, store)
    send(store, [0])
    trainer.publish()
    trainer.take()
    learn_all(trainer)
    trainer.publish()
    trainer.publish()  # nothing new
    weights = WeightStore(tmp_path / "weights")
    assert weights.newest == trainer.version == 2
    found = weights.load(2).arrays
    actor = small_sac(SPEC, seed=9)
    actor.policy().load_state_dict(
        {n.removeprefix(POLICY): torch.tensor(t) for n, t in found.items() if n.startswith(POLICY)}
    )
    obs = {"actor": torch.tensor(found[f"{CHECK}obs/actor"])}
    assert torch.equal(actor.act(obs, explore=False), torch.tensor(found[CHECK + "action"]))
    again = make(tmp_path, store)
    again.publish()
    assert again.version == 3


def test_every_version_of_a_policy_that_plans_is_taken_over(tmp_path, store):
    """The action that is compared begins a plan: the rest of an earlier one is of other weights."""
    trainer = make(tmp_path, store, learner=small_qc(SPEC, replan_interval=3))
    acting = small_qc(SPEC, replan_interval=3, seed=7)
    weights = WeightStore(tmp_path / "weights")
    for version in (1, 2, 3):
        with torch.no_grad():
            for one in trainer.learner.policy().parameters():
                one.add_(0.1 * torch.randn_like(one))
        trainer.updates += 1
        trainer.publish()
        take_weights(acting, weights.load(version))
        acting.act({"actor": torch.randn(1, 3)}, explore=False)


def test_a_label_that_comes_late_changes_what_is_learned(tmp_path, store):
    trainer = make(tmp_path, store)
    last = send(store, [0])
    trainer.take()
    label = Correction(
        id="1" * 32, session=SESSION, episode=0, kind="success", index=6, value=3.0, time=5.0
    )
    store.append(SESSION, last, [encode(label)])
    store.append(SESSION, last + 1, [encode(label)])  # a second time: nothing more
    trainer.take()
    batch = trainer.replay.steps.strided_sample(10)
    assert batch.reward.tolist() == [1, 1, 1, 1, 1, 1, 3, 1, 1, 1]
    assert batch.weight.tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert batch.discount[6] == 0
    undo = dataclasses.replace(label, id="2" * 32, kind="undo", text=label.id, time=6.0)
    store.append(SESSION, last + 2, [encode(undo)])
    trainer.take()
    batch = trainer.replay.steps.strided_sample(10)
    assert batch.reward.tolist() == [1.0] * 10
    assert batch.weight.tolist() == [1.0] * 10
    assert (batch.discount > 0).all()


@pytest.mark.slow
def test_wishes_of_persons_are_fulfilled_between_updates(tmp_path, store):
    records = []
    trainer = make(tmp_path, store, records=records)
    send(store, [0, 1])
    trainer.take()
    for _ in range(3):
        trainer.learn()
    trainer.save()
    good = trainer.learner.state_dict()["actor"]
    good = {name: one.clone() for name, one in good.items()}
    send(store, [2], first=22)
    thread = threading.Thread(target=trainer.run)
    thread.start()
    try:
        assert trainer.ask("pause_learning", {}).result(20) == "learning is paused"
        with pytest.raises(ControlError, match=r"no checkpoint '7'; expected one of: last, 20"):
            trainer.ask("rollback", {"checkpoint": "7"}).result(20)
        with pytest.raises(ControlError, match=r"no checkpoint 'best'; expected one of: last, 20"):
            trainer.ask("rollback", {"checkpoint": "best"}).result(20)
        told = trainer.ask("rollback", {"checkpoint": "20"}).result(20)
        assert told.startswith("the weights are those of")
        assert trainer.ask("evaluated", {"success": 0.5, "episodes": 10}).result(20) == "noted"
        for wrong in ("half", None, float("nan"), 10**400):
            with pytest.raises(ControlError, match=r"success is .*; expected a number"):
                trainer.ask("evaluated", {"success": wrong}).result(20)
        with pytest.raises(ControlError, match="'dance' is unknown to the learner"):
            trainer.ask("dance", {}).result(20)
    finally:
        trainer.stop()
        thread.join()
    state = CheckpointStore(tmp_path / "checkpoints").load().state
    assert all(torch.equal(state["learner"]["actor"][name], good[name]) for name in good)
    assert state["paused"]
    assert state["steps"] == 30
    assert any("eval/success" in one for one in records)
    assert records[-1]["rollout/return"] == 10
