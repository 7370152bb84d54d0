"""Q-chunking: losses and gradients against double precision, its choice, its plans."""

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.mlp import Activation
from policies.networks.trunks import NetworkKind
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.qc import QC
from tests.equality import assert_same
from tests.fakes import copied
from tests.robot_rl.learners.reference_sac import (
    assert_step,
    forward,
    gradients,
    member_outputs,
    normalized,
)
from tests.robot_rl.learners.small_offline import chunked, small_qc, warmed

VARIANTS: dict[str, dict[str, Any]] = {
    "two critics": {},
    "five critics and no normaliser": {
        "critic": {"members": 5, "normalize": False}, "actor": {"normalize": False}
    },
    "layer norm": {"critic": {"layer_norm": True}},
}  # fmt: skip
RELU, SILU = Activation.relu, Activation.silu
State = dict[str, Tensor]


def losses_of(qc: QC, batch: Batch, *, cut_counts: bool = False) -> tuple[Any, Any]:
    """Losses by name and what each is derived by: one row and one proposal after another.

    Args:
        qc: Before its update.
        batch: What it learns from.
        cut_counts: The mistake of learning values of chunks that an episode's end cuts.
    """
    state = copied(qc.state_dict())
    whole = {n: t.double() for n, t in state["chooser"].items()}
    actor, critic = (
        {n.removeprefix(f"{part}."): t for n, t in whole.items() if n.startswith(f"{part}.")}
        for part in ("actor", "critic")
    )
    target = {n: t.double() for n, t in state["target_critic"].items()}
    learned = {
        name: [t.requires_grad_() for n, t in part.items() if n.startswith("network")]
        for name, part in (("critic", critic), ("actor", actor))
    }
    generator = torch.Generator()
    generator.set_state(state["generator"])
    chunk, valid = batch.extra["chunk"].double(), batch.extra["valid"]
    rows, length, size = chunk.shape
    gamma_h, seen_next = batch.discount.double(), batch.next_obs["actor"]
    noises = torch.randn(3, rows, length, size, generator=generator).double()
    with torch.no_grad():
        proposals = [_followed(actor, seen_next, noise) for noise in noises]
        liked = [_mean(critic, seen_next, one) for one in proposals]
        worth = [_mean(target, seen_next, one) for one in proposals]
    q = member_outputs(critic, batch.obs["actor"], chunk.flatten(1), RELU)
    losses = {name: torch.zeros((), dtype=torch.float64) for name in ("critic", "actor")}
    for b in range(rows):
        best = max(range(3), key=lambda s: float(liked[s][b]))
        y = float(batch.reward[b]) + float(gamma_h[b]) * float(worth[best][b])
        if cut_counts or bool(valid[b].all()):
            for member in q:
                error = (member[b, 0] - y) ** 2
                losses["critic"] = losses["critic"] + float(batch.weight[b]) * error / rows
    noise = torch.randn(rows, length, size, generator=generator).double()
    time = torch.rand(rows, 1, generator=generator).double()
    now = (1 - time[..., None]) * noise + time[..., None] * chunk
    velocity = _velocity(actor, batch.obs["actor"], now, time)
    count = 0.0
    for b in range(rows):
        for h in range(length):
            if bool(valid[b, h]):
                weight = float(batch.weight[b])
                error = ((velocity[b, h] - chunk[b, h] + noise[b, h]) ** 2).sum()
                losses["actor"] = losses["actor"] + weight * error
                count += weight * size
    losses["actor"] = losses["actor"] / count
    return losses, learned


def _velocity(actor: State, obs: Tensor, x: Tensor, time: Tensor) -> Tensor:
    angle = time * torch.pi * 2.0 ** torch.arange(8)
    inputs = [normalized(actor, obs), x.flatten(1), angle.sin(), angle.cos()]
    return forward(actor, torch.cat(inputs, -1).double(), SILU).reshape(x.shape)


def _followed(actor: State, obs: Tensor, noise: Tensor) -> Tensor:
    x = noise
    for k in range(2):
        x = x + _velocity(actor, obs, x, torch.full((len(obs), 1), k / 2).double()) / 2
    return x.clamp(-1, 1)


def _mean(critic: State, obs: Tensor, chunk: Tensor) -> Tensor:
    members = member_outputs(critic, obs, chunk.flatten(1), RELU)
    return torch.stack(members).squeeze(-1).mean(0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    qc, spec = warmed(small_qc, **copied(VARIANTS[variant]))
    batch = chunked(spec)
    losses, learned = losses_of(qc, batch)
    mistaken, _ = losses_of(qc, batch, cut_counts=True)
    metrics, _ = qc.update(batch)
    for name, loss in losses.items():
        network: Any = getattr(qc, name)
        by_name = dict(network.named_parameters())
        got = [by_name[n] for n in network.state_dict() if n.startswith("network")]
        assert_step(loss, learned[name], got, metrics[f"{name}_loss"])
    assert float(metrics["critic_loss"]) != pytest.approx(mistaken["critic"].item(), rel=1e-2)


def test_a_chunk_that_is_cut_teaches_the_flow_up_to_there_and_the_critics_nothing():
    qc, spec = warmed(small_qc)
    batch = chunked(spec)
    batch.extra["valid"][:, 1:] = False
    metrics, priority = qc.update(batch)
    assert float(metrics["critic_loss"]) == float(metrics["whole_chunks"]) == 0.0
    assert float(priority.abs().max()) == 0.0
    assert all(float(grad.abs().max()) == 0.0 for grad in gradients(qc.critic.parameters()))
    head = list(qc.actor.parameters())[-1].grad  # bias of the velocity, (H * A,)
    assert head is not None
    assert bool((head[:2] != 0).all())  # of the first action
    assert bool((head[2:] == 0).all())


def test_a_chunk_that_is_cut_is_drawn_as_often_as_others():
    qc, spec = warmed(small_qc)
    batch = chunked(spec)
    batch.extra["valid"][:] = True
    batch.extra["valid"][::2, -1] = False  # of the newest rows: it may become whole
    _, priority = qc.update(batch)
    assert torch.allclose(priority[::2], priority[1::2].mean())
    assert float(priority[1::2].std()) > 0


def test_what_acts_is_the_proposal_that_the_critics_like_best():
    qc, spec = warmed(small_qc, candidates=6)
    obs = {"actor": torch.randn(7, spec.groups["actor"].shape[0])}
    with torch.no_grad():
        chosen = qc.chooser(obs)
        for n in range(7):
            one = {"actor": obs["actor"][n : n + 1]}
            each = [qc.actor.flow(one, noise[None]) for noise in qc.chooser.noise]
            worth = [float(qc.critic(one, chunk.flatten(1)).mean()) for chunk in each]
            best = each[max(range(6), key=worth.__getitem__)][0]
            torch.testing.assert_close(chosen[n], best, atol=1e-6, rtol=0)
            assert len({round(value, 6) for value in worth}) == 6


def test_plans_are_done_to_their_end_and_thrown_away_where_an_episode_starts():
    qc, spec = warmed(small_qc, replan_interval=3)
    obs = {"actor": torch.randn(2, spec.groups["actor"].shape[0])}
    qc.begin(torch.ones(2, dtype=torch.bool))
    drawn: list[Tensor] = []
    choose = qc.chooser.choose
    qc.chooser.choose = lambda o, noise: drawn.append(choose(o, noise)) or drawn[-1]
    done = [qc.act(obs, explore=True) for _ in range(2)]
    assert len(drawn) == 1
    qc.begin(torch.tensor([False, True]))
    done += [qc.act(obs, explore=True) for _ in range(2)]
    assert len(drawn) == 3  # world 1 anew, then world 0
    worlds = [torch.stack([action[n] for action in done]) for n in (0, 1)]
    assert_same(worlds[0], torch.cat([drawn[0][0], drawn[2][0, :1]]))
    assert_same(worlds[1], torch.cat([drawn[0][1, :2], drawn[1][1, :2]]))


def test_plans_that_are_not_done_yet_are_part_of_the_state():
    qc, spec = warmed(small_qc, replan_interval=3)
    obs = {"actor": torch.randn(2, spec.groups["actor"].shape[0])}
    qc.act(obs, explore=True)
    other, _ = warmed(small_qc, replan_interval=3, seed=4)
    other.load_state_dict(copied(qc.state_dict()))
    for _ in range(5):
        assert torch.equal(qc.act(obs, explore=True), other.act(obs, explore=True))
    assert_same(other.state_dict(), qc.state_dict())


def test_data_without_a_whole_chunk_are_a_sentence():
    qc, spec = warmed(small_qc)
    batch = chunked(spec)
    batch.extra["valid"][:, 2] = False
    with pytest.raises(ConfigError, match="set a smaller"):
        qc.inspect(batch)


def test_a_chunk_that_is_cut_stays_out_of_batch_norm_of_the_critics():
    """Its last actions are of another episode."""
    states: list[State] = []
    for seed in (1, 2):
        flash = {"kind": NetworkKind.flash, "width": 16, "blocks": 1, "normalize": False}
        qc, spec = warmed(small_qc, critic=flash)
        batch = chunked(spec)
        other = torch.rand(
            batch.extra["chunk"].shape, generator=torch.Generator().manual_seed(seed)
        )
        batch.extra["chunk"][~batch.extra["valid"]] = other[~batch.extra["valid"]]
        qc.update(batch)
        states.append(copied(qc.critic.state_dict()))
    assert_same(states[0], states[1])
    assert any("running_mean" in name for name in states[0])
