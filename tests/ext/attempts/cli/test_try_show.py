"""``mudroom try show`` after a real try: what differs between the candidates, and what became of their forks."""

from __future__ import annotations

import json

import pytest

from conftest import Place
from test_vault_verb import Cli

SCRIPT = """\
case $1 in
1) sed -i s/two/2/ a.py;;
2|3) sed -i s/two/TWO/ a.py; rm b.py;;
4) true;;
esac
"""


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("a.py", "one\ntwo\n")
    place.write("b.py", "b\n")
    place.write("fix.sh", SCRIPT)
    return Cli(place)


def test_what_differs(cli: Cli, place: Place) -> None:
    made = cli("try", "-n", "4", "--judge", "grep -q TWO a.py", "--", "sh", "fix.sh", "{i}")
    assert made.returncode == 0, made.stderr
    lines = cli("try", "show", "t1").stdout.splitlines()
    assert lines[lines.index("") :] == [
        "",
        "1 path where the candidates differ:",
        "  a.py  ~2 (+1 -1) | ~1 (+1 -1)",
        "",
        "1 path that only some change:",
        "  b.py  -2 (-1) | not 1",
        "",
        "side by side: mudroom review t1",
        "from one to another: mudroom diff t1-2 t1-1",
    ]
    found = json.loads(cli("try", "show", "t1", "--json").stdout)
    assert found["schema"] == "mudroom.try/1" and found["best"] == 2
    compared = found["comparison"]
    assert [one["attempts"] for one in compared["candidates"]] == [[2, 3], [1], [4]]
    assert [one["standing"] for one in compared["candidates"]] == ["ready", "ready", "none"]
    assert compared["counts"] == {"different": 1, "some": 1, "unknown": 0, "same": 0}
    assert "comparison" not in json.loads(cli("try", "show", "t1", "3", "--json").stdout)
    assert cli("discard", "t1-2", "--yes").returncode == 0
    assert cli("exec", "--fork", "t1-1", "--", "sh", "-c", "echo more > more").returncode == 0
    after = cli("try", "show", "t1").stdout.splitlines()
    assert "t1-2: its fork is gone: applied or discarded; t1-3 has the same result" in after
    assert "t1-1: changed since it was judged" in after
    assert (place.project / "a.py").read_text() == "one\ntwo\n"
