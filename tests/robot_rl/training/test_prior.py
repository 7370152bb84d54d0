"""Experience of before: read once from a run or a data set, checked, mixed in, never written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import CheckpointError, ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.training.config import PriorConfig
from robot_rl.training.prior import Prior, open_prior, write_dataset
from robot_rl.training.runs.run_folder import RunFolder, RunName
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.robot_rl.buffers.story import Story, by_place, expected, story
from tests.robot_rl.training.loop import WORLD, Loop, ends_as_if_uninterrupted
from tests.robot_rl.training.test_sampling_resumes import Watches

GROUPS = ("actor", "critic")
TOLD = story(
    [[float(t), 50.0 + t] for t in range(20)],
    terminated=[(13, 0)], truncated=[(15, 1)], invalid=[(17, 0)],
)  # fmt: skip


def run_of(
    folder: Path, told: Story, *, capacity: int | None = None, save_rows: bool = True
) -> Path:
    """A run's folder whose newest checkpoint holds the story; saved in three parts."""
    run = RunFolder.create(folder, RunName(task="t", robot="r", learner="l", seed=0), {}, {})
    segments = SegmentStore(run.replay)
    store = CheckpointStore(run.checkpoints, keep_last=1, segments=segments)
    replay = told.replay(capacity=capacity)
    for stop in (3, 11, len(told.reward)):
        told.tell(replay, replay.total_steps, stop)
        store.save(stop, {"replay": replay.state_dict(segments if save_rows else None)})
    run.close()
    return run.path


def opened(path: Path, told: Story = TOLD, *, spec: EnvSpec | None = None, n_step: int = 1) -> Any:
    own = told.replay(n_step=n_step)
    if spec is not None:
        own.description = type(own)(spec, GROUPS, capacity=20, gamma=0.5).description
    return open_prior(PriorConfig(run=str(path)), own, told.spec, GROUPS, seed=3)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def dataset_of(folder: Path, told: Story, **settings: Any) -> Path:
    return write_dataset(folder, told.tell(told.replay(**settings)))


@pytest.mark.parametrize("compile", [False, True])
def test_samples_of_before_are_compiled_if_the_own_ones_are(tmp_path, compile):
    path = dataset_of(tmp_path / "before", TOLD)
    own = TOLD.replay(compile=compile)
    prior = open_prior(PriorConfig(run=str(path)), own, TOLD.spec, GROUPS, seed=3)
    assert prior.replay.compile is compile


@pytest.mark.parametrize(
    ("save", "capacity", "n_step"), [(run_of, None, 3), (run_of, 24, 1), (dataset_of, 24, 3)]
)
def test_transitions_of_before_are_those_that_were_stored(tmp_path, save, capacity, n_step):
    path = save(tmp_path / "before", TOLD, capacity=capacity)
    before = contents(path)
    prior = opened(path, n_step=n_step)
    oldest = 0 if capacity is None else 8
    assert len(prior.replay) == 2 * (20 - oldest)
    for (step, world), row in by_place(prior.replay, TOLD).items():
        step += oldest
        for name, value in expected(TOLD, step, world, n_step, newest=19).items():
            assert row[name] == pytest.approx(value), (name, step, world)
    assert contents(path) == before


def test_more_transitions_than_memory_are_refused_before_they_are_read(tmp_path):
    """They were read until the system killed the process."""
    own = TOLD.replay()
    config = PriorConfig(run=str(run_of(tmp_path / "before", TOLD)))
    with pytest.raises(ConfigError, match=r"40 transitions of .*, but only .* MB are free"):
        open_prior(config, own, TOLD.spec, GROUPS, seed=3, copies=10**12)


def test_rewards_of_before_are_valued_by_the_newest_weights_of_the_run(tmp_path):
    told = story([[[1.0, 10.0]], [[2.0, 20.0]], [[4.0, 40.0]]])
    told.weights = {0: [1.0, 0.0], 1: [0.0, 1.0]}
    path = dataset_of(tmp_path / "set", told)
    own = told.replay()
    prior = open_prior(PriorConfig(run=str(path)), own, told.spec, GROUPS, seed=0)
    for stop, paid in ((1, {1.0, 2.0, 4.0}), (2, {10.0, 20.0, 40.0})):
        told.tell(own, stop - 1, stop)
        assert set(prior.replay.sample(64).reward.tolist()) == paid


def changed(**changes: Any) -> EnvSpec:
    return replace(TOLD.spec, **changes)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (changed(groups={**TOLD.spec.groups, "critic": GroupSpec(shape=(7,))}),
         "observation group 'critic' of width 2, but this run has .* of width 7"),
        (changed(action_size=3), "action of width 1, but this run has action of width 3"),
        (changed(reward_names=("alive",)), r"the reward terms \[\], but .* \['alive'\]"),
        (changed(control_dt=0.02), r"the time step \[s\] 0.1, but this run has .* 0.02"),
        (changed(robot=RobotSpec(name="one")), "the robot None, but this run has the robot one"),
    ],
)  # fmt: skip
def test_transitions_that_do_not_fit_are_refused_naming_both(tmp_path, spec, told):
    path = run_of(tmp_path, TOLD)
    with pytest.raises(SpecMismatchError, match=f"the transitions in {path} have {told}"):
        opened(path, spec=spec)


def test_transitions_of_a_robot_with_other_rotors_are_refused(tmp_path):
    one, other = (changed(robot=RobotSpec(name="one", rotors=r)) for r in (["a", "b"], ["b", "a"]))
    replay = type(TOLD.replay())(one, GROUPS, capacity=40, gamma=0.5)
    path = write_dataset(tmp_path, TOLD.tell(replay))
    with pytest.raises(SpecMismatchError, match=r"with rotors \['a', 'b'\], but .* \['b', 'a'\]"):
        opened(path, spec=other)


def test_a_group_that_data_do_not_have_is_named_with_all_groups_and_what_helps(tmp_path):
    replay = type(TOLD.replay())(TOLD.spec, ("actor",), capacity=40, gamma=0.5)
    path = write_dataset(tmp_path / "set", TOLD.tell(replay))
    with pytest.raises(SpecMismatchError) as told:
        opened(path)
    assert "have the observation groups ['actor'], but this run has the observation groups " in str(
        told.value
    )
    assert "['actor', 'critic']" in str(told.value)
    assert "import data that have 'critic' (robot-rl data convert ... groups=)" in str(told.value)
    assert "or take task.critic=[]" in str(told.value)


def test_transitions_of_another_meaning_are_refused_and_those_without_any_are_not(tmp_path):
    def meaning(high: float, scale: float) -> EnvSpec:
        terms = {"actor": [{"term": "joints", "scale": scale}], "other": [{"term": str(high)}]}
        return changed(meaning={"action": {"high": [high]}, "terms": terms})

    replay = type(TOLD.replay())(meaning(0.3, 1.0), GROUPS, capacity=40, gamma=0.5)
    path = write_dataset(tmp_path / "set", TOLD.tell(replay))
    opened(path, spec=meaning(0.3, 1.0 + 1e-9))
    opened(path)
    other = r"meaning: action.high\[0\] 0.3, but this run .* 1.0"
    with pytest.raises(SpecMismatchError, match=other):
        opened(path, spec=meaning(1.0, 1.0))
    with pytest.raises(SpecMismatchError, match=r"group 'actor', joints.scale 1.0, but .* 0.5"):
        opened(path, spec=meaning(0.3, 0.5))
    opened(dataset_of(tmp_path / "old", TOLD), spec=meaning(1.0, 1.0))


def test_where_nothing_is_saved_or_it_is_damaged_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no '.*nowhere'; expected the folder"):
        opened(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"is not a run: it has no config\.yaml"):
        opened(tmp_path)
    with pytest.raises(ConfigError, match="did not save its replay"):
        opened(run_of(tmp_path, TOLD, save_rows=False))
    cloned = RunFolder.create(tmp_path, RunName(task="t", robot="r", learner="bc", seed=0), {}, {})
    CheckpointStore(cloned.checkpoints).save(1, {"learner": {"updates": 1}})
    cloned.close()
    with pytest.raises(ConfigError, match="learned from demonstrations and has no replay"):
        opened(cloned.path)
    taught = RunFolder.create(tmp_path, RunName(task="t", robot="r", learner="x", seed=0), {}, {})
    CheckpointStore(taught.checkpoints).save(1, {"replay": {"steps": 0, "prior": {}}})
    taught.close()
    with pytest.raises(ConfigError, match="learned beside robots, and keeps their steps in its l"):
        opened(taught.path)
    with pytest.raises(ConfigError, match="holds no transitions yet"):
        opened(emptied(dataset_of(tmp_path / "empty", TOLD)))
    path = dataset_of(tmp_path / "set", TOLD)
    (path / "dataset.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        opened(path)


def emptied(folder: Path) -> Path:
    """A data set that says that it holds nothing."""
    path = folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "total_steps": 0}))
    return folder


def test_a_data_set_is_not_written_over_another_nor_of_nothing(tmp_path):
    path = dataset_of(tmp_path / "set", TOLD)
    kept = contents(path)
    with pytest.raises(ConfigError, match="set exists already and is not empty; choose a new fold"):
        dataset_of(path, TOLD)
    assert contents(path) == kept
    with pytest.raises(ConfigError, match="the replay holds no transitions; expected at least one"):
        write_dataset(tmp_path / "empty", TOLD.replay())
    assert not (tmp_path / "empty").exists()


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A data set out of another run of the miniature loop."""
    loop = Loop(tmp_path / "another", seed=8, total_steps=48)
    loop.trainer.run()
    return write_dataset(tmp_path / "set", loop.trainer.replay)


@pytest.mark.slow
def test_a_run_with_experience_of_before_resumes_bit_equal(tmp_path, before):
    kept = contents(before)
    ends_as_if_uninterrupted(tmp_path, [60], prior=PriorConfig(run=str(before), share=0.5))
    assert contents(before) == kept


@pytest.mark.slow
def test_the_learner_eats_its_share_of_both_and_goes_on_with_no_other_data(tmp_path, before):
    prior = PriorConfig(run=str(before), share=0.25)
    loop = Loop(tmp_path / "run", wrap=Watches, prior=prior)
    loop.trainer.run()
    learner = loop.trainer.learner
    assert isinstance(learner, Watches)
    eaten = learner.eaten
    assert len(eaten) == 50 * 2
    assert {int(batch.extra["source"].sum()) for batch in eaten} == {2}  # of 8
    assert {name for batch in eaten for name in batch.obs} == set(WORLD.groups)
    another = Loop(tmp_path / "third", seed=9, total_steps=48)
    another.trainer.run()
    shutil.rmtree(before)
    write_dataset(before, another.trainer.replay)
    with pytest.raises(CheckpointError, match="are not those that the run was mixed with"):
        Loop(tmp_path / "run", prior=prior).resume()


def test_normalisers_see_stored_observations_before_the_first_update_without_an_offline_phase(
    tmp_path, before
):
    """They saw them with an offline phase only: the first updates were of clipped observations."""
    loop = Loop(tmp_path / "run", prior=PriorConfig(run=str(before), share=0.25))
    loop.trainer.begin()
    prior = loop.trainer.stored["prior"]
    assert isinstance(prior, Prior)
    stored = prior.replay.strided_sample(65_536).obs
    networks: list[tuple[Any, str]] = [
        (loop.learner.actor, "actor"), (loop.learner.critic, "critic")
    ]  # fmt: skip
    for network, group in networks:
        seen = network.normalizer
        # The sums are others.
        torch.testing.assert_close(seen.mean, stored[group].mean(0), rtol=1e-5, atol=1e-6)
        assert int(seen.state_dict()["_count"]) == len(stored[group]) > 20
    assert loop.trainer.collector.env_steps == 0
