"""Pictures of a data set as experience of before: every stack is the told one, and is learned."""

from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.cli.evaluation import _table
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import SpecMismatchError
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.config import PriorConfig
from robot_rl.training.prior import open_prior
from robot_rl.training.runs.run_folder import RunFolder, RunName
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.fakes import LinearWorld, ToyEnv
from tests.robot_rl.datasets.samples import episode, write
from tests.robot_rl.training.loop import Loop, ends_as_if_uninterrupted
from tests.robot_rl.training.test_images import SEEN, drq_sac

WORLD = ToyEnv(SEEN).spec
FRONT = "image/front"
DEPTH, HIGH, WIDE = WORLD.groups[FRONT].shape[:3]
STORED = DatasetSpec(
    groups={name: group.shape[0] for name, group in WORLD.groups.items() if name != FRONT},
    action_size=WORLD.action_size, control_dt=WORLD.control_dt, reward_names=WORLD.reward_names,
    images={"front": (HIGH, WIDE, 3)},
)  # fmt: skip


def told(seed: int, steps: int):
    """An episode whose pictures are noise, or stay the same for a while."""
    draw = np.random.default_rng(seed)
    pictures = draw.integers(0, 256, (steps + 1, HIGH, WIDE, 3), dtype=np.uint8)
    pictures[steps // 2] = pictures[steps // 2 - 1]
    return episode(seed, steps, spec=STORED, images={"front": pictures})


def stacked(one, at: int) -> torch.Tensor:
    frames = [one.images["front"][max(0, at - back)] for back in reversed(range(DEPTH))]
    return torch.from_numpy(np.stack(frames))


def opened(folder: Path, n_step: int = 1):
    own = ReplayBuffer(WORLD, ("actor", FRONT), capacity=30, gamma=0.5, n_step=n_step)
    return open_prior(PriorConfig(run=str(folder)), own, WORLD, ("actor", FRONT), seed=0)


@pytest.mark.parametrize("lengths", [(3, 9, 4), (1,) * 20])
def test_every_stack_and_every_successor_is_the_told_one(tmp_path, lengths):
    episodes = [told(seed, steps) for seed, steps in enumerate(lengths)]
    replay = opened(write(tmp_path / "set", *episodes, spec=STORED)).replay
    batch = replay.strided_sample(sum(lengths))
    assert len(replay) == sum(lengths)  # the shortest episodes have lost no frame either
    row = 0
    for one in episodes:
        for k in range(one.num_steps):
            assert torch.equal(batch.obs[FRONT][row], stacked(one, k))
            assert torch.equal(batch.next_obs[FRONT][row], stacked(one, k + 1))
            row += 1


def test_pictures_of_another_camera_or_size_are_refused(tmp_path):
    other = DatasetSpec(**{**vars(STORED), "images": {"side": (HIGH, WIDE, 3)}})
    pictures = told(0, 3).images["front"]
    folder = write(
        tmp_path / "side", episode(0, 3, spec=other, images={"side": pictures}), spec=other
    )
    with pytest.raises(SpecMismatchError, match=r"no pictures of the camera 'front', .* has side"):
        opened(folder)
    small = DatasetSpec(**{**vars(STORED), "images": {"front": (4, 4, 3)}})
    tiny = np.zeros((4, 4, 4, 3), np.uint8)
    folder = write(
        tmp_path / "small", episode(0, 3, spec=small, images={"front": tiny}), spec=small
    )
    with pytest.raises(SpecMismatchError, match=r"have the shape \(4, 4, 3\)"):
        opened(folder)


@pytest.mark.slow
def test_stored_pictures_are_mixed_into_the_minibatches_of_a_run(tmp_path):
    folder = write(tmp_path / "set", *(told(seed, 12) for seed in range(4)), spec=STORED)
    prior = PriorConfig(run=str(folder), share=0.5)
    loop = Loop(tmp_path / "run", world=SEEN, make_learner=drq_sac, prior=prior)
    seen, update = [], loop.learner.update

    def look(batch):
        seen.append(batch.obs[FRONT].shape)
        return update(batch)

    loop.learner.update = look
    loop.trainer.run()
    assert len(seen) > 0
    assert {shape[1:] for shape in seen} == {(DEPTH, HIGH, WIDE, 3)}


def run_that_saw(folder: Path, steps: int, world: LinearWorld = SEEN) -> tuple[Path, ReplayBuffer]:
    """A run of four envs whose ring has wrapped, and the replay that it saved."""
    env = ToyEnv(world, 4, limit=7, truncation_rate=0.1, seed=2)
    groups = [name for name in env.spec.groups if name != "critic"]
    replay = ReplayBuffer(env.spec, groups, capacity=60, gamma=0.5)
    generator, obs = torch.Generator().manual_seed(1), env.reset(seed=1)
    for _ in range(steps):
        step = env.step(2 * torch.rand(4, env.spec.action_size, generator=generator) - 1)
        replay.add(obs, step)
        obs = step.obs
    run = RunFolder.create(folder, RunName(task="t", robot="r", learner="l", seed=0), {}, {})
    segments = SegmentStore(run.replay)
    store = CheckpointStore(run.checkpoints, keep_last=1, segments=segments)
    store.save(steps, {"replay": replay.state_dict(segments)})
    run.close()
    return run.path, replay


@pytest.mark.parametrize("steps", [9, 15, 40])
@pytest.mark.parametrize("n_step", [1, 3])
def test_the_replay_of_another_run_comes_with_its_pictures(tmp_path, steps, n_step):
    path, stored = run_that_saw(tmp_path, steps)
    prior = opened(path, n_step).replay
    assert len(prior) == len(stored) > 20
    got, expected = (one.strided_sample(len(stored)) for one in (prior, stored))
    for name in ("actor", FRONT):
        assert torch.equal(got.obs[name], expected.obs[name])
        if n_step == 1:
            assert torch.equal(got.next_obs[name], expected.next_obs[name])
    assert torch.equal(got.action, expected.action)
    assert len(got.obs[FRONT].flatten(1).unique(dim=0)) > 20


def test_critics_that_see_are_asked_about_a_stored_replay(tmp_path):
    stored = opened(run_that_saw(tmp_path, 40)[0], n_step=3).replay
    lines = list(_table(drq_sac(WORLD, 0), stored, 2))
    assert "of the episode" in lines[0]
    assert len(lines) == 3


def test_a_run_without_the_pictures_that_are_seen_is_refused(tmp_path):
    blind, _ = run_that_saw(tmp_path / "blind", 20, LinearWorld(reward_names=SEEN.reward_names))
    with pytest.raises(SpecMismatchError, match=r"stored no pictures 'image/front', .* has none"):
        opened(blind)
    camera = GroupSpec(shape=(2, 8, 5, 3), dtype=torch.uint8, stack=2)
    narrow = LinearWorld(groups={**SEEN.groups, FRONT: camera}, reward_names=SEEN.reward_names)
    path, _ = run_that_saw(tmp_path / "narrow", 20, narrow)
    with pytest.raises(SpecMismatchError, match=r"120 bytes each .*this run's are \[2, 8, 9, 3\]"):
        opened(path)
    turned = GroupSpec(shape=(2, 9, 8, 3), dtype=torch.uint8, stack=2)
    world = LinearWorld(groups={**SEEN.groups, FRONT: turned}, reward_names=SEEN.reward_names)
    path, _ = run_that_saw(tmp_path / "turned", 20, world)
    with pytest.raises(SpecMismatchError, match=r"\[2, 9, 8, 3\]\), and this run's are"):
        opened(path)


def test_a_run_goes_on_bit_equal_with_the_pictures_of_another(tmp_path):
    path, _ = run_that_saw(tmp_path / "before", 30)
    ends_as_if_uninterrupted(
        tmp_path / "after",
        [96],
        world=SEEN,
        make_learner=drq_sac,
        prior=PriorConfig(run=str(path), share=0.5),
    )
