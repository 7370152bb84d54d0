"""Pages of the documentation: links that lead somewhere, few words, short sentences."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from scripts.site.pages import sources

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [path.relative_to(ROOT).as_posix() for path in sources()]
READ_THROUGH = [page for page in PAGES if page != "CHANGELOG.md"]

MOST_WORDS = 1500
LONGEST_MEAN_SENTENCE = 20.0
"""Words a sentence, on average over a page."""

REFERENCES = {"docs/link.md", "docs/ros2.md", "hardware/README.md"}
MEASUREMENTS = {f"docs/proofs/{name}.md" for name in ("hybrid", "offline_to_online", "people")}


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


def prose(text):
    """Text without code blocks, tables, headings and pictures; links are their words."""
    text = re.sub(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<=\n\n)(?:(?: {4}|\t).*\n|\n(?= {4}|\t))+", "\n", text)
    text = re.sub(r"^(?: *\||#).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text):
    """Numbers of words of the sentences of a page; code within a line counts as one word."""
    text = re.sub(r"`[^`]*`", "code", prose(text))
    lengths = []
    for block in re.split(r"\n\s*\n|\n *(?:[-*]|\d+\.) ", text):
        for sentence in re.split(r"(?<=[.!?])[)\"*_]*\s+", block):
            if words := re.findall(r"\w[\w'.,%-]*", sentence):
                lengths.append(len(words))
    return lengths


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert broken_links(ROOT / page) == []


def test_broken_link_and_broken_anchor_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One idea, said once\n[a](#one-idea-said-once) [b](#two) [c](absent.md)")
    assert broken_links(page) == ["#two", "absent.md"]


@pytest.mark.parametrize("page", READ_THROUGH)
def test_page_is_short(page):
    words = len((ROOT / page).read_text().split())
    if page not in REFERENCES | MEASUREMENTS:
        assert words <= MOST_WORDS, f"{page} has {words} words: split it, or move measurements"


@pytest.mark.parametrize("page", sorted(REFERENCES | MEASUREMENTS))
def test_exception_is_a_page_that_needs_it(page):
    assert len((ROOT / page).read_text().split()) > MOST_WORDS


@pytest.mark.parametrize("page", READ_THROUGH)
def test_sentences_are_short(page):
    lengths = sentences((ROOT / page).read_text())
    mean = sum(lengths) / max(len(lengths), 1)
    assert mean < LONGEST_MEAN_SENTENCE, f"{page}: {mean:.1f} words a sentence, on average"


def test_sentences_of_a_page_are_counted_outside_code_and_tables():
    page = (
        "# A heading of five words\n\nOne two three. Four `code of words` six\nseven eight nine."
        "\n\n"
        "    an indented block. of code\n\n```sh\nmore code here\n```\n\n"
        "| a table | has no sentences |\n|---|---|\n\n"
        "- Ten eleven.\n- [Twelve](a.md) thirteen 14.5\n"
    )
    assert sentences(page) == [3, 6, 2, 3]


def test_the_first_page_has_the_figures_of_the_proofs():
    """Of hover: a proof that is run again changes the page."""
    page = (ROOT / "README.md").read_text()
    groups = json.loads((ROOT / "docs/proofs/hover.json").read_text())["groups"]

    def of(group: str, condition: str, metric: str | None = None) -> list[float]:
        trials = [seed["trials"][condition] for seed in groups[group]["seeds"]]
        return [one["metrics"][metric]["mean"] if metric else one["success"] for one in trials]

    home, paper, other = (
        of("plant A", name) for name in ("held-out starts", "starts of the paper", "measured plant")
    )
    own = of("plant B, own lag", "measured plant")
    distance = fmean(of("plant A", "held-out starts", "mean_distance"))
    swing = max(of("plant A", "held-out starts", "action_swing"))
    for said in (
        f"{100 * fmean(home):.1f} % success, worst seed {100 * min(home):.1f} %",
        f"{100 * distance:.1f} cm from the goal",
        f"swing by {100 * swing:.1f} %",
        f"| {100 * fmean(other):.1f} %, worst seed {100 * min(other):.1f} %",
        f"its own rotor lag {100 * fmean(own):.1f} %",
        f"| {100 * fmean(paper):.1f} %; a controller",
        f"swing by {100 * fmean(of('plant B, own lag', 'measured plant', 'action_swing')):.0f} %",
    ):
        assert said in page, said


def test_the_first_page_has_the_figures_of_hover_on_any_plant():
    page = (ROOT / "README.md").read_text()
    record = json.loads((ROOT / "docs/proofs/hover_robust.json").read_text())
    seeds = record["groups"]["hover_robust"]["seeds"]

    def of(condition: str) -> list[float]:
        return [100 * seed["trials"][condition]["success"] for seed in seeds]

    late, joint = (100 * record["expert"][c]["success"] for c in ("delay 20 ms", "all at once"))
    weakest = min(min(of(f"plant {name}")) for name in ("measured", "bullet", "rotorpy"))
    for said in (
        f"{fmean(of('at home')):.1f} % at home, worst seed {weakest:.1f} % on the weakest",
        f"{fmean(of('delay 20 ms')):.1f} %, a geometric controller {late:.1f} %",
        f"at once {fmean(of('all at once')):.1f} and {joint:.1f} %",
    ):
        assert said in page, said


def test_the_first_page_has_the_figures_of_learning_beside_a_person():
    page = (ROOT / "README.md").read_text()
    groups = json.loads((ROOT / "docs/proofs/people.json").read_text())["groups"]

    def of(group: str) -> tuple[list[float], float]:
        trials = [seed["trials"]["policy alone"] for seed in groups[group]["seeds"]]
        times = [one["metrics"]["seconds"]["mean"] for one in trials]
        return [100 * one["success"] for one in trials], fmean(times)

    (helped, seconds), (alone, alone_seconds) = of("HIL-SERL with a person"), of("RLPD")
    for said in (
        f"| {fmean(helped):.1f} % of 100 new starts, worst seed {min(helped):.0f} %",
        f", in {seconds:.1f} s; cloning {fmean(of('behaviour cloning')[0]):.0f} %",
        f"without a person {fmean(alone):.0f} % in {alone_seconds:.1f} s",
    ):
        assert said in page, said


def test_packages_of_yaml_stand_where_hydra_looks():
    # Hydra reads them at the top, and no further than the first other comment.
    late = re.compile(r"^ *# (?!@package).*\n *# @package", re.MULTILINE)
    assert late.search("# my_configs/tuned/mine.yaml\n# @package _global_\n")
    assert [page for page in PAGES if late.search((ROOT / page).read_text())] == []


def test_pages_name_scripts_that_exist():
    """Those of the repository, and modules that are run; `python -m` of others is another's."""
    missing, seen = [], set[str]()
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"python3? (?:-m )?((?:scripts|robot_rl|examples)[\w./]*\w)", text):
            seen.add(name)
            place = ROOT / name if name.endswith(".py") else ROOT / name.replace(".", "/")
            if not (place.is_file() or place.with_suffix(".py").is_file() or place.is_dir()):
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert len(seen) > 10
    assert missing == []


def test_pages_name_files_that_exist():
    """Those that are told as code, not as links."""
    missing, seen = [], 0
    spans = (
        r"`((?:robot_rl|sim|hardware|policies|configs|scripts|tests|examples|docs)/[\w./-]+\.\w+)`"
    )
    for page in READ_THROUGH:
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        for name in re.findall(spans, text):
            seen += 1
            if Path(name).stem != "x" and not (ROOT / name).is_file():  # x: any of them
                missing.append(f"{page}: {name}")
    assert seen > 20
    assert missing == []


def test_code_names_pages_that_exist():
    """Names of pages in docstrings, help, errors and comments."""
    missing = []
    for folder in ("configs", "examples", "hardware", "policies", "robot_rl", "scripts", "sim"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".yaml", ".yml", ".hpp", ".cpp"} and path.is_file():
                for name in re.findall(r"\bdocs/[\w/]+\.md", path.read_text(encoding="utf-8")):
                    if not (ROOT / name).is_file():
                        missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
