"""What every `BatchEnv` must keep: the suite, run over all of them by subclassing.

class TestMine(BatchEnvContract):
    cases = [EnvCase("mine", make_mine)]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvStep, Obs
from robot_rl.core.errors import NonFiniteError, ShapeError
from tests.equality import assert_same
from tests.fakes import copied

WORLDS = 11
"""No other size of the environments under test, so that the axis of worlds can be found."""


@dataclass(frozen=True)
class EnvCase:
    """One environment under test."""

    name: str
    make: Callable[[int, int, torch.device], BatchEnv]
    """(number of worlds, seed, device) -> an environment whose episodes end within `limit`."""
    limit: int
    """Steps until an episode is truncated; some must terminate before under random actions."""
    endless: Callable[[int, torch.device], BatchEnv] | None = None
    """(number of worlds, device) -> the same worlds, which never end."""
    prolong: Callable[[dict[str, Any]], None] = lambda _: None
    """Takes the time limit out of a state of `make`, for `endless`."""
    terminates: bool = True
    """Random actions end some episodes before the limit."""
    late: bool = False
    """A foreign environment that begins anew in the step after an end, in a row that is invalid."""
    noiseless: bool = False
    """Nothing but starts is random: worlds may be permuted, and do not feel others' resets."""
    resumable: bool = True
    """Its state can be saved."""
    twin: bool = False
    """A noiseless copy of another case: laws about noiseless worlds run, the others where all is
    asked for."""
    full: bool = False
    """Of a mechanism that another case represents: runs where all is asked for."""
    slow: bool = True
    """Not part of the quick tests."""


Law: TypeAlias = Callable[[Any, EnvCase], None]


def of(kind: str) -> Callable[[Law], Law]:
    """Mark a law of those cases alone that are `noiseless`, `resumable` or `endless`."""

    def mark(law: Law) -> Law:
        vars(law)["kind"] = kind
        return law

    return mark


class BatchEnvContract:
    """Laws of `robot_rl.core.env.BatchEnv`; `cases` and `device` are the subclass's."""

    cases: tuple[EnvCase, ...] = ()
    device = torch.device("cpu")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        kind = getattr(metafunc.function, "kind", "")
        cases = [case for case in self.cases if not kind or getattr(case, kind)]
        if not metafunc.config.getoption("full"):
            cases = [c for c in cases if not c.full and (not c.twin or kind == "noiseless")]
        marks = {True: pytest.mark.slow, False: ()}
        metafunc.parametrize(
            "case", [pytest.param(c, id=c.name, marks=marks[c.slow]) for c in cases]
        )

    def make(self, case: EnvCase, seed: int = 0) -> BatchEnv:
        return case.make(WORLDS, seed, self.device)

    def within(self, case: EnvCase) -> float:
        """Difference that equal steps may have: MuJoCo Warp adds up in any order on a GPU."""
        return 1e-3 if self.device.type == "cuda" and "Warp" in case.name else 0.0

    def actions(self, env: BatchEnv, count: int, *, bound: float = 1.5) -> Tensor:
        """Random actions, (count, N, A), a third of whose entries leave [-1, 1]."""
        shape = (count, env.spec.num_envs, env.spec.action_size)
        unit = torch.rand(shape, generator=torch.Generator().manual_seed(5))
        return (bound * (2 * unit - 1)).to(self.device)

    def test_every_tensor_has_the_shape_type_and_device_of_the_spec(self, case: EnvCase) -> None:
        env = self.make(case)
        assert isinstance(env, BatchEnv)
        spec, n = env.spec, WORLDS
        assert (spec.num_envs, spec.resumable) == (n, case.resumable)
        assert spec.control_dt > 0
        check_obs(env, env.reset(seed=0))
        for action in self.actions(env, case.limit + 1):
            step = env.step(action)
            check_obs(env, step.obs)
            check_obs(env, step.next_obs)
            assert_like(step.reward, (n,), torch.float32, self.device)
            assert_like(step.action, (n, spec.action_size), torch.float32, self.device)
            for flag in (step.terminated, step.truncated, step.success, step.valid):
                assert_like(flag, (n,), torch.bool, self.device)
            assert_like(step.intervened, (n,), torch.bool, self.device)
            assert sorted(step.metrics) == sorted(spec.metric_names)
            for metric in step.metrics.values():
                assert_like(metric, (n,), torch.float32, self.device)
            if spec.reward_names:
                terms, weights = step.reward_terms, step.reward_weights
                assert terms is not None
                assert weights is not None
                assert_like(terms, (n, len(spec.reward_names)), torch.float32, self.device)
                # Two orders of summing a few terms: a few float32 roundings apart.
                torch.testing.assert_close(step.reward, terms @ weights, rtol=1e-5, atol=1e-5)
        env.close()
        env.close()  # twice is allowed

    def test_equal_seeds_give_equal_episodes_in_any_instance_and_others_do_not(
        self, case: EnvCase
    ) -> None:
        one, two = self.make(case, seed=0), self.make(case, seed=99)
        for action in self.actions(two, 3):
            two.reset()
            two.step(action)
        assert_same(rollout(one, self, seed=4), rollout(two, self, seed=4), self.within(case))
        first, second = copied(one.reset(seed=1)), one.reset(seed=2)
        assert any(not torch.equal(first[name], second[name]) for name in first)

    @of("resumable")
    def test_a_restored_state_goes_on_bit_equal_in_another_instance(self, case: EnvCase) -> None:
        env, other = self.make(case), self.make(case, seed=99)
        actions = self.actions(env, case.limit + 2)
        env.reset(seed=0)
        other.reset(seed=1)
        before = [copied(env.step(action)) for action in actions[: case.limit // 2 + 1]][-1]
        state = env.state_dict()
        snapshot = copied(state)
        expected = [copied(env.step(action)) for action in actions]
        assert_same(state, snapshot)  # a state is a copy, which later steps do not change
        assert_same(other.reset(state=state), before.obs)
        steps = [copied(other.step(action)) for action in actions]
        assert_same(steps, expected, self.within(case))
        assert_same(state, snapshot)
        mask = torch.arange(WORLDS, device=self.device) % 2 == 0
        assert_same(other.reset(mask=mask), env.reset(mask=mask), self.within(case))

    def test_a_masked_reset_begins_the_masked_worlds_only(self, case: EnvCase) -> None:
        env = self.make(case)
        env.reset(seed=0)
        before = copied(env.step(self.actions(env, 1)[0]).obs)
        mask = torch.zeros(WORLDS, dtype=torch.bool, device=self.device)
        assert_same(env.reset(mask=mask), before)
        mask[[1, 4]] = True
        obs = env.reset(mask=mask)
        for name in obs:
            assert torch.equal(obs[name][~mask], before[name][~mask])
        assert all(
            any(not torch.equal(obs[name][i], before[name][i]) for name in obs) for i in (1, 4)
        )

    @of("noiseless")
    def test_worlds_do_not_feel_that_others_begin_anew(self, case: EnvCase) -> None:
        env, twin = self.make(case), self.make(case)
        actions = self.actions(env, 4)
        for each in (env, twin):
            each.reset(seed=0)
            each.step(actions[0])
        mask = torch.zeros(WORLDS, dtype=torch.bool, device=self.device)
        mask[[1, 4]] = True
        env.reset(mask=mask)
        for action in actions[1:]:
            got, expected = env.step(action), twin.step(action)
            for name in (
                got.next_obs
            ):  # until the others' first ends, whose starts are drawn from one stream
                left = got.next_obs[name][~mask], expected.next_obs[name][~mask]
                assert_same(*left, self.within(case))
            if bool(expected.ended.any()):
                break

    def test_worlds_end_by_their_rules_begin_anew_there_alone_and_stay_finite(
        self, case: EnvCase
    ) -> None:
        env = self.make(case)
        env.reset(seed=0)
        ends = torch.zeros(2, dtype=torch.int64, device=self.device)
        age = torch.zeros(WORLDS, dtype=torch.int64, device=self.device)
        before = torch.zeros(WORLDS, dtype=torch.bool, device=self.device)
        moves = (self.actions(env, 3 * case.limit), self.actions(env, 30, bound=3.0))
        for action in torch.cat(moves):
            step = env.step(action)
            changed = torch.zeros_like(step.ended)
            for name, group in step.obs.items():
                changed |= (group != step.next_obs[name]).flatten(1).any(-1)
            if case.late:
                assert not changed.any()
                assert torch.equal(~step.valid, before)
                assert not (step.ended & before).any()
                assert not step.reward[before].any()
            else:
                assert step.valid.all()
                assert torch.equal(changed, step.ended)
            before = step.ended.clone()
            age += step.valid
            assert not (step.terminated & step.truncated).any()
            assert torch.equal(step.truncated, (age >= case.limit) & ~step.terminated)
            assert not (step.success & ~step.ended).any()
            age *= ~step.ended
            ends += torch.stack([step.terminated.sum(), step.truncated.sum()])
            for value in (*step.obs.values(), *step.next_obs.values(), step.reward):
                assert value.isfinite().all()
        env.check()
        assert ends[0] > 0 or not case.terminates, "the case must show terminations"
        assert ends[1] > 0, "the case must show truncations"

    @of("endless")
    def test_next_obs_is_what_the_world_would_have_seen_without_an_end(self, case: EnvCase) -> None:
        assert case.endless is not None
        env, copy = self.make(case), case.endless(WORLDS, self.device)
        env.reset(seed=0)
        copy.reset(seed=1)
        ended = 0
        for action in self.actions(env, case.limit + 3):
            state = env.state_dict()
            case.prolong(state)
            step = env.step(action)
            copy.reset(state=state)
            expected = copy.step(action)
            assert not expected.ended.any()
            assert_same(step.next_obs, expected.next_obs, self.within(case))
            assert_same(step.reward, expected.reward, self.within(case))
            ended += int(step.ended.sum())
        assert ended > 0

    def test_the_accepted_action_is_the_clipped_one(self, case: EnvCase) -> None:
        env = self.make(case)
        env.reset(seed=0)
        wild = self.actions(env, 1)[0]
        kept = wild.clone()
        state = env.state_dict()
        step = copied(env.step(wild))
        assert torch.equal(wild, kept)  # the caller's tensor is not touched
        assert torch.equal(step.action, wild.clamp(-1, 1))
        if env.spec.resumable:
            env.reset(state=state)
            assert_same(env.step(wild.clamp(-1, 1)), step, self.within(case))

    @of("noiseless")
    def test_permuted_worlds_give_permuted_results(self, case: EnvCase) -> None:
        env = self.make(case)
        env.reset(seed=0)
        order = torch.randperm(WORLDS, generator=torch.Generator().manual_seed(2)).to(self.device)
        for action in self.actions(env, 3):
            step = copied(env.step(action))
        state, action = env.state_dict(), self.actions(env, 4)[3]
        step = copied(env.step(action))
        env.reset(state=permuted(state, order))
        moved = env.step(action[order])
        for name, group in step.next_obs.items():
            assert_same(moved.next_obs[name], group[order], self.within(case))
        assert torch.equal(moved.terminated, step.terminated[order])
        # A product of a matrix with a vector may round by a row's place.
        nearly = max(1e-6, self.within(case))
        torch.testing.assert_close(moved.reward, step.reward[order], rtol=10 * nearly, atol=nearly)

    def test_a_nan_action_is_not_executed_and_check_names_its_world_once(
        self, case: EnvCase
    ) -> None:
        env = self.make(case)
        env.reset(seed=0)
        action = self.actions(env, 1)[0]
        action[2, 0] = float("nan")
        step = env.step(action)
        assert step.action.isfinite().all()
        with pytest.raises(NonFiniteError, match=r"action.*\b2\b"):
            env.check()
        env.check()

    def test_wrong_shapes_are_refused(self, case: EnvCase) -> None:
        env = self.make(case)
        env.reset(seed=0)
        sizes = [(WORLDS, env.spec.action_size + 1), (WORLDS - 1, env.spec.action_size), (WORLDS,)]
        for size in sizes:
            with pytest.raises(ShapeError):
                env.step(torch.zeros(size, device=self.device))
        for mask in (torch.ones(WORLDS - 1, dtype=torch.bool), torch.ones(WORLDS)):
            with pytest.raises(ShapeError):
                env.reset(mask=mask.to(self.device))
        mask, state = torch.ones(WORLDS, dtype=torch.bool, device=self.device), env.state_dict()
        with pytest.raises(ShapeError):
            env.reset(mask=mask, state=state)


def rollout(env: BatchEnv, suite: BatchEnvContract, seed: int) -> list[EnvStep | Obs]:
    return [
        copied(env.reset(seed=seed)),
        *(copied(env.step(action)) for action in suite.actions(env, 8)),
    ]


def check_obs(env: BatchEnv, obs: Obs) -> None:
    assert sorted(obs) == sorted(env.spec.groups)
    for name, group in env.spec.groups.items():
        assert_like(obs[name], (WORLDS, *group.shape), group.dtype, env.spec.device)


def assert_like(
    value: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    assert (tuple(value.shape), value.dtype) == (shape, dtype)
    assert value.device.type == device.type


def permuted(state: Any, order: Tensor) -> Any:
    """The state with its worlds in another order: along every axis of that size."""
    if isinstance(state, Mapping):
        return {key: permuted(value, order) for key, value in state.items()}
    if isinstance(state, Tensor):
        for axis in range(state.ndim):
            if state.shape[axis] == len(order):
                state = state.index_select(axis, order.to(state.device))
    return state
