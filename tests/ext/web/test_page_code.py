"""The page's code: its types, what it takes from others, and what is not to be in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiers import each

HERE = Path(__file__).parents[3]
TOOLS = HERE / "dev/page/node_modules"
PAGE = HERE / "src/mudroom/ext/web/page"
OWN = sorted(
    path for path in (*PAGE.iterdir(), *PAGE.glob("push/*")) if path.suffix in (".js", ".html", ".css", ".svg")
)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_types() -> None:
    compiler = TOOLS / ".bin/tsc"
    if not compiler.exists():
        pytest.skip("typescript is not installed (npm install --prefix dev/page)")
    done = run(compiler, "-p", ".")
    assert (done.returncode, done.stdout) == (0, "")


def test_what_others_made_is_as_they_published_it() -> None:
    if not (TOOLS / "preact").exists():
        pytest.skip("preact is not installed (npm install --prefix dev/page)")
    done = run(sys.executable, HERE / "dev/vendor", "--check")
    assert (done.returncode, done.stderr) == (0, "")


@each("path", OWN)
def test_nothing_makes_elements_of_text(path: Path) -> None:
    """What would turn a file's content into a page, or the page into somebody else's, is not even there."""
    text = re.sub(r"^\s*(//|\*|/\*).*$", "", path.read_text(), flags=re.MULTILINE)  # without remarks
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in text, word
    assert not re.search(r"""["'(](https?:)?//\w""", text.replace("http://www.w3.org/2000/svg", "")), "asks elsewhere"
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|<style|\sstyle=", text)


def test_a_browser_keeps_each_version_of_the_page() -> None:
    asset = pytest.importorskip("mudroom.ext.web.server.asset", reason="the extra web")
    index = asset.ASSETS["index.html"].data.decode()
    named = re.findall(r'(?:href|src)="([^"]+)"', index)
    assert all(name.startswith(asset.VERSION + "/") and name in asset.ASSETS for name in named)
    modules = {path.name for path in OWN if path.suffix == ".js"} - {
        "colour.worker.js",
        "events.worker.js",
        "worker.js",
        "tokens.js",
    }
    assert not modules - {name.rpartition("/")[2] for name in named}, "not asked for at once"
    assert {"/" + name for name in asset.ASSETS} | {"/"} == asset.PUBLIC
