"""A batch and its parts."""

from dataclasses import replace

import torch

from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, random_batch


def test_parts_of_a_batch_put_together_are_the_batch():
    index = torch.arange(12)
    batch = replace(random_batch(ToyEnv(LinearWorld()).spec, 12), extra={"index": index})
    parts = [batch.take(0, 5), batch.take(5, 12)]
    for name in ("action", "reward", "discount", "weight"):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(batch, name))
    for name in ("obs", "next_obs", "extra"):
        whole = getattr(batch, name)
        assert_same({k: torch.cat([getattr(p, name)[k] for p in parts]) for k in whole}, whole)
