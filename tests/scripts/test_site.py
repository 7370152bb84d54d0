"""The site of the documentation: every page, a reference, and links that lead somewhere."""

import pytest
import yaml

from scripts.site import pages
from scripts.site.__main__ import main
from scripts.site.pages import REFERENCE, SiteError, sources, stage


def pages_of(nav):
    """Pages that a menu has, in order."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            (value,) = entry.values()
            yield from pages_of(value) if isinstance(value, list) else [value]


def test_menus_have_every_page_once_where_it_lies_in_the_repository(tmp_path):
    settings = yaml.safe_load(stage(tmp_path, tmp_path / "site").read_text())
    shown = [*pages_of(settings["nav"])]
    assert len(shown) == len(set(shown))
    wanted = {path.relative_to(pages.ROOT).as_posix() for path in sources()}
    assert set(shown) == wanted | {f"reference/{name}.md" for name in REFERENCE}
    assert all((tmp_path / "pages" / name).is_file() for name in shown)
    assert (tmp_path / "pages/docs/images/hover.png").is_file()
    assert shown.index("docs/proofs/README.md") < shown.index("docs/proofs/hover.md")


def test_a_page_that_links_to_nothing_is_named(tmp_path, monkeypatch):
    root = tmp_path / "house"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "one.md").write_text("# One\n\n[a](two.py)\n")
    monkeypatch.setattr(pages, "ROOT", root)
    with pytest.raises(SiteError, match=r"docs/one.md links to two.py, which is not there"):
        stage(tmp_path / "out", tmp_path / "site")


@pytest.mark.slow
def test_the_site_is_built_with_search_and_contracts_without_asking_other_servers(tmp_path, capsys):
    main([f"out={tmp_path / 'site'}"])
    assert f"site    {tmp_path / 'site' / 'index.html'}" in capsys.readouterr().out
    contract = (tmp_path / "site/reference/environments/index.html").read_text()
    assert "the true successor of every step" in contract
    assert "EnvStep" in (tmp_path / "site/search/search_index.json").read_text()
    start = (tmp_path / "site/index.html").read_text()
    assert "fonts.googleapis.com" not in start


def test_what_the_command_does_not_know_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["where=here"])
    assert ended.value.code == 2
    assert "where" in capsys.readouterr().err
