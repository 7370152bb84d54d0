"""Every link in the documentation that stays in the repository leads somewhere."""

import re
from pathlib import Path

import pytest

from scripts.site.pages import sources

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [path.relative_to(ROOT).as_posix() for path in sources()]


def anchors(text):
    """Heading names as GitHub spells them in links."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def broken_links(page):
    broken = []
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (
            anchor and aim.suffix == ".md" and anchor not in anchors(aim.read_text())
        ):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert broken_links(ROOT / page) == []


def test_broken_link_and_broken_anchor_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One idea, said once\n[a](#one-idea-said-once) [b](#two) [c](absent.md)")
    assert broken_links(page) == ["#two", "absent.md"]
