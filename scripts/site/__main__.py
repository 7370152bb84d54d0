"""Builds the documentation as a site: `python -m scripts.site --help`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from robot_rl.cli.command_line import exit_with_sentence, read_overrides
from robot_rl.core.process import check_one_root

_HELP = """Writes the documentation as a site with search and a reference of the contracts.

usage: python -m scripts.site [option=value ...]

options:
  out=outputs/site   folder of the site: open its index.html, or put it on any web server

A link that leads nowhere and a page that no menu has are errors."""


@dataclass(kw_only=True)
class SiteOptions:
    """Options of the command."""

    out: str = "outputs/site"
    """Folder of the site."""


@exit_with_sentence()
def main(arguments: Sequence[str] | None = None) -> None:
    """Build what the command line says."""
    overrides, _ = read_overrides(arguments, lambda: _HELP)
    check_one_root()
    from configs.compose import read_only_options
    from scripts.site.pages import SiteError, stage

    out = Path(read_only_options(SiteOptions, overrides).out)
    if find_spec("mkdocs") is None:
        raise SiteError("the site is built by MkDocs; install it with pip install 'robot_rl[docs]'")
    with TemporaryDirectory() as folder:
        settings = stage(Path(folder), out)
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"]
        quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement of the theme
        done = subprocess.run([*command, "-f", str(settings)], check=False, env=quiet)
    if done.returncode:
        raise SiteError("MkDocs refused the pages; its lines above say why")
    print(f"site    {out / 'index.html'}")


if __name__ == "__main__":
    main()
