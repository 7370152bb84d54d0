"""Episodes as the bytes of an addition to a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.datasets.episode import Columns, Episode, to_columns
from robot_rl.datasets.files import lerobot_meta as meta
from robot_rl.datasets.files.manifest import Manifest
from robot_rl.datasets.files.parquet import encode
from robot_rl.datasets.files.statistics import Statistics, statistics_of
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.storage.durable import sha256


@dataclass(frozen=True, kw_only=True)
class EncodedEpisodes:
    """Episodes that come together."""

    data: bytes
    """File of their frames."""
    table: bytes
    """File with what LeRobot keeps of each."""
    lengths: list[int]
    """Steps of each."""
    tasks: list[str]
    """Of each."""
    sources: list[str]
    """Of each."""
    digests: list[str]
    """Of each."""
    statistics: list[Statistics]
    """Of each."""
    videos: dict[str, bytes]
    """Camera -> file with the images of all."""


def encode_episodes(episodes: Sequence[Episode], manifest: Manifest) -> EncodedEpisodes:
    """Check episodes and encode them as the next addition.

    Args:
        episodes: At least one.
        manifest: What is there before them.

    Raises:
        DatasetError: An episode is not what the spec says.
    """
    spec, first = manifest.spec, manifest.num_episodes
    checked = [one.checked(spec, f"episode {first + i}") for i, one in enumerate(episodes)]
    all_tasks = list(dict.fromkeys([*manifest.tasks, *(one.task for one in checked)]))
    frame = manifest.num_frames
    tables: list[Columns] = []
    for i, one in enumerate(checked):
        index = all_tasks.index(one.task)
        tables.append(to_columns(one, spec, number=first + i, first=frame, task_index=index))
        frame += one.num_steps + 1
    lengths, tasks = [one.num_steps for one in checked], [one.task for one in checked]
    sources = [one.source for one in checked]
    digests = [one.digest() for one in checked]
    statistics = [statistics_of(one) for one in checked]
    videos = _videos(checked, spec)
    note = {
        "spec": spec.to_dict(), "tasks": tasks, "sources": sources, "digests": digests,
        "videos": {name: sha256(content) for name, content in videos.items()},
    }  # fmt: skip
    return EncodedEpisodes(
        data=encode(tables, note=note),
        table=meta.episodes_table(
            spec, file_number=len(manifest.additions), first_episode=first,
            first_frame=manifest.num_frames, lengths=lengths, tasks=tasks, sources=sources,
            digests=digests, statistics=statistics,
        ),
        lengths=lengths, tasks=tasks, sources=sources, digests=digests, statistics=statistics,
        videos=videos,
    )  # fmt: skip


def _videos(episodes: Sequence[Episode], spec: DatasetSpec) -> dict[str, bytes]:
    if not spec.images:
        return {}
    from robot_rl.datasets.files import video  # most data sets have no images

    return {
        name: video.encode((one.images[name] for one in episodes), spec.rate)
        for name in spec.images
    }
