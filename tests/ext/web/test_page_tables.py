"""Rules that the page shares with the core: generated tables, and one function that is compared."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from importlib.resources import files

import pytest

from conftest import Place
from mudroom.core.tree.dependent_rows import complete_selection, needs, row_of
from mudroom.ext.tui.choice import items_of
from mudroom.ext.web.server.page_tables import main

NODE = shutil.which("node")
PAGE = files("mudroom.ext.web") / "page"


def test_the_module_of_tables_is_up_to_date() -> None:
    assert (PAGE / "tables.js").read_text(encoding="utf-8") == main(), (
        "python -m mudroom.ext.web.server.page_tables > src/mudroom/ext/web/page/tables.js"
    )


@pytest.mark.skipif(NODE is None, reason="node is not installed: it runs the modules of the page")
def test_choices_are_completed_as_in_the_core() -> None:
    """The same choice comes out of ``gathered`` in together.js and of ``complete_selection`` in dependent_rows.py."""
    chance, cases, wanted = random.Random(7), [], []
    names = "abcdefg"
    for _ in range(300):
        needed = {name: sorted(set(chance.choices(names, k=2)) - {name}) for name in chance.sample(names, 4)}
        picked = sorted(chance.sample(names, chance.randint(0, 7)))
        before = chance.choice([None, sorted(chance.sample(names, chance.randint(0, 7)))])
        cases.append((needed, picked, before))
        by_path = {name.encode(): frozenset(other.encode() for other in others) for name, others in needed.items()}
        earlier = None if before is None else [name.encode() for name in before]
        chosen = complete_selection(
            [name.encode() for name in picked], {path: n for path, n in by_path.items() if n}, earlier
        )
        wanted.append(sorted(path.decode() for path in chosen))
    script = f"""import {{ gathered, needs }} from {json.dumps(f"file://{PAGE / 'together.js'}")};
      const map = (names) => new Map(names.map((name) => [name, null]));
      const rows = (needed) => [..."{names}"].map((id) => ({{ id, needs: needed[id] ?? [] }}));
      console.log(JSON.stringify({json.dumps(cases)}.map(([needed, picked, before]) =>
        [...gathered(map(picked), needs(rows(needed)), before && map(before)).keys()].sort())));"""
    run = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", script], capture_output=True, text=True, timeout=60, check=True
    )
    different = [
        (case, page, core)
        for case, page, core in zip(cases, json.loads(run.stdout), wanted, strict=True)
        if page != core
    ]
    assert not different, different[0]


def test_the_needs_of_real_changes(place: Place) -> None:
    for name in ("d/e/y", "d/x", "g", "d/moved"):
        place.write(name, f"this is {name}\n")
    session, result = place.sh("mv d/moved g2; rm -r d; echo now > d; rm g; mkdir -p g/s; mv g2 g/a; echo 2 > g/s/b")
    found = needs(row_of(item.change) for item in items_of(session.changes.of(result.fork).changes))
    assert found[b"d"] == {b"d/e/y", b"d/x", b"g/a"}
    assert found[b"g"] == {b"g/a", b"g/s/b"}
