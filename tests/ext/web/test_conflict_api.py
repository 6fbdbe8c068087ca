"""Conflicts by the page's API: looked at, decided in every way, and then applied."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from pageside import PageSide, changed, pick

from conftest import Place, listing, tick
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.ext.web.api.region import BYTES, LINES, REGIONS
from satellites import needs

TEXT = "".join(f"line {number}\n" for number in range(1, 31))
FORK = "agent-1"


@pytest.fixture
def page(place: Place) -> PageSide:
    return PageSide(place)


def edit(text: str, **lines: str) -> str:
    """With these lines, by their number, something else."""
    found = text.splitlines(keepends=True)
    for name, line in lines.items():
        found[int(name[1:]) - 1] = line
    return "".join(found)


class Two:
    """A fork and a project that have both changed ``f``."""

    def __init__(self, place: Place, page: PageSide) -> None:
        self.place, self.page = place, page

    def make(self, base: str | bytes, ours: str | bytes, theirs: str | bytes, name: str = "f") -> None:
        data = theirs.encode() if isinstance(theirs, str) else theirs
        self.place.write(name, base)
        (self.place.root / "theirs").write_bytes(data)
        octal = "".join(f"\\{byte:03o}" for byte in data)
        changed(self.place, f"printf '{octal}' > '{name}'", FORK)
        tick()
        self.place.write(name, ours)

    def path(self, end: str) -> str:
        return f"{self.page.project}/forks/{FORK}/{end}"

    def look(self, name: str = "f") -> dict[str, Any]:
        found: dict[str, Any] = self.page.get(self.path(f"conflict?file={pick(name)['id']}"))
        return found

    def decide(self, take: str, name: str = "f", *, status: int = 200, **more: Any) -> dict[str, Any]:
        body = {"versions": more.pop("versions", None) or self.look(name)["versions"], "take": take, **pick(name)}
        found: dict[str, Any] = self.page.post(self.path("decide"), {**body, **more}, status=status)
        return found

    def apply(self, name: str = "f") -> bytes:
        landed = self.page.apply(FORK)
        assert (landed["state"], landed["conflicts"]) == ("applied", [])
        return (self.place.project / name).read_bytes()


@pytest.fixture
def two(place: Place, page: PageSide) -> Two:
    return Two(place, page)


@pytest.fixture
def places(two: Two) -> Two:
    """Two places that conflict, one that only the project and one that only the fork has changed."""
    two.make(
        TEXT,
        edit(TEXT, l2="ours 2\n", l12="only ours\n", l25="ours 25\n"),
        edit(TEXT, l2="theirs 2\n", l18="only theirs\n", l25="theirs 25\n"),
    )
    return two


def test_what_there_is(places: Two) -> None:
    (row,) = places.page.get(places.path("conflicts"))["conflicts"]
    assert (row["path"], row["decided"], row["places"], row["regions"]) == ("f", False, 2, None)
    assert row["reason"] == "also changed in the project, in the same lines, at 2 places"
    assert {row[side]["side"]["lines"] for side in ("base", "ours", "theirs")} == {30}
    assert row["ours"]["side"]["mode"] == "0644"


def test_the_regions_are_the_whole_file(places: Two) -> None:
    regions = places.look()["regions"]
    assert [(one["kind"], one["number"], one["hidden"]) for one in regions] == [
        ("same", 0, 0), ("conflict", 1, 0), ("same", 0, 3), ("ours", 0, 0), ("same", 0, 0), ("theirs", 0, 0),
        ("same", 0, 0), ("conflict", 2, 0), ("same", 0, 2),
    ]  # fmt: skip
    conflict = regions[1]
    assert [line[:4] for line in conflict["base"]] == [["-", 2, 0, "line 2"]]
    assert [line[:4] for line in conflict["ours"]] == [["+", 0, 2, "ours 2"]]
    assert [line[:4] for line in conflict["theirs"]] == [["+", 0, 2, "theirs 2"]]
    assert conflict["texts"] == ["line 2\n", "ours 2\n", "theirs 2\n"]
    assert [line[3] for line in regions[2]["ours"]] == [f"line {number}" for number in (3, 4, 5, 9, 10, 11)]
    assert [line[2] for line in regions[2]["ours"]] == [3, 4, 5, 9, 10, 11]


@needs("merging")
def test_a_rule_is_told_and_taken_on_request(two: Two) -> None:
    two.make("import a\n", "import a\nimport b\n", "import a\nimport c\n", "m.py")
    assert two.look("m.py")["rule"] == "union of imports"
    decided = two.decide("rule", "m.py")["conflict"]
    assert (decided["decided"], decided["how"]) == (True, "merged by rule: union of imports")
    assert two.apply("m.py") == b"import a\nimport b\nimport c\n"


@needs("merging")
def test_a_lock_file_is_told_with_its_command(two: Two) -> None:
    two.make("", "version = 1\n", "version = 2\n", "uv.lock")
    told = two.look("uv.lock")
    assert (told["rule"], told["command"], told["how"]) == ("", "uv lock", "")
    assert two.decide("rule", "uv.lock", status=400)["error"] == "no rule merges uv.lock"


def test_what_no_rule_merges(places: Two) -> None:
    assert places.look()["rule"] == ""
    assert places.decide("rule", status=400)["error"] == "no rule merges f"


@pytest.mark.parametrize(
    "lines",
    [
        "".join(f"{number}\nbetween\n" for number in range(REGIONS // 2 + 1)),
        "".join(f"{number}\n" * 1000 + "between\n" for number in range(LINES // 3000 + 1)),
        ("x" * 250_000 + "\nbetween\n") * (BYTES // 750_000 + 1),
    ],
    ids=["places", "lines", "bytes"],
)
def test_what_is_too_much_to_be_shown_place_by_place(two: Two, lines: str) -> None:
    two.place.write("f", lines)
    changed(two.place, "sed -i '/between/!s/^/theirs /' f", FORK)
    tick()
    two.place.write("f", "".join(line if "b" in line else f"ours {line}" for line in lines.splitlines(keepends=True)))
    looked = two.look()
    assert (looked["places"], looked["regions"]) == (lines.count("between"), None)
    two.decide("regions", regions=["theirs"] * looked["places"])
    shown = two.look()["result"]
    assert (shown["choices"], bool(shown["lines"])) == (None, True)
    assert two.apply().startswith(b"theirs ")


def test_one_conflict_stays_and_the_rest_is_applied(places: Two) -> None:
    changed(places.place, "echo new > other", FORK)
    landed = places.page.apply(FORK)
    assert (landed["state"], landed["written"], landed["remaining"]) == ("conflicts", 1, 1)
    assert [one["path"] for one in landed["conflicts"]] == ["f"]
    assert (places.place.project / "other").exists()
    assert b"ours 2" in (places.place.project / "f").read_bytes()


@pytest.mark.parametrize(
    ("take", "second", "last"),
    [
        ("ours", "ours 2\n", "ours 25\n"),
        ("theirs", "theirs 2\n", "theirs 25\n"),
        ("both", "ours 2\ntheirs 2\n", "ours 25\ntheirs 25\n"),
    ],
)
def test_as_a_whole(places: Two, take: str, second: str, last: str) -> None:
    decided = places.decide(take)
    assert (decided["conflict"]["decided"], decided["conflict"]["places"]) == (True, 2)
    found = places.apply().decode()
    if take == "ours":
        assert found == edit(TEXT, l2=second, l12="only ours\n", l25=last)
    elif take == "theirs":
        assert found == edit(TEXT, l2=second, l18="only theirs\n", l25=last)
    else:
        assert found == edit(TEXT, l2=second, l12="only ours\n", l18="only theirs\n", l25=last)


def test_place_by_place(places: Two) -> None:
    decided = places.decide("regions", regions=["theirs", ["by", "hand"]])
    assert decided["conflict"]["take"] == "content"
    assert places.apply().decode() == edit(
        TEXT, l2="theirs 2\n", l12="only ours\n", l18="only theirs\n", l25="by\nhand\n"
    )


def test_gone(places: Two) -> None:
    places.decide("delete")
    landed = places.page.apply(FORK)
    assert (landed["state"], landed["removed"]) == ("applied", 1)
    assert not (places.place.project / "f").exists()


def test_taken_back(places: Two) -> None:
    assert places.decide("undecide", status=400)["error"] == "nothing is decided about f"
    places.decide("theirs")
    assert places.decide("undecide")["conflict"]["decided"] is False
    assert places.page.apply(FORK)["state"] == "conflicts"


def test_crlf_stays(two: Two) -> None:
    base = "one\r\ntwo\r\nthree\r\n"
    two.make(base, base.replace("two", "ours"), base.replace("two", "theirs"))
    two.decide("regions", regions=[["ours", "new", "theirs"]])
    assert two.apply() == b"one\r\nours\r\nnew\r\ntheirs\r\nthree\r\n"


def test_an_end_without_a_newline_stays(two: Two) -> None:
    two.make("one\ntwo", "one\nours", "one\ntheirs")
    two.decide("regions", regions=[["edited", "twice"]])
    assert two.apply() == b"one\nedited\ntwice"


def test_nothing_at_a_place(two: Two) -> None:
    two.make("one\ntwo\nthree\n", "one\nours\nthree\n", "one\ntheirs\nthree\n")
    two.decide("regions", regions=[[]])
    assert two.apply() == b"one\nthree\n"


def test_both_of_what_cannot_be_merged(two: Two) -> None:
    two.make(b"a\0base", b"a\0ours", b"a\0theirs", "f.bin")
    looked = two.look("f.bin")
    assert (looked["places"], looked["regions"]) == (None, None)
    assert two.decide("regions", "f.bin", status=400)["error"] == "f.bin can only be decided as a whole"
    assert two.decide("both", "f.bin")["beside"] == "f.theirs.bin"
    assert two.apply("f.bin") == b"a\0ours"
    assert (two.place.project / "f.theirs.bin").read_bytes() == b"a\0theirs"


def test_bytes_that_are_no_text(two: Two) -> None:
    two.make(b"a\xff\n", b"b\xff\n", b"c\xff\n")
    assert two.look()["places"] is None
    two.decide("theirs")
    assert two.apply() == b"c\xff\n"


def test_deleted_on_one_side(two: Two) -> None:
    two.place.write("f", "old\n")
    changed(two.place, "echo new > f", FORK)
    tick()
    (two.place.project / "f").unlink()
    looked = two.look()
    assert (looked["ours"]["side"]["exists"], looked["theirs"]["side"]["exists"]) == (False, True)
    assert two.decide("both", status=400)["error"].startswith("only one version of f can be kept: ")
    two.decide("theirs")
    assert two.apply() == b"new\n"


def test_a_secret_is_shown_to_nobody(two: Two) -> None:
    changed(two.place, "echo theirs > .env", FORK)
    tick()
    two.place.write(".env", "TOKEN=swordfish\n")
    looked = two.look(".env")
    assert (looked["secret"], looked["regions"], looked["places"]) == (True, None, None)
    assert "swordfish" not in repr(looked)
    assert two.decide("regions", ".env", status=400)["error"] == ".env can only be decided as a whole"


def test_a_secret_under_another_name_on_one_side_is_shown_to_nobody(two: Two) -> None:
    two.place.write("notes", TEXT)
    changed(two.place, "sed -i 's/^line 5$/theirs/' notes", FORK)
    tick()
    place = (two.place.project / "notes").rename(two.place.project / ".env")
    place.write_text(edit(TEXT, l5="TOKEN=swordfish\n"))
    looked = two.look("notes")
    assert (looked["ours"]["path"], looked["secret"], looked["regions"]) == (".env", True, None)
    listed = two.page.get(two.path("conflicts"))
    assert "swordfish" not in repr(looked) + repr(listed)
    assert two.decide("regions", "notes", status=400)["error"] == "notes can only be decided as a whole"


@pytest.mark.parametrize(
    ("regions", "error"),
    [
        (["ours"], "there are 2 places to decide, and 1 were decided"),
        (["ours"] * 3, "there are 2 places to decide, and 3 were decided"),
        (["ours", ["two\nlines"]], "a line has no newline in it"),
    ],
)
def test_decisions_that_are_none(places: Two, regions: list[Any], error: str) -> None:
    assert places.decide("regions", regions=regions, status=400)["error"] == error
    assert places.look()["decided"] is False


def test_half_a_character_is_no_text(places: Two) -> None:
    body = (
        f'{{"id": "{pick("f")["id"]}", "versions": "{places.look()["versions"]}", "take": "regions", '
        '"regions": ["ours", ["\\ud800"]]}'
    )
    status, found = places.page.try_("POST", places.path("decide"), body.encode())
    assert (status, found["code"]) == (400, "bad-request")


def test_what_is_in_no_conflict(places: Two) -> None:
    looked = places.look()
    for name in ("other", "../f", "/etc/passwd"):
        assert places.decide("ours", name, versions=looked["versions"], status=404)["code"] == "not-found"


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_side_that_has_moved(places: Two, side: str) -> None:
    versions = places.look()["versions"]
    tick()
    if side == "ours":
        places.place.write("f", edit(TEXT, l2="again\n"))
    else:
        changed(places.place, "sed -i s/theirs/again/ f", FORK)
    refused = places.decide("theirs", versions=versions, status=409)
    assert (refused["code"], refused["error"]) == (
        "moved", "f has changed since it was reviewed; nothing was decided",
    )  # fmt: skip
    assert places.look()["decided"] is False


def test_the_second_tab_is_told_of_the_first(places: Two) -> None:
    versions = places.look()["versions"]
    ready = threading.Barrier(4)

    def decide(number: int) -> tuple[int, str]:
        ready.wait()
        body = {"versions": versions, "take": ("ours", "theirs")[number % 2], **pick("f")}
        status, found = places.page.try_("POST", places.path("decide"), body)
        return status, found.get("code", "")

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(decide, range(4)))
    assert found == [(200, ""), (409, "decided"), (409, "decided"), (409, "decided")]


def test_while_a_command_runs_nobody_waits(places: Two) -> None:
    fork = places.place.session().vault.fork(FORK)
    versions = places.look()["versions"]
    with fork.lock("a test"):
        fork.begin(CommandStart(1))
        for answer in (
            places.page.get(places.path("conflicts"), status=409),
            places.decide("ours", versions=versions, status=409),
        ):
            assert (answer["code"], answer["error"]) == ("busy", f"a command is running in {FORK}")


# --- how a fork stands ---


def standing(two: Two, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = two.page.get(two.path("standing" + query))
    return found


def test_a_project_that_stays_as_it_is(two: Two) -> None:
    two.place.write("f", "old\n")
    two.place.write("d/gone", "x")
    changed(two.place, "echo new > f; rm -r d; mkdir -p n/m; echo x > n/m/x; ln -s f l", FORK)
    found = standing(two)
    assert (found["drift"], found["drifted"], found["moved"], found["running"]) == (0, [], False, False)
    assert found["conflicts"] is None
    assert standing(two, "?conflicts=true")["conflicts"] == 0
    assert standing(two, f"?reviewed={found['fingerprint']}")["moved"] is False
    changed(two.place, "echo newer > f", FORK)
    assert standing(two, f"?reviewed={found['fingerprint']}")["moved"] is True


def test_a_file_that_the_fork_has_made_a_directory_of(two: Two) -> None:
    """What is in it has its place in the project when the file goes; and not, when the project deletes that itself."""
    two.place.write("f", "old\n")
    changed(two.place, "rm f; mkdir -p f/g; echo x > f/g/x; echo x > f/x", FORK)
    assert standing(two)["drifted"] == []
    tick()
    two.place.write("f", "ours\n")
    assert [(one["path"], one["text"]) for one in standing(two)["drifted"]] == [
        ("f", "changed in the project meanwhile")
    ]


def test_what_the_project_has_changed_meanwhile(two: Two) -> None:
    for name in ("edited", "gone", "mode", "kind", "touched", "same", "sub/gone", "untouched"):
        two.place.write(name, "old\n")
    changed(two.place, "for f in edited gone mode kind touched same sub/gone untouched; do echo new > $f; done", FORK)
    changed(two.place, "mkdir -p gained n/m sub/new; for f in gained/x n/m/x sub/new/x; do echo x > $f; done", FORK)
    tick()
    project = two.place.project
    two.place.write("edited", "ours\n")
    (project / "gone").unlink()
    (project / "mode").chmod(0o755)
    (project / "kind").unlink()
    (project / "kind").mkdir()
    os.utime(project / "touched")
    two.place.write("same", "new\n")
    two.place.write("gained/x", "ours\n")
    two.place.write("n/other", "ours\n")
    (project / "sub/gone").unlink()
    (project / "sub").rmdir()
    found = standing(two)
    assert {one["path"]: one["text"] for one in found["drifted"]} == {
        "edited": "changed in the project meanwhile",
        "gained/x": "created in the project meanwhile",
        "gone": "deleted in the project meanwhile",
        "kind": "replaced in the project by an entry of another kind",
        "mode": "its permissions were changed in the project meanwhile",
        "sub/gone": "deleted in the project meanwhile",
        "sub/new": "its directory is not in the project any more",
        "sub/new/x": "its directory is not in the project any more",
    }
    assert found["drift"] == 8


def test_conflicts_are_counted_until_they_are_decided(places: Two) -> None:
    assert standing(places)["drift"] == 1
    assert standing(places, "?conflicts=true")["conflicts"] == 1
    places.decide("ours")
    assert standing(places, "?conflicts=true")["conflicts"] == 0


def test_looking_changes_nothing(places: Two) -> None:
    before = listing(places.place.project)
    standing(places, "?conflicts=true")
    places.look()
    assert listing(places.place.project) == before


def test_whoever_else_looks_at_the_fork_is_waited_for(places: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page asks for the list and for one of them at once, and neither is told of a command that is not there."""
    with ExitStack() as others:
        others.enter_context(places.place.session().vault.fork(FORK).lock("another request"))
        monkeypatch.setattr("mudroom.vault.store.fork.time.sleep", lambda _seconds: others.close())
        assert len(places.page.get(places.path("conflicts"))["conflicts"]) == 1


@pytest.mark.parametrize("how", ["snapshot", "copy"])
def test_a_fork_that_stands_on_a_copy(two: Two, how: str) -> None:
    for name in ("a", "b", "d/c"):
        two.place.write(name, "old\n")
    session = two.place.session(Settings(view="copy") if how == "copy" else None)
    session.forks.new(FORK, snapshot=how == "snapshot")
    assert session.run([b"sh", b"-c", b"echo new > a; echo new > b; rm -r d; mkdir n; echo x > n/x"], fork=FORK)
    session.close()
    assert standing(two)["drifted"] == []
    tick()
    two.place.write("b", "ours\n")
    two.place.write("d/c", "ours\n")
    assert {one["path"] for one in standing(two)["drifted"]} == {"b", "d/c"}


def test_names_that_would_act(two: Two) -> None:
    name = "<img src=x onerror=alert(1)>\u202e\n.txt"
    two.place.write(name, "old\n")
    changed(two.place, 'for f in *txt; do echo theirs > "$f"; done', FORK)
    tick()
    two.place.write(name, "ours\n")
    (row,) = two.page.get(two.path("conflicts"))["conflicts"]
    assert row["path"] == r"<img src=x onerror=alert(1)>\u{202e}\n.txt"
    assert standing(two)["drifted"][0]["path"] == row["path"]
    two.decide("theirs", name)
    assert two.page.apply(FORK)["written"] == 1
    assert (two.place.project / name).read_text() == "theirs\n"


def test_a_part_of_a_file_whose_conflict_is_decided_cannot_be_chosen(two: Two) -> None:
    two.make(TEXT, edit(TEXT, l5="ours\n"), edit(TEXT, l5="theirs\n", l25="more\n"))
    two.decide("theirs")
    seen = two.page.fingerprint(FORK)
    asked = {"reviewed": seen, "files": [pick("f", blocks=[0])]}
    refused = two.page.post(two.path("apply"), asked, status=409)
    assert refused["code"] == "decided" and "decided as a whole" in refused["error"]
    assert (two.place.project / "f").read_text() == edit(TEXT, l5="ours\n")
    landed = two.page.apply(FORK, [pick("f", blocks=[0, 1])])
    assert (landed["state"], landed["remaining"]) == ("applied", 0)
    assert (two.place.project / "f").read_text() == edit(TEXT, l5="theirs\n", l25="more\n")
