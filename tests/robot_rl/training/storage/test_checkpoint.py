"""Checkpoints: retention, the best, damage, and going back."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch

from robot_rl.core.errors import CheckpointError
from robot_rl.training.storage.checkpoint import CheckpointStore, Score, read_manifest
from robot_rl.training.storage.segments import SegmentStore


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def state(step):
    return {"w": torch.full((50,), step), "step": step, "lr": 3e-4}


def flip(path, place=-5):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_loaded(folder):
    path = CheckpointStore(folder).save(12_345_678, state(7), score=0.5)
    assert path.name == "step_000012345678"
    for which in ("latest", "best", path, str(path)):
        found = CheckpointStore(folder, read_only=True).load(which)
        assert (found.step, found.score, found.path) == (12_345_678, 0.5, path)
        assert torch.equal(found.state["w"], state(7)["w"])
        assert found.state["lr"] == 3e-4


def test_the_last_ones_and_the_best_are_kept(folder):
    store = CheckpointStore(folder, keep_last=2)
    for step, score in ((1, 0.1), (2, 0.9), (3, 0.3), (4, None), (5, float("nan")), (6, 0.2)):
        store.save(step, state(step), score=score)
    assert store.steps() == [2, 5, 6]
    assert store.load("best").step == 2
    assert store.load().step == 6
    store.save(7, state(7), score=0.9)  # as good, and newer
    assert store.steps() == [6, 7]
    store.save(7, state(8), score=0.8)
    assert store.load("best").state["step"] == 8
    assert names(folder) == ["best.json", "step_000000000006", "step_000000000007"]


def test_among_scores_that_are_not_clearly_worse_the_second_one_decides(folder):
    store = CheckpointStore(folder, keep_last=1)

    def best_after(step: int, value: float, second: float) -> int:
        score = Score(value=value, floor=value - 0.02, second=second)
        store.save(step, state(step), score=score)
        best = store.load("best")
        assert best.score == read_manifest(best.path)["score"]
        return best.step

    assert best_after(1, 0.99, 50.0) == 1
    assert best_after(2, 0.98, 80.0) == 2
    assert best_after(3, 0.965, 90.0) == 2, "clearly worse than the first, which is gone"
    store = CheckpointStore(folder, keep_last=1)  # another process goes on
    assert best_after(4, 0.969, 95.0) == 2
    assert best_after(5, 0.98, 80.0) == 5, "the newer one where both are equal"
    assert best_after(6, 1.0, 10.0) == 5, "still close enough to it"
    assert best_after(7, 1.0, 20.0) == 5
    store.discard_after(5)
    assert best_after(8, 0.965, 90.0) == 8, "a future that was discarded counts no more"
    assert best_after(9, 0.99, 81.0) == 9


@pytest.mark.parametrize(
    ("file", "break_it"),
    [("tensors.safetensors", Path.unlink), ("state.json", flip), ("checkpoint.json", flip)],
)
def test_a_damaged_newest_one_falls_back_with_a_warning(folder, caplog, file, break_it):
    store = CheckpointStore(folder)
    store.save(1, state(1))
    newest = store.save(2, state(2))
    break_it(newest / file)
    with caplog.at_level(logging.WARNING):
        assert store.load().state["step"] == 1
    assert "step_000000000002 is damaged" in caplog.text
    assert file in caplog.text
    flip(store.folder / "step_000000000001" / "state.json")
    with pytest.raises(CheckpointError, match="all 2 checkpoints"):
        store.load()


def test_no_checkpoint_is_the_best_while_reward_weights_move_if_one_comes_after(folder):
    store = CheckpointStore(folder, keep_last=1)

    def best_after(step: int, value: float, settled: bool) -> int:
        score = Score(value=value, floor=value, second=value, settled=settled)
        store.save(step, state(step), score=score)
        return store.load("best").step

    assert best_after(1, 0.9, False) == 1
    assert best_after(2, 0.8, False) == 1
    assert best_after(3, 0.5, True) == 3
    assert best_after(4, 0.4, True) == 3
    assert best_after(5, 0.6, True) == 5
    assert best_after(6, 0.9, False) == 5, "a run that went back before the change"


def test_every_byte_of_a_checkpoint_is_guarded(folder):
    store = CheckpointStore(folder)
    path = store.save(1, state(1))
    for file in ("tensors.safetensors", "state.json"):
        whole = (path / file).read_bytes()
        for place in range(0, len(whole), 29):
            flip(path / file, place)
            with pytest.raises(CheckpointError, match=file):
                store.load(path)
            flip(path / file, place)
    assert store.load(path).step == 1


def test_going_on_from_an_older_step_leaves_the_abandoned_future(folder):
    store = CheckpointStore(folder, keep_last=9)
    for step, score in ((1, 0.5), (2, 0.1), (3, 0.9)):
        store.save(step, state(step), score=score)
    store.discard_after(2)
    assert store.steps() == [1, 2]
    assert store.load("best").step == 1
    store.discard_after(0)
    assert (store.steps(), store.best()) == ([], None)


def test_leftovers_of_a_killed_save_are_cleared_by_the_next_writer_only(folder):
    store = CheckpointStore(folder)
    store.save(1, state(1), score=0.1)
    path = store.save(2, state(2), score=0.2)
    path.rename(folder / ".old_step_000000000002")  # killed while replacing step 2 ...
    (folder / ".tmp_step_000000000002").mkdir()  # ... by this
    (folder / ".trash_step_000000000000").mkdir()
    (folder / "best.json").write_text('{"step": 1, "score": 0.1}')
    before = names(folder)
    assert CheckpointStore(folder, read_only=True).load().step == 1
    assert names(folder) == before
    store = CheckpointStore(folder)
    assert names(folder) == ["best.json", "step_000000000001", "step_000000000002"]
    assert store.load("best").step == 2


def test_segments_live_as_long_as_a_kept_checkpoint_names_them(tmp_path, folder):
    segments = SegmentStore(tmp_path / "replay")
    store = CheckpointStore(folder, keep_last=2, segments=segments)
    entries = [segments.write("s0", {"x": torch.full((4,), 0)})]
    for i in range(4):  # a ring of two segments
        entries.append(segments.write(f"s{i + 1}", {"x": torch.full((4,), i + 1)}))
        store.save(i, {"replay": {"segments": entries[i : i + 2]}})
    assert {path.name for path in segments.folder.iterdir()} == {e["segment"] for e in entries[2:]}
    (segments.folder / entries[4]["segment"]).unlink()
    found = store.load()  # the newest lacks one, so the one before is taken, with all of its own
    assert found.step == 2
    flip(segments.folder / entries[3]["segment"])
    with pytest.raises(CheckpointError, match=r"resume with training.save_replay=false"):
        store.load()
    assert CheckpointStore(folder).load().step == 3, "without the replay"
    flip(segments.folder / entries[3]["segment"])
    assert [int(segments.read(e)["x"][0]) for e in found.state["replay"]["segments"]] == [2, 3]


def test_wrong_use_a_newer_format_and_nothing_to_load_are_refused_in_words(folder):
    store = CheckpointStore(folder)
    assert store.latest() is store.best() is None
    for which, told in (("latest", "no checkpoint"), ("best", "as the best")):
        with pytest.raises(CheckpointError, match=told):
            store.load(which)
    path = store.save(1, state(1))
    manifest = json.loads((path / "checkpoint.json").read_bytes())
    (path / "checkpoint.json").write_text(json.dumps({**manifest, "format": 9}))
    with pytest.raises(CheckpointError, match=r"format 9.* up to 1"):
        store.load(path)
    with pytest.raises(ValueError, match="read-only"):
        CheckpointStore(folder, read_only=True).save(1, {})


def test_a_finished_run_keeps_one_replay_and_goes_on_from_it(tmp_path, folder):
    """A folder of hover took 527 MB: three replays, of which one is ever resumed."""
    segments = SegmentStore(tmp_path / "replay")
    store = CheckpointStore(folder, keep_last=2, segments=segments)
    for i in range(3):  # rings that share nothing
        entry = segments.write(f"s{i}", {"x": torch.full((4,), i)})
        store.save(i, {"replay": {"segments": [entry]}}, score=-i)
    assert len(list(segments.folder.iterdir())) == 2
    assert store.keep_one_replay() > 0
    assert [path.name[:2] for path in segments.folder.iterdir()] == ["s2"]
    found = store.load()
    assert int(segments.read(found.state["replay"]["segments"][0])["x"][0]) == found.step == 2
    assert store.load("best").step == 0


def test_why_no_checkpoint_is_the_best_is_what_is_the_case(folder):
    """A damaged mark and a missing folder were told as a run without any score."""
    CheckpointStore(folder).save(1, {}, score=0.5)
    shutil.rmtree(folder / "step_000000000001")
    store = CheckpointStore(folder, read_only=True)
    with pytest.raises(
        CheckpointError, match=r"best\.json names step_000000000001, which is missing"
    ):
        store.load("best")
    (folder / "best.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"best\.json is damaged"):
        store.load("best")
    (folder / "best.json").unlink()
    with pytest.raises(CheckpointError, match="none has been scored yet"):
        store.load("best")


def test_while_one_waits_for_its_score_none_is_deleted_and_the_best_is_as_if_it_had_it(folder):
    late, plain = CheckpointStore(folder, keep_last=1), CheckpointStore(folder / "x", keep_last=1)
    scores = {1: 0.5, 2: 0.9, 3: 0.7}
    for step, score in scores.items():
        plain.save(step, state(step), score=score)
        late.hold(step)
        late.save(step, state(step))
        late.save(10 * step, state(step))
        assert {step, 10 * step} <= set(late.steps())
        assert late.best() == (None if step == 1 else late.path_of(min(step - 1, 2)))
        late.set_score(step, Score(value=score, floor=score, second=score))
        late.discard_after(step)
        assert late.load("best").step == plain.load("best").step
        assert read_manifest(late.path_of(late.load("best").step))["score"] == max(
            scores[one] for one in range(1, step + 1)
        )
    assert (folder / "best.json").read_bytes() == (folder / "x" / "best.json").read_bytes()
    with pytest.raises(CheckpointError, match="missing"):
        late.set_score(99, Score(value=1.0, floor=1.0, second=1.0))
