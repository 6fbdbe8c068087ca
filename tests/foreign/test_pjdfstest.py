"""pjdfstest, the POSIX conformance suite of file systems, in a project inside, held to what it says outside.

It is given as a built checkout (MUDROOM_PJDFSTEST). It wants root with all its capabilities, which no command has
inside. So root's reference is root without capabilities: what needs one fails there as well.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

import pytest

import suite
from conftest import Place
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from suite import MODES, Ran

pytestmark = [pytest.mark.both_users, pytest.mark.root]

EACH = """
cd work
for path in {checkout}/tests/*/*.t; do
    name=${{path#{checkout}/tests/}}
    timeout 120 sh "$path" 2>/dev/null | sed -n -E "s,^(not ok|ok) ([0-9]+)( - )?(.*),\\1\t$name:\\2\t\\4,p"
done >../results
"""
"""For a shell, in a directory with an empty directory ``work``."""
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
STAND_IN = """
. "$(dirname "$0")/../../helper"
ok 1 "$(echo x >f; stat -c %a f)" 644
ok 2 "$(chmod 600 f; stat -c %a f)" 600
[ "$(pwd)" = "$(readlink -f .)" ] && echo "ok 3"
ok 4 "$(chown 12345 f 2>/dev/null || echo refused)" refused
ok 5 one two
"""
HELPER = 'ok() { [ "$2" = "$3" ] && echo "ok $1" || echo "not ok $1 - $2, not $3"; }\n'

Natively = Callable[[Path], Ran]


def read_results(text: str) -> Ran:
    rows = [line.split("\t") for line in text.splitlines()]
    return Ran({name: "ok" if word == "ok" else "fail" for word, name, _said in rows}, {row[1]: row[2] for row in rows})


def script(checkout: Path) -> str:
    return "umask 022\n" + EACH.format(checkout=quote(str(checkout)))


@pytest.fixture(scope="module")
def natively(tmp_path_factory: pytest.TempPathFactory) -> Natively:
    """Run a checkout outside, once."""
    known: dict[Path, Ran] = {}

    def run(checkout: Path) -> Ran:
        if checkout not in known:
            place = tmp_path_factory.mktemp("native")
            (place / "work").mkdir()
            words = [*(() if os.geteuid() else WITHOUT_CAPABILITIES), "sh", "-c", script(checkout)]
            subprocess.run(words, cwd=place, stdin=subprocess.DEVNULL, check=True)
            known[checkout] = read_results((place / "results").read_text())
        return known[checkout]

    return run


def inside(session: Session, place: Place, checkout: Path, mode: str) -> Ran:
    place.write("work/.keep")
    result = suite.run_in(session, place, "rm work/.keep\n" + script(checkout), mode, 1500)
    assert result.exit_code == 0, result.stderr
    return read_results(suite.staged(session, "results").decode())


@pytest.fixture
def place(client: Client) -> Iterator[Place]:
    """The suite makes names and paths of the greatest length."""
    with suite.short_place(client) as place:
        yield place


@pytest.mark.slow
def test_a_stand_in(place: Place, natively: Natively) -> None:
    """The way from a checkout to outcomes; the suite itself is not here."""
    checkout = place.root / "checkout"
    (checkout / "tests/chmod").mkdir(parents=True)
    (checkout / "helper").write_text(HELPER)
    (checkout / "tests/chmod/00.t").write_text(STAND_IN)
    found = inside(suite.open_mode(place, "overlay", checkout), place, checkout, "overlay")
    expected = {f"chmod/00.t:{number}": "ok" for number in range(1, 5)} | {"chmod/00.t:5": "fail"}
    assert found.outcomes == natively(checkout).outcomes == expected
    assert found.details["chmod/00.t:5"] == "one, not two"


def compare(session: Session, place: Place, checkout: Path, mode: str, there: Ran) -> None:
    found = inside(session, place, checkout, mode)
    assert list(found.outcomes.values()).count("ok") > 1000
    lines = suite.surprises(there.outcomes, found, suite.table("pjdfstest"), mode)
    assert lines == [], "\n".join(lines)


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(3000)
@pytest.mark.parametrize("mode", MODES)
def test_the_suite(place: Place, natively: Natively, mode: str) -> None:
    checkout = suite.source("pjdfstest")
    compare(suite.open_mode(place, mode, checkout), place, checkout, mode, natively(checkout))
