"""What lies between replay and learner: one gather, or one draw after another."""

from typing import Any

import pytest
import torch

from robot_rl.buffers.minibatches import Minibatches, MirrorImages
from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, SignedPermutation
from tests.equality import assert_same
from tests.fakes import CPU
from tests.robot_rl.buffers.story import story

TOLD = story([[float(t), -float(t)] for t in range(12)], terminated=[(3, 0)])


def test_uniform_minibatches_are_the_parts_of_one_sample():
    one, other = (TOLD.tell(TOLD.replay(seed=2)) for _ in range(2))
    whole = other.sample(24)
    for i, batch in enumerate(Minibatches(one, 8).draw(3, 0.5)):
        assert_same(batch, whole.take(8 * i, 8 * i + 8))
    assert_same(one.sample(5), other.sample(5))


def test_a_minibatch_drawn_by_priority_knows_the_errors_of_the_one_before():
    replay = TOLD.tell(TOLD.replay(config=ReplayConfig(priority=1.0)))
    minibatches = Minibatches(replay, 16)
    drawn = []
    for batch in minibatches.draw(2, 1.0):
        drawn.append(batch)
        minibatches.update_priorities(batch, torch.full((16,), 1e-9))
        replay.set_priorities(torch.tensor([7]), torch.tensor([1e6]))
    assert (drawn[1].extra["index"] == 7).all()
    assert not (drawn[0].extra["index"] == 7).all()


def test_a_learner_without_priorities_is_refused_in_words():
    replay = TOLD.tell(TOLD.replay(config=ReplayConfig(priority=0.6)))
    minibatches = Minibatches(replay, 4)
    with pytest.raises(ConfigError, match=r"training.replay.priority=0 or another learner"):
        minibatches.update_priorities(next(minibatches.draw(1, 0.0)), None)
    uniform = Minibatches(TOLD.tell(TOLD.replay()), 4)
    uniform.update_priorities(next(uniform.draw(1, 0.0)), None)  # nobody asks


BEFORE = story([[100.0 + t] for t in range(9)])


def mixed(size: int, share: float, **settings: Any) -> Minibatches:
    own, before = TOLD.tell(TOLD.replay(**settings)), BEFORE.tell(BEFORE.replay())
    return Minibatches(own, size, prior=before, share=share)


@pytest.mark.parametrize(
    ("size", "share", "before"), [(8, 0.5, 4), (10, 0.3, 3), (9, 0.5, 4), (256, 0.1, 26)]
)
def test_every_minibatch_holds_its_share_of_before(size, share, before):
    for batch in mixed(size, share).draw(5, 0.0):
        source = batch.extra["source"]
        assert len(source) == len(batch.reward) == size
        assert int(source.sum()) == before
        assert torch.equal(batch.reward >= 100, source == 1)
        # No part of a minibatch is short of its share by a whole transition.
        running = source.cumsum(0) - torch.arange(1, size + 1) * before / size
        assert (running.abs() < 1).all()


def test_a_row_keeps_all_of_its_parts_when_it_is_mixed_in():
    for batch in mixed(16, 0.25).draw(3, 0.0):
        step = torch.where(batch.reward >= 100, batch.reward - 100, batch.reward.abs())
        own_world = (batch.extra["source"] == 0) & (batch.extra["index"] % 2 == 1)
        place = 10 * step + own_world
        assert torch.equal(batch.obs["actor"][:, 0], place)
        assert torch.equal(batch.action[:, 0], -place)
        assert torch.equal(batch.next_obs["critic"][:, 0], place + 0.5)
        assert (batch.weight == 1).all()
        columns = torch.where(batch.extra["source"] == 1, 1, 2)
        assert torch.equal(batch.extra["index"].div(columns, rounding_mode="floor"), step.long())


def test_errors_of_mixed_minibatches_go_to_own_rows_only():
    minibatches = mixed(16, 0.5, config=ReplayConfig(priority=1.0))
    for _ in range(40):  # every own row is told that it is settled, but one
        for batch in minibatches.draw(1, 1.0):
            wrong = (batch.extra["source"] == 1) | (batch.extra["index"] == 5)
            minibatches.update_priorities(batch, torch.where(wrong, 1e4, 1e-9))
    batch = next(minibatches.draw(1, 1.0))
    assert (batch.extra["index"][batch.extra["source"] == 0] == 5).all()
    assert len(batch.extra["index"][batch.extra["source"] == 1].unique()) > 2


PAIR = SignedPermutation((1, 0), (-1.0, -1.0))
IMAGES = MirrorImages(
    EnvMirror(groups={"actor": PAIR, "critic": SignedPermutation.signs(1, -1)},
              action=SignedPermutation.signs(-1)), CPU
)  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"config": ReplayConfig(priority=0.6)}])
def test_every_second_row_of_every_minibatch_is_the_image_of_the_one_before(settings):
    own = TOLD.tell(TOLD.replay(n_step=3, **settings))
    for batch in Minibatches(own, 8, images=IMAGES).draw(3, 0.5):
        assert len(batch.reward) == 8
        assert torch.equal(batch.action[1::2], -batch.action[0::2])
        for obs in (batch.obs, batch.next_obs):
            assert torch.equal(obs["actor"][1::2], -obs["actor"][0::2].flip(-1))
            assert torch.equal(obs["critic"][1::2], obs["critic"][0::2] * torch.tensor([1, -1]))
        for same in (batch.reward, batch.discount, batch.weight, batch.extra["index"]):
            assert torch.equal(same[1::2], same[0::2])
        twice = IMAGES.beside(IMAGES.beside(batch))
        assert torch.equal(twice.action[3::4], batch.action)
        assert torch.equal(twice.obs["actor"][3::4], batch.obs["actor"])


def test_both_halves_hold_their_share_of_before():
    own, before = TOLD.tell(TOLD.replay()), BEFORE.tell(BEFORE.replay())
    for batch in Minibatches(own, 16, prior=before, share=0.5, images=IMAGES).draw(3, 0.0):
        assert batch.extra["source"].tolist() == [0, 0, 1, 1] * 4
        assert torch.equal(batch.reward >= 100, batch.extra["source"] == 1)


def test_errors_of_a_row_and_its_image_go_to_the_row():
    own = TOLD.tell(TOLD.replay(config=ReplayConfig(priority=1.0)))
    minibatches = Minibatches(own, 16, prior=BEFORE.tell(BEFORE.replay()), share=0.5, images=IMAGES)
    for _ in range(60):
        for batch in minibatches.draw(1, 1.0):
            wrong = (batch.extra["source"] == 1) | (batch.extra["index"] == 5)
            wrong[0::2] &= batch.extra["source"][0::2] == 1  # only the image was wrong
            minibatches.update_priorities(batch, torch.where(wrong, 1e4, 1e-9))
    batch = next(minibatches.draw(1, 1.0))
    assert (batch.extra["index"][batch.extra["source"] == 0] == 5).all()


def test_minibatches_that_cannot_be_divided_are_refused():
    with pytest.raises(ConfigError, match=r"a minibatch of 7 .* even learner\.batch_size"):
        Minibatches(TOLD.tell(TOLD.replay()), 7, images=IMAGES)
    for share, kept in ((0.01, 0), (0.99, 8)):
        with pytest.raises(ConfigError, match=rf"share {share} of 8 .* per minibatch is {kept};"):
            mixed(8, share)


def test_own_rows_drawn_by_priority_keep_their_part_of_the_loss():
    """Importance weights of at most 1 left them less of the loss than of the rows."""
    minibatches = mixed(256, 0.5, config=ReplayConfig(priority=1.0))
    for batch in minibatches.draw(30, 1.0):
        minibatches.update_priorities(batch, 10.0 ** -(batch.extra["index"] % 5).float())
    batch = next(minibatches.draw(1, 1.0))
    own = batch.extra["source"] == 0
    assert batch.weight[own].sum().item() == pytest.approx(128, rel=1e-5)
    assert (batch.weight[~own] == 1).all()
    assert batch.weight[own].max() > 5 * batch.weight[own].min()
    alone = Minibatches(TOLD.tell(TOLD.replay(config=ReplayConfig(priority=1.0))), 16)
    assert next(alone.draw(1, 1.0)).weight.max() == 1, "as in the paper"
