"""A fork that has changed a second project and the home, by the page's API: one list, one apply, one undo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pageside import Json, PageSide, pick

from box import if_namespaces
from conftest import Place, listing
from mudroom.ext.web.api.endpoint import id_of

pytestmark = if_namespaces
NUMBERS = "".join(f"line {number}\n" for number in range(1, 41))
SCRIPT = """
echo p > p; sed -i 's/line 5$/line five/; s/line 30$/line thirty/' ../lib/code
echo b >> ~/.bashrc; mkdir -p ~/.tool; echo t > ~/.tool/tool
"""


class PartsSide(PageSide):
    def __init__(self, place: Place, lib: Path) -> None:
        super().__init__(place)
        roots = [os.fsencode(place.home), os.fsencode(lib)]
        self.fork = place.session().run([b"sh", b"-c", SCRIPT.encode()], roots=roots).fork

    @property
    def project(self) -> str:
        """The first one's."""
        own = str(self.place.project)
        return "/projects/" + next(str(row["id"]) for row in self.get("/projects") if row["path"] == own)

    @property
    def at(self) -> str:
        return f"{self.project}/forks/{self.fork}"

    def changes(self) -> Json:
        found: Json = self.get(self.at + "/changes")
        return found


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text(NUMBERS)
    (place.home / ".bashrc").write_text("a\n")
    return path


@pytest.fixture
def page(place: Place, lib: Path) -> PartsSide:
    return PartsSide(place, lib)


def test_rows_differences_and_bytes(place: Place, lib: Path, page: PartsSide) -> None:
    bashrc, code = f"{place.home}/.bashrc", f"{lib}/code"
    changes = page.changes()
    assert [row["path"] for row in changes["rows"]] == ["p", bashrc, f"{place.home}/.tool/tool", code]
    assert changes["roots"] == [{"path": str(place.home), "label": "your home"}, {"path": str(lib), "label": str(lib)}]
    assert changes["fingerprint"].count("+") == 2
    assert (changes["summary"]["added"], changes["summary"]["modified"]) == (2, 2)
    row = changes["rows"][1]
    shown = page.get(f"{page.at}/diff?file={row['id']}&stamp={row['stamp']}")
    assert (shown["path"], shown["kind"], shown["hunks"][0]["lines"][-1][3]) == (bashrc, "text", "b")
    lines = page.get(f"{page.at}/text?file={id_of(code.encode())}&side=new&first=5&count=1")["lines"]
    assert lines[0][3] == "line five"
    assert page.get(f"{page.at}/standing?reviewed={changes['fingerprint'].replace('+', '%2B')}")["moved"] is False
    other = id_of(os.fsencode(place.root / "elsewhere"))
    assert "has no change" in page.get(f"{page.at}/diff?file={other}", status=404)["error"]


def test_what_is_ticked_lands_and_is_taken_back(place: Place, lib: Path, page: PartsSide) -> None:
    before = listing(place.home), listing(lib), listing(place.project)
    landed = page.apply(page.fork, [pick(f"{place.home}/.bashrc"), pick(f"{lib}/code", blocks=[1])],
                        reviewed=page.changes()["fingerprint"])  # fmt: skip
    assert (landed["state"], landed["written"], landed["remaining"]) == ("applied", 2, 4)
    assert landed["summary"] == f"0 written; in your home: 1 written; in {lib}: 1 written"
    assert (lib / "code").read_text() == NUMBERS.replace("line 30\n", "line thirty\n")
    assert (place.home / ".bashrc").read_text() == "a\nb\n"
    assert not (place.project / "p").exists()
    undone = page.landed(page.project + "/undo", {})
    assert "; in your home: 1 brought back, 0 removed" in undone["summary"]
    assert f"; in {lib}: 1 brought back, 0 removed" in undone["summary"]
    assert (listing(place.home), listing(lib), listing(place.project)) == before
    whole = page.apply(page.fork, reviewed=page.changes()["fingerprint"])
    assert (whole["written"], whole["remaining"]) == (4, 0)
    assert (place.home / ".tool/tool").exists()


def test_nothing_lands_if_a_part_has_moved(place: Place, lib: Path, page: PartsSide) -> None:
    reviewed = page.changes()["fingerprint"]
    (_home, (_tied, there)) = place.session().changes.parts(page.fork)
    there.forks.files(page.fork).write(b"code", b"other\n")
    there.forks.flush(page.fork)
    answer = page.post(page.at + "/apply", {"reviewed": reviewed}, status=409)
    assert answer["code"] == "moved"
    gone = page.ask("DELETE", f"{page.at}?reviewed={reviewed.replace('+', '%2B')}", status=409)
    assert gone["code"] == "moved"
    own = reviewed.partition("+")[0]
    assert page.ask("DELETE", f"{page.at}?reviewed={own}", status=409)["code"] == "moved", "it has shown one project"
    page.ask("DELETE", f"{page.at}?reviewed={page.changes()['fingerprint'].replace('+', '%2B')}")
    assert not listing(place.state / "vaults").keys() & {f"forks/{page.fork}"}


def test_a_conflict_in_the_home(place: Place, page: PartsSide) -> None:
    (place.home / ".bashrc").write_text("mine\n")
    path = f"{place.home}/.bashrc"
    changes = page.changes()
    assert (changes["conflicts"], changes["drift"], changes["drifted"][0]["path"]) == (1, 1, path)
    assert [row["path"] for row in changes["rows"] if "conflict" in row["flags"]] == [path]
    (listed,) = page.get(page.at + "/conflicts")["conflicts"]
    one = page.get(f"{page.at}/conflict?file={listed['id']}")
    assert (one["path"], one["ours"]["path"], one["places"]) == (path, path, 1)
    decided = page.post(page.at + "/decide", {"id": one["id"], "versions": one["versions"], "take": "theirs"})
    assert decided["conflict"]["decided"] and decided["conflict"]["path"] == path
    landed = page.apply(page.fork, reviewed=page.changes()["fingerprint"])
    assert landed["conflicts"] == []
    assert (place.home / ".bashrc").read_text() == "a\nb\n"


def test_a_conflict_that_is_left_is_named(place: Place, page: PartsSide) -> None:
    (place.home / ".bashrc").write_text("mine\n")
    landed = page.apply(page.fork, reviewed=page.changes()["fingerprint"])
    assert (landed["state"], landed["conflicts"][0]["path"]) == ("conflicts", f"{place.home}/.bashrc")
    assert (place.home / ".bashrc").read_text() == "mine\n"


def test_projects_and_cards(place: Place, lib: Path, page: PartsSide) -> None:
    rows = {row["path"]: row for row in page.get("/projects")}
    assert set(rows) == {str(place.project), str(lib)}, "the home is no project"
    assert (rows[str(lib)]["forks"], rows[str(lib)]["notices"]) == (0, []), "a part is counted with the whole"
    (notice,) = rows[str(place.project)]["notices"]
    assert (notice["kind"], notice["files"]) == ("finished", 4)
    (fork,) = page.get(page.project)["forks"]
    assert set(fork["also_in"]) == {"your home", str(lib)}
    assert (fork["summary"]["added"], fork["fingerprint"].count("+")) == (2, 2)
    there = next(vault for vault in os.listdir(place.state / "vaults") if vault.startswith("lib-"))
    (part,) = page.get(f"/projects/{there}")["forks"]
    assert part["part_of"] == {"project": page.project.rpartition("/")[2], "path": str(place.project)}
