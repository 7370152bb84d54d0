"""Parts that an update moves: critics always, the rest in the last of every few, targets by tau."""

import pytest
import torch

from tests.equality import same
from tests.fakes import copied, random_batch, small_dsac_t, small_flash_sac, small_sac, small_td3
from tests.robot_rl.learners.small_offline import warmed

MAKERS = {
    "sac": (small_sac, {"compile": False}), "dsac_t": (small_dsac_t, {"actor_lr": 1e-2}),
    "td3": (small_td3, {"compile": False}),
    "td3 of early targets": (small_td3, {"compile": False, "delay_targets": False}),
    "flash_sac": (small_flash_sac, {}),
}  # fmt: skip
LATE_TARGETS = {"dsac_t", "td3"}
"""Their targets move with the actor; those of the others in every update."""


@pytest.mark.parametrize("name", MAKERS)
def test_actor_and_temperature_wait_for_the_last_update_of_an_interval_and_targets_follow(name):
    make, settings = MAKERS[name]
    learner, spec = warmed(make, actor_interval=3, tau=0.25, **settings)  # one interval is over
    told = []
    for update in range(6):
        before = copied(learner.state_dict())
        told.append(learner.update(random_batch(spec, 16, update))[0])
        after, late = learner.state_dict(), update % 3 == 2
        assert not same(after["critic"], before["critic"])
        for part in {"actor", "temperature"} & after.keys():
            assert same(after[part], before[part]) is not late
        for target in {"target_critic", "target_actor"} & after.keys():
            source = after[target.removeprefix("target_")]
            share = 0.25 if late or name not in LATE_TARGETS else 0.0
            for key, _ in getattr(learner, target).named_parameters():
                moved = (1 - share) * before[target][key] + share * source[key]
                torch.testing.assert_close(after[target][key], moved, rtol=1e-5, atol=1e-6)
    assert told[4]["actor_loss"] == told[2]["actor_loss"] != told[5]["actor_loss"]
    other, _ = warmed(make, **settings)
    other.load_state_dict(copied(learner.state_dict()))
    assert same(other.state_dict(), learner.state_dict())
