"""A file that was moved and changed in one go, by the page's API: two rows, and one difference to look at."""

from __future__ import annotations

from typing import Any

import pytest
from looking import Looking

from conftest import Place, tick
from mudroom.core.settings import Settings
from mudroom.ext.web.api.endpoint import id_of

TEXT = "".join(f"line {number}\n" for number in range(40))
MOVE = "mkdir lib; mv src/old.py lib/new.py; sed -i 's/^line 7$/seven/' lib/new.py"


def staged(place: Place, script: str = MOVE, settings: Settings | None = None) -> Looking:
    session = place.session()
    session.forks.new("f")
    done = session.run([b"sh", b"-ec", script.encode()], fork="f")
    assert done.exit_code == 0, done.stderr
    return Looking(place, settings)


@pytest.fixture
def moved(place: Place) -> Looking:
    place.write("src/old.py", TEXT)
    place.write("src/other.py", "other\n" * 40)
    return staged(place)


def lines(found: dict[str, Any]) -> list[str]:
    return [line[0] + line[3] for hunk in found["hunks"] for line in hunk["lines"]]


def other(path: str, *, compared: bool, similarity: int = 97) -> dict[str, Any]:
    return {"id": id_of(path.encode()), "path": path, "similarity": similarity, "compared": compared}


def test_what_came_is_shown_beside_what_it_was(moved: Looking) -> None:
    found = moved.get("diff", file=b"lib/new.py")
    assert found["moved"] == other("src/old.py", compared=True)
    assert (found["old"]["exists"], found["old"]["lines"], found["new"]["lines"]) == (True, 40, 40)
    assert [line for line in lines(found) if line[0] != " "] == ["-line 7", "+seven"]
    assert found["blocks"] == 1
    assert found["divisible"] is False, "the blocks are not those of the change"


def test_or_as_a_new_file(moved: Looking) -> None:
    found = moved.get("diff", file=b"lib/new.py", as_new=True)
    assert found["moved"] == other("src/old.py", compared=False)
    assert (found["old"]["exists"], found["divisible"]) == (False, True)
    assert {line[0] for line in lines(found)} == {"+"}
    assert found["version"] != moved.get("diff", file=b"lib/new.py")["version"]


def test_what_went_says_where_it_has_gone(moved: Looking) -> None:
    found = moved.get("diff", file=b"src/old.py")
    assert found["moved"] == other("lib/new.py", compared=False)
    assert (found["new"]["exists"], {line[0] for line in lines(found)}) == (False, {"-"})


def test_the_rows_are_what_they_were(moved: Looking) -> None:
    found = moved.get("changes")
    assert [(row["path"], row["change"], row["hunks"]) for row in found["rows"]] == [
        ("lib/new.py", "added", True),
        ("src/old.py", "deleted", False),
    ]
    assert (found["summary"]["added"], found["summary"]["deleted"], found["summary"]["renamed"]) == (1, 1, 0)


def test_nothing_else_is_told_as_moved(place: Place) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        place.write(name, "".join(f"{name} {number}\n" for number in range(40)))
    looking = staged(place, "mv a.txt moved.txt; rm b.txt; echo more >> c.txt; echo new > d.txt")
    for path in (b"moved.txt", b"b.txt", b"c.txt", b"d.txt"):
        assert looking.get("diff", file=path).get("moved") is None


def test_other_states_are_compared_path_by_path(moved: Looking) -> None:
    assert moved.get("diff", file=b"lib/new.py", old="now").get("moved") is None


def test_what_the_project_has_changed_meanwhile_is_shown_beside_the_original(place: Place, moved: Looking) -> None:
    before = moved.get("diff", file=b"lib/new.py")
    tick()
    place.write("src/old.py", TEXT + "mine\n")
    found = moved.get("diff", file=b"lib/new.py")
    assert found["moved"]["compared"] and found["hunks"] == before["hunks"]


@pytest.mark.parametrize(("old", "new"), [("old.txt", "server.pem"), ("old.txt", ".env"), ("key.secret", "new.txt")])
def test_a_secret_is_not_shown_as_the_other_end(place: Place, old: str, new: str) -> None:
    """Also not where the policy has come to call it one since."""
    place.write(old, TEXT)
    looking = staged(place, f"mv {old} {new}; echo more >> {new}", Settings(secrets_mask=(b"*.secret",)))
    found = looking.get("diff", file=new.encode())
    assert found.get("moved") is None and not found["old"]["exists"]


def test_a_secret_that_was_none_when_it_was_looked_for(place: Place) -> None:
    place.write("key.txt", TEXT)
    looking = staged(place, "mv key.txt new.txt; echo more >> new.txt")
    assert looking.get("diff", file=b"new.txt")["moved"]["path"] == "key.txt"
    server, hidden = looking._asked.server, Settings(secrets_mask=(b"key.txt",))
    server.environment = server.environment._replace(open=lambda _project: (place.session(hidden), ()))
    assert looking.get("diff", file=b"new.txt").get("moved") is None


def test_what_has_to_be_named_is_shown_as_new(place: Place) -> None:
    place.write("hook", TEXT)
    looking = staged(place, "mkdir -p .git/hooks; mv hook .git/hooks/post-commit; echo more >> .git/hooks/post-commit")
    assert looking.get("diff", file=b".git/hooks/post-commit").get("moved") is None


def test_pages_of_a_long_one(place: Place) -> None:
    place.write("old.txt", "".join(f"line {number}\n" for number in range(4000)))
    looking = staged(place, "sed 's/0$/zero/' old.txt > new.txt; rm old.txt")
    first = looking.get("diff", file=b"new.txt", lines=500)
    assert first["moved"]["compared"] and first["following"]
    asked = {"file": b"new.txt", "first": first["following"], "version": first["version"]}
    assert looking.get("diff", **asked)["first"] == first["following"]
    assert looking.refused("diff", **asked, as_new=True)[:2] == (409, "moved")


def test_names_and_pictures_of_any_kind(place: Place) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0" + bytes(range(256)) * 40
    place.write("old.png", png)
    looking = staged(
        place, 'mv old.png "$(printf \'n\\303\\266w\\377.png\')"; for one in *.png; do printf more >> "$one"; done'
    )
    found = looking.get("diff", file=b"n\xc3\xb6w\xff.png")
    assert found["moved"]["path"] == "old.png" and found["kind"] == "image"
    assert (found["old"]["image"], found["new"]["image"]) == ("image/png", "image/png")
    back = looking.get("diff", file=b"old.png")["moved"]
    assert (back["id"], back["path"]) == (id_of(b"n\xc3\xb6w\xff.png"), "nöw\\xff.png")
