"""Episodes out of a live environment: every transition once, in the episode that it belongs to."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from robot_rl.core.env import EnvStep, GroupSpec
from robot_rl.datasets.edit import merge
from robot_rl.datasets.files.manifest import MANIFEST, encode_line
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.recorder import EpisodeRecorder, Recorded, spec_of
from robot_rl.datasets.repair import repair
from robot_rl.datasets.writer import DatasetWriter
from tests.fakes import LinearWorld, ToyEnv

NAMES = ("near", "effort")


def toy(**settings) -> ToyEnv:
    return ToyEnv(LinearWorld(reward_names=NAMES), num_envs=3, limit=6, **settings)


def play(env: ToyEnv, steps: int) -> tuple[list[Recorded], list[list[dict]], EpisodeRecorder]:
    """Recorded episodes, and beside them the steps of each world as they were."""
    recorder = EpisodeRecorder(spec_of(env.spec), task="toy", source="chance")
    generator = torch.Generator().manual_seed(1)
    obs = env.reset(seed=0)
    recorder.begin(obs, stamp_ns=100)
    found: list[Recorded] = []
    seen: list[list[dict]] = [[] for _ in range(3)]
    for t in range(steps):
        before = {name: group.clone() for name, group in obs.items()}
        step = env.step(4 * torch.rand(3, 2, generator=generator) - 2)  # some are clipped
        assert step.reward_terms is not None
        terms = step.reward_terms.clone()
        for world, rows in enumerate(seen):
            rows.append({
                "obs": before["critic"][world].numpy(),
                "next_obs": step.next_obs["critic"][world].clone().numpy(),
                "action": step.action[world].clone().numpy(),
                "terms": terms[world].numpy(),
                "ended": bool(step.ended[world]), "success": bool(step.success[world]),
                "valid": bool(step.valid[world]),
            })  # fmt: skip
        found += recorder.add(step, stamp_ns=200 + t, policy_version=t)
        obs = step.obs
        for tensor in (step.reward, step.action):
            tensor.fill_(7.0)  # the environment may overwrite what it gave
    return found, seen, recorder


def joined(rows: list[dict], name: str) -> np.ndarray:
    return np.stack([row[name] for row in rows])


def test_every_transition_is_in_one_episode_with_its_true_successor():
    found, seen, recorder = play(toy(truncation_rate=0.2), 40)
    found += recorder.end()
    assert len({len(one.episode.reward) for one in found}) > 2  # worlds end at different times
    for world in range(3):
        mine = [one.episode for one in found if one.world == world]
        rows = seen[world]
        assert sum(one.num_steps for one in mine) == 40
        for name, column in (("obs", 0), ("next_obs", 1)):
            frames = [one.obs["critic"][column : len(one.reward) + column] for one in mine]
            np.testing.assert_array_equal(np.concatenate(frames), joined(rows, name))
        actions = np.concatenate([one.action for one in mine])
        np.testing.assert_array_equal(actions, joined(rows, "action"))
        terms = np.concatenate([one.reward_terms for one in mine if one.reward_terms is not None])
        np.testing.assert_array_equal(terms, joined(rows, "terms"))
        success = np.concatenate([one.success for one in mine])
        np.testing.assert_array_equal(success, joined(rows, "success"))
        ends = np.cumsum([one.num_steps for one in mine])[:-1] - 1
        assert [t for t in range(39) if rows[t]["ended"]] == list(ends)


def test_a_frame_has_the_stamp_of_the_step_that_measured_it():
    found, _, recorder = play(toy(), 8)
    first, second = [one.episode for one in found + recorder.end() if one.world == 0]
    assert first.stamp_ns.tolist() == [100, 200, 201, 202, 203, 204, 205]
    assert second.stamp_ns.tolist() == [205, 206, 207]
    assert second.policy_version.tolist() == [6, 7]
    assert second.truncated.tolist() == [False, True]
    assert (first.task, first.source) == ("toy", "chance")


def test_the_step_of_a_world_that_was_given_up_is_stored_as_invalid(tmp_path):
    env = toy(invalid_at=[(2, 1)])
    found, _, _ = play(env, 3)
    (one,) = found
    assert (one.world, one.episode.valid.tolist()) == (1, [True, True, False])
    stored = one.episode.checked(spec_of(env.spec), "it")
    assert np.isfinite(stored.obs["actor"]).all()
    assert stored.truncated[-1]
    assert not stored.success.any()


def made(before: float, after: float, *, valid: bool, ended: bool) -> EnvStep:
    """A step of one world whose observation is a number."""
    value, flag = torch.full((1, 1), after), torch.tensor([True])
    obs = {"actor": torch.full((1, 1), before)}
    return EnvStep(
        obs=obs, next_obs={"actor": value}, reward=value[:, 0], terminated=flag & ended,
        truncated=~flag, success=~flag, valid=flag & valid, action=0 * value, intervened=~flag,
    )  # fmt: skip


def test_rows_of_foreign_resets_and_without_a_valid_step_belong_to_no_episode():
    groups = {"actor": GroupSpec(shape=(1,))}
    spec = spec_of(replace(toy().spec, groups=groups, action_size=1, reward_names=()))
    recorder = EpisodeRecorder(spec)
    recorder.begin({"actor": torch.zeros(1, 1)})
    assert recorder.add(made(0.0, 1.0, valid=False, ended=True)) == []
    recorder.begin({"actor": torch.zeros(1, 1)})
    (first,) = recorder.add(made(1.0, 1.0, valid=True, ended=True))
    assert not recorder.add(made(5.0, 5.0, valid=False, ended=False))  # the reset takes a step
    assert not recorder.add(made(6.0, 6.0, valid=True, ended=False))
    (second,) = recorder.add(made(0.0, 7.0, valid=True, ended=True))
    assert first.episode.obs["actor"][:, 0].tolist() == [0.0, 1.0]
    assert second.episode.obs["actor"][:, 0].tolist() == [5.0, 6.0, 7.0]
    assert second.episode.valid.all()
    assert recorder.end() == []


def recorded(folder: Path) -> Path:
    env = toy()
    found, _, _ = play(env, 12)
    with DatasetWriter.create(folder, spec_of(env.spec)) as writer:
        for one in found:
            writer.add(replace(one.episode, source=f"somebody {one.world}"))
    return folder


def test_sources_survive_a_merge_and_a_repair_without_a_manifest(tmp_path):
    folder = recorded(tmp_path / "set")
    told = EpisodeDataset(folder).sources
    assert told == [f"somebody {world}" for world in (0, 1, 2, 0, 1, 2)]
    merge([folder, folder], tmp_path / "twice")
    assert EpisodeDataset(tmp_path / "twice").sources == told + told
    (folder / MANIFEST).unlink()
    note = "meta/collected_0123.json"
    (folder / note).write_text("{}")
    saved = repair(folder).folder
    assert EpisodeDataset(saved).sources == told
    assert (saved / note).read_text() == "{}", "what the sources mean"


def test_data_sets_from_before_there_were_sources_are_read(tmp_path):
    folder = recorded(tmp_path / "set")
    digests = [one.digest() for one in EpisodeDataset(folder)]
    lines, before = [], []
    for line in (folder / MANIFEST).read_bytes().splitlines():
        entry = json.loads(line[65:])
        entry.pop("sources", None)
        lines.append(encode_line(entry, *before))
        before = [lines[-1][:64].decode()]
    (folder / MANIFEST).write_bytes(b"".join(lines))
    dataset = EpisodeDataset(folder)
    assert dataset.sources == 6 * [""]
    assert [one.digest() for one in dataset] == digests, "a source is no part of what happened"
