"""Writers are killed and disks lie: an episode is whole or absent, and damage is never read."""

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.manifest import MANIFEST, read_manifest, strays
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.repair import repair
from robot_rl.datasets.writer import DatasetWriter
from tests.matrices import some
from tests.robot_rl.datasets.killing import fork, write_and_kill, write_for_ever
from tests.robot_rl.datasets.samples import SPEC, episode, same, write
from tests.robot_rl.datasets.test_images import SEEN, equal, seen
from tests.robot_rl.little_space import limit_files, told_by_child

TOLD = [episode(i, 3 + i % 4) for i in range(6)]


PLAIN, FILMED = (SPEC, episode, same), (SEEN, lambda i: seen(i, 4), equal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kills"), some([(PLAIN, 3), (FILMED, 1)], [(PLAIN, 24), (FILMED, 11)])
)
def test_a_writer_killed_at_any_moment_leaves_whole_episodes_and_videos(tmp_path, kind, kills):
    spec, make, alike = kind
    delays = random.Random(0)
    folder = write(tmp_path / "set", spec=spec)
    held = torn = 0
    for delay in (*(delays.uniform(0, 0.06) for _ in range(kills)), None):
        reported = write_and_kill(folder, make, held, after=delay)
        dataset = EpisodeDataset(folder)  # as it is, before anything is tidied up
        assert len(dataset) in (reported + 1, reported + 2)  # added, perhaps not reported any more
        assert all(alike(one, make(i)) for i, one in enumerate(dataset))
        torn += bool(strays(folder, dataset.manifest))
        held = len(dataset)
        if held % 2 or delay is None:
            done = repair(folder)
            assert (done.folder, done.episodes, done.lost) == (folder, held, [])
            assert strays(folder, read_manifest(folder)) == []
            assert repair(folder).mended == []
    assert held >= kills  # each child added one at least
    assert torn > 0  # the last one at least was killed between the files and the manifest


@pytest.mark.slow
def test_what_a_killed_writer_left_is_tidied_up(tmp_path):
    folder = write(tmp_path / "set", *TOLD)
    ahead = write(tmp_path / "ahead", *TOLD, episode(9))
    for name in ("data/chunk-000/file-006.parquet", "meta/episodes/chunk-000/file-006.parquet"):
        shutil.copy(ahead / name, folder / name)
    line = (ahead / MANIFEST).read_bytes().splitlines()[-1]
    with (folder / MANIFEST).open("ab") as file:
        file.write(line[: len(line) // 2])
    assert len(EpisodeDataset(folder)) == 6
    done = repair(folder)
    assert done.episodes == 6
    assert [one.rpartition("/")[2] for one in done.mended] == [
        "the last line of the manifest was not written to its end",
        "file-006.parquet was written, but never counted",
        "file-006.parquet was written, but never counted",
    ]
    with DatasetWriter.append_to(folder) as writer:
        writer.add(episode(9))
    assert all(
        same(*pair) for pair in zip([*TOLD, episode(9)], EpisodeDataset(folder), strict=True)
    )


@pytest.mark.slow
def test_a_data_set_is_read_while_it_is_written(tmp_path):
    folder = write(tmp_path / "set")
    _, child_end = fork.Pipe(duplex=False)
    child = fork.Process(target=write_for_ever, args=(folder, episode, 0, child_end.send))
    child.start()
    lengths = []
    try:  # on a busy machine the writer may be much faster than the reader
        while len(set(lengths)) < 6 or lengths[-1] < 20:
            dataset = EpisodeDataset(folder)
            lengths.append(len(dataset))
            if len(dataset):
                assert same(dataset.episode(len(dataset) - 1), episode(len(dataset) - 1))
    finally:
        child.kill()
        child.join()
    assert lengths == sorted(lengths)


def add_with_little_space(folder: Path, size: int) -> None:
    with DatasetWriter.append_to(folder) as writer:
        limit_files(size)
        writer.add(episode(7))


@pytest.mark.slow
def test_a_full_disk_leaves_the_data_set_as_it_was(tmp_path):
    told = [episode(i, 1) for i in range(30)]
    folder = write(tmp_path / "set", *told)
    line = (folder / MANIFEST).stat().st_size
    assert line > 20_000, "larger than any other file"
    for size in (2000, line + 20):  # in the frames, in the manifest's line
        said = told_by_child(partial(add_with_little_space, folder, size))
        assert "would be larger than the limit" in said
        assert all(same(*pair) for pair in zip(told, EpisodeDataset(folder), strict=True))
    with DatasetWriter.append_to(folder) as writer:
        writer.add(episode(8))
    assert len(EpisodeDataset(folder)) == len(told) + 1


def damaged(folder, chance):
    """Truncate, flip a bit, or remove: one random file at one random place; says what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    path = chance.choice(files)
    content = bytearray(path.read_bytes())
    kind = chance.choice(["truncate", "flip", "flip", "remove"])
    if kind == "remove":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(bytes(content[: chance.randrange(len(content))]))
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(content))
    return f"{kind} {path.relative_to(folder)}"


@pytest.mark.slow
@pytest.mark.parametrize("trials", some([16], [240]))
def test_no_damage_is_read_and_whatever_is_whole_is_saved(tmp_path, trials):
    chance = random.Random(1)
    whole = tmp_path / "whole"
    with DatasetWriter.create(whole, SPEC) as writer:
        for pair in zip(TOLD[::2], TOLD[1::2], strict=True):
            writer.add(*pair)
    digests = [one.digest() for one in TOLD]
    for trial in range(trials):
        folder = tmp_path / f"set_{trial}"
        shutil.copytree(whole, folder)
        what = damaged(folder, chance)
        with pytest.raises(DatasetError) as refused:
            list(EpisodeDataset(folder))
        assert str(refused.value).count("\n") == 0, what
        done = repair(folder)
        assert done.mended, what
        saved = [one.digest() for one in EpisodeDataset(done.folder)]
        assert saved == [one for one in digests if one in saved], what
        assert len(saved) == done.episodes >= 4, what
        assert len(saved) == 6 or done.lost, what
        assert list(EpisodeDataset(done.folder).manifest.spec.groups) == list(SPEC.groups)
        for path in {folder, done.folder}:
            shutil.rmtree(path)


def test_a_line_that_went_from_the_manifest_is_missed(tmp_path):
    folder = write(tmp_path / "set", *TOLD)
    lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
    for gone in (1, 3, len(lines) - 1):
        (folder / MANIFEST).write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
        with pytest.raises(DatasetError, match=r"is damaged|is not the one that the manifest"):
            EpisodeDataset(folder)
        done = repair(folder)
        assert (done.episodes, done.lost) == (6, []), "the files say themselves what they hold"
        shutil.rmtree(done.folder)


def test_where_nothing_is_whole_nothing_is_made(tmp_path):
    folder = write(tmp_path / "set", episode(0))
    (folder / "data/chunk-000/file-000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DatasetError, match="holds no whole episode"):
        repair(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(DatasetError, match="cannot be repaired: neither its manifest nor"):
        repair(folder)
    assert not (tmp_path / "set_repaired").exists()
    (folder / "meta/info.json").unlink()
    with pytest.raises(DatasetError, match="does not exist"):
        repair(tmp_path / "nowhere")
