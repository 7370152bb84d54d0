"""`python -m tests.hardware.console.measure` beside the processes of `robot-rl learn`."""

from pathlib import Path

import pytest

from tests.hardware.console.conftest import CHROMIUM

pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"there is no browser at {CHROMIUM}")
def test_stick_take_over_stop_and_pictures_are_measured():
    from tests.hardware.console.measure import main

    said: list[str] = []
    main(2, (), said.append)
    told = "\n".join(said)
    for what in ("stick -> target", "take-over key -> policy", "stop click -> damping"):
        assert f"{what}" in told
    assert told.count('"n": 2,') == 3
    assert "age of a picture when drawn" in told
