"""The stopwatch of a newcomer, on a repository of three lines."""

import subprocess

import pytest

from scripts import first_minutes

TRAINS = """train:
\t@echo "hover -> runs/one"
\t@echo finished 3.00M steps
\t@{last}
"""


@pytest.fixture
def repository(tmp_path):
    def made(last: str) -> str:
        (tmp_path / "Makefile").write_text(TRAINS.format(last=last))
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
            subprocess.run([*git, *words], check=True)
        return str(tmp_path)

    return made


def test_each_part_has_its_time_until_there_is_a_film(repository, capsys):
    folder = repository("mkdir -p runs/one/videos && touch runs/one/videos/flight.mp4")
    assert first_minutes.main([folder]) == 0
    told = capsys.readouterr().out.splitlines()
    parts = [line.split(" s   ")[1].split(":")[0] for line in told]
    assert parts == [
        "clone", "set-up", "training, plots, bundle and flight.mp4",
        "from git clone to a film; 180 s are asked for",
    ]  # fmt: skip
    assert told[-1].endswith("reached")


@pytest.mark.parametrize("last", ["true", "false"])
def test_without_a_film_it_says_what_make_said(repository, capsys, last):
    assert first_minutes.main([repository(last)]) == 1
    told = capsys.readouterr().err
    assert "finished 3.00M steps" in told
    assert f"no film: make train ended with {0 if last == 'true' else 2}" in told
