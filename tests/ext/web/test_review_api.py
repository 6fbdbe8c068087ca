"""What a fork would change, by the page's API: rows, and single files, whatever they are and are called."""

from __future__ import annotations

import os
from typing import Any

import pytest
from looking import Looking

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show_path
from mudroom.ext.review.rows import review_fork
from mudroom.ext.web import shape
from mudroom.ext.web.api import review
from mudroom.ext.web.api.endpoint import id_of
from mudroom.ext.web.api.review import FEW, MOST, row_of
from mudroom.stage.originals import collection

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0"
NAMES = [
    b"not\xffutf8",
    b"new\nline",
    b"<img src=x onerror=alert(1)>",
    "exe.\u202etxt".encode(),
    b"sp ace\t&amp;'\"",
    "日本語 😀".encode(),
    b"back\\slash",
    b"-rf",
    b"a%2Fb?c#d",
]
SHOWN = {
    NAMES[0]: "not\\xffutf8",
    NAMES[1]: "new\\nline",
    NAMES[2]: NAMES[2].decode(),
    NAMES[3]: "exe.\\u{202e}txt",
    NAMES[4]: "sp ace\\t&amp;'\"",
    NAMES[5]: NAMES[5].decode(),
    NAMES[6]: "back\\\\slash",
    NAMES[7]: "-rf",
    NAMES[8]: "a%2Fb?c#d",
}


def staged(place: Place, script: str | bytes, fork: str = "f") -> Looking:
    """What a shell script changes in a fork, and the API to look at it."""
    session = place.session()
    if session.vault.find(fork) is None:
        session.forks.new(fork)
    done = session.run([b"sh", b"-ec", script.encode() if isinstance(script, str) else script], fork=fork)
    assert done.exit_code == 0, done.stderr
    return Looking(place)


def rows(looking: Looking) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in looking.get("changes")["rows"]}


def lines(found: dict[str, Any]) -> list[str]:
    return [line[0] + line[3] for hunk in found["hunks"] for line in hunk["lines"]]


def test_every_kind_of_change_is_a_row(place: Place) -> None:
    place.write("edited", "one\ntwo\nthree\n")
    place.write("gone", "a\nb\n")
    place.write("run.sh", "true\n")
    place.write("was-file", "x")
    place.write("old/name", "so much that it is found again\n")
    place.write("old/stays", "")
    looking = staged(
        place,
        "echo TWO > t; sed -i s/two/TWO/ edited; rm gone; chmod +x run.sh; rm was-file; ln -s /etc/passwd was-file;"
        "mv old/name new-name; mkdir empty full; echo x > full/of; printf '\\0' > binary; echo all: > Makefile; rm t",
    )
    found = rows(looking)
    told = {path: (row["change"], row["type"], row["added"], row["removed"]) for path, row in found.items()}
    assert told == {
        "Makefile": ("added", "file", 1, 0),
        "binary": ("added", "file", 0, 0),
        "edited": ("modified", "file", 1, 1),
        "empty": ("added", "directory", 0, 0),
        "full/of": ("added", "file", 1, 0),
        "gone": ("deleted", "file", 0, 2),
        "new-name": ("renamed", "file", 0, 0),
        "run.sh": ("modified", "file", 0, 0),
        "was-file": ("modified", "symlink", 0, 0),
    }
    assert found["run.sh"]["mode"] == ["0644", "0755"] and found["run.sh"]["flags"] == ["executes-later", "mode"]
    assert found["new-name"]["source"] == "old/name"
    assert found["Makefile"]["flags"] == ["executes-later"]
    assert found["binary"]["flags"] == ["binary"]
    assert found["was-file"]["flags"] == ["type", "leads-outside"]
    assert (found["was-file"]["target"], found["was-file"]["new_mode"]) == ("/etc/passwd", "")
    assert [found[path]["new_mode"] for path in ("Makefile", "empty", "gone", "run.sh")] == ["0644", "0755", "", "0755"]
    assert found["Makefile"]["mode"] is None
    assert {path for path, row in found.items() if row["hunks"]} == {"Makefile", "edited", "full/of", "run.sh"}


def test_what_is_ignored_is_tagged_by_the_projects_own_files(place: Place) -> None:
    place.write(".gitignore", "*.log\n/build/\n!keep.log\n")
    place.write("sub/.gitignore", "local\n")
    looking = staged(
        place,
        "mkdir build sub/deep; touch a.log keep.log build/x sub/local sub/deep/local other; echo other > .gitignore",
    )
    found = rows(looking)
    ignored = {path for path, row in found.items() if "ignored" in row["flags"]}
    assert ignored == {"a.log", "build/x", "sub/local", "sub/deep/local"}


def test_large_is_told_without_reading(place: Place) -> None:
    looking = staged(place, "head -c 1100000 /dev/zero > zeros; seq 6000 > many; seq 10 > few")
    tagged = {path: "large" in row["flags"] for path, row in rows(looking).items()}
    assert tagged == {"zeros": True, "many": True, "few": False}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_and_asked_for_by_their_bytes(place: Place, name: bytes) -> None:
    looking = staged(place, b"echo text > \"$(printf '%s_' '" + name.replace(b"'", b"'\\''") + b"' | sed 's/_$//')\"")
    (row,) = looking.get("changes")["rows"]
    assert (row["path"], row["id"]) == (SHOWN[name], id_of(name))
    found = looking.get("diff", file=row["id"])
    assert (found["path"], lines(found)) == (SHOWN[name], ["+text"])
    assert looking.get("text", file=row["id"], side="new")["lines"][0][3] == "text"
    sent = looking.get("blob", file=row["id"], side="new")
    assert sent.data == b"text\n"
    assert sent.headers["content-disposition"].isascii() and "\n" not in sent.headers["content-disposition"]


def test_a_modified_text_with_words_and_blocks(place: Place) -> None:
    place.write("a.py", "import os\n\n\ndef area(a, b):\n    # size\n    # of it\n    # all\n    return a * b\n")
    looking = staged(place, "sed -i 's/a \\* b/a * b * c/; 1s/os/sys/' a.py; chmod 755 a.py")
    found = looking.get("diff", file=b"a.py", context=1)
    assert (found["kind"], found["language"], found["blocks"], found["total"]) == ("text", "python", 2, 2)
    assert (found["divisible"], found["following"], found["flags"]) == (
        True,
        None,
        ["executes-later", "mode", "content"],
    )
    assert found["old"] == found["new"] | {"mode": "0644", "size": found["old"]["size"]}
    assert (found["old"]["lines"], found["new"]["mode"]) == (8, "0755")
    first, second = found["hunks"]
    assert lines({"hunks": [first]}) == ["-import os", "+import sys", " "]
    assert (first["blocks"], second["blocks"], second["section"]) == ([0], [1], "def area(a, b):")
    assert [second[key] for key in ("old_start", "old_lines", "new_start", "new_lines")] == [7, 2, 7, 2]
    removed, added = second["lines"][1:]
    assert (removed[:5], added[:5]) == (["-", 8, 0, "    return a * b", 1], ["+", 0, 8, "    return a * b * c", 1])
    assert [added[3][start:end] for start, end in added[5]] == [" * c"]


def test_spans_are_in_utf16(place: Place) -> None:
    place.write("a", "😀 one and more\n")
    looking = staged(place, "printf '\\360\\237\\230\\200 two and more\\n' > a")
    _removed, added = looking.get("diff", file=b"a")["hunks"][0]["lines"]
    assert added[5] == [[3, 6]]


def test_what_would_act_is_told(place: Place) -> None:
    place.write("a", "")
    looking = staged(place, r"printf 'if admin\342\200\256 {\r\n\033[2Jx\n\357\273\277bom\n\377' > a")
    found = looking.get("diff", file=b"a")
    assert lines(found) == ["+if admin\\u{202e} {\\r", "+\\x1b[2Jx", "+\\u{feff}bom", "+\\xff"]
    assert [line[6] for line in found["hunks"][0]["lines"]] == [[[8, 16], [18, 20]], [[0, 4]], [[0, 8]], [[0, 4]]]
    assert [line[8] for line in found["hunks"][0]["lines"]] == [True, True, True, False]


def test_line_ends(place: Place) -> None:
    place.write("a", "one\r\ntwo\r\nlast")
    looking = staged(place, "printf 'one\\ntwo\\r\\nlast\\n' > a")
    found = looking.get("diff", file=b"a")
    assert lines(found) == ["-one\\r", "+one", " two\\r", "-last", "+last"]
    assert [line[8] for line in found["hunks"][0]["lines"]] == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("before", "script", "kind", "old", "new"),
    [
        (None, "ln -s '/etc/<b>\n' x", "link", "", "/etc/<b>\\n"),
        ("text\n", "rm x; ln -s a x", "link", "", "a"),
        ("text\n", "rm x; mkdir x; touch x/y", "directory", "", ""),
        ("text\n", "printf '\\0' > x", "binary", "", ""),
        ("", "printf 'a\\n' > x", "text", "", ""),
        ("a\n", ": > x", "text", "", ""),
        (None, ": > x", "text", "", ""),
        ("a\n", "rm x", "text", "", ""),
        (None, "mkdir x", "directory", "", ""),
        (None, "head -c 5000000 /dev/zero | tr '\\0' a > x", "large", "", ""),
        (None, "yes | head -n 250001 > x", "large", "", ""),
        (None, "yes | head -n 250000 > x", "text", "", ""),
    ],
)
def test_kinds(place: Place, before: str | None, script: str, kind: str, old: str, new: str) -> None:
    if before is not None:
        place.write("x", before)
    looking = staged(place, script)
    found = looking.get("diff", file=b"x")
    assert (found["kind"], found["old"]["target"], found["new"]["target"]) == (kind, old, new)
    assert (found["old"]["exists"], found["new"]["exists"]) == (before is not None, script != "rm x")
    assert (found["hunks"] == []) == (kind != "text" or (before is None and script == ": > x"))


def test_a_file_that_was_something_else_is_shown(place: Place) -> None:
    """All of it has come: nothing lands whose lines nobody could read."""
    place.write("d/x", "in it\n")
    (place.project / "link").symlink_to("d/x")
    looking = staged(place, "rm -r d link; echo evil > d; echo evil > link")
    for path, was, target in ((b"d", "directory", ""), (b"link", "symlink", "d/x")):
        found = looking.get("diff", file=path)
        assert (found["kind"], found["old"]["type"], found["old"]["target"]) == ("text", was, target)
        assert [(line[0], line[3]) for hunk in found["hunks"] for line in hunk["lines"]] == [("+", "evil")]
        assert not found["divisible"], "it comes as a whole"
        assert looking.refused("text", file=path, side="old")[0] in (400, 404, 409)


def test_a_deleted_file_is_shown_and_not_divisible(place: Place) -> None:
    place.write("x", "a\nb\n")
    found = staged(place, "rm x").get("diff", file=b"x")
    assert (lines(found), found["blocks"], found["divisible"]) == (["-a", "-b"], 1, False)


def test_a_renamed_file_is_the_same_on_both_sides(place: Place) -> None:
    place.write("x", "a\nb\n", mode=0o755)
    looking = staged(place, "mv x y")
    found = looking.get("diff", file=b"y")
    assert (found["kind"], found["hunks"], found["old"]["size"], found["old"]["mode"]) == ("text", [], 4, "0755")
    assert looking.get("text", file=b"y", side="old")["total"] == 2
    assert looking.refused("diff", file=b"x")[0] == 404


def test_pictures(place: Place) -> None:
    place.write("a.png", PNG + b"old")
    looking = staged(place, "printf new >> a.png; printf '<svg/>' > a.svg; printf '<script>alert(1)</script>' > b.png")
    found = looking.get("diff", file=b"a.png")
    assert (found["kind"], found["old"]["image"], found["new"]["image"]) == ("image", "image/png", "image/png")
    sent = {side: looking.get("blob", file=b"a.png", side=side) for side in ("old", "new")}
    assert {side: (raw.data, raw.media_type) for side, raw in sent.items()} == {
        "old": (PNG + b"old", "image/png"),
        "new": (PNG + b"oldnew", "image/png"),
    }
    drawn = looking.get("diff", file=b"a.svg")
    assert (drawn["kind"], drawn["new"]["image"]) == ("text", "image/svg+xml")
    for name in (b"a.svg", b"b.png"):
        raw = looking.get("blob", file=name, side="new")
        assert "sandbox" in raw.headers["content-security-policy"]
        assert "default-src 'none'" in raw.headers["content-security-policy"]
        assert raw.headers["x-content-type-options"] == "nosniff"
    assert raw.media_type == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")


def test_what_is_too_large_is_not_sent(place: Place) -> None:
    looking = staged(
        place, "truncate -s 21M big.png; printf '\\211PNG\\r\\n\\032\\n' | dd of=big.png conv=notrunc 2>&1"
    )
    assert looking.get("diff", file=b"big.png")["kind"] == "image"
    assert looking.refused("blob", file=b"big.png", side="new")[0] == 413


def test_a_secret_of_the_project_is_never_read(place: Place) -> None:
    place.write(".env", "TOKEN=1234\n")
    place.write("a.hidden", "5678\n")
    session = place.session(Settings(secrets_show=(b".env",)))  # somebody has shown it to a command
    session.forks.new("f")
    assert session.run([b"sh", b"-c", b"echo x >> .env; echo x >> a.hidden; echo y > id_rsa"], fork="f").exit_code == 0
    looking = Looking(place, Settings(secrets_mask=(b"*.hidden",)))
    for name in (b".env", b"a.hidden"):
        found = looking.get("diff", file=name)
        assert (found["kind"], found["hunks"], found["divisible"]) == ("masked", [], False)
        for side in ("old", "new"):
            assert looking.refused("text", file=name, side=side)[0] == 404
            assert looking.refused("blob", file=name, side=side)[0] == 404
    assert lines(looking.get("diff", file=b"id_rsa")) == ["+y"], "what the fork itself has made is there to be reviewed"
    assert Looking(place, Settings(secrets_show=(b".env",))).get("diff", file=b".env")["kind"] == "text"


def test_a_secret_that_has_come_meanwhile_is_not_read_either(place: Place) -> None:
    looking = staged(place, "echo mine > .env; echo x > x")
    assert lines(looking.get("diff", file=b".env")) == ["+mine"]
    place.write(".env", "TOKEN=1234\n")
    for between in ({"old": "f", "new": "now"}, {"old": "now", "new": "f"}):
        assert looking.get("diff", file=b".env", **between)["kind"] == "masked"
        for side in ("old", "new"):
            assert looking.refused("blob", file=b".env", side=side, **between)[0] == 404


def test_what_it_was_is_not_known_any_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "DELETED_FILES", 0)
    place.write("x", "a\n")
    looking = staged(place, "rm x")
    place.write("x", "something else\n")
    found = looking.get("diff", file=b"x")
    assert (found["kind"], found["hunks"]) == ("unknown", [])
    assert looking.refused("text", file=b"x", side="old")[0] == 404


def test_pages_of_hunks(place: Place) -> None:
    place.write("x", "".join(f"{n}\n" for n in range(400)))
    looking = staged(place, "sed -i 's/0$/0!/' x")
    whole = looking.get("diff", file=b"x")
    assert (whole["total"], whole["blocks"], whole["following"]) == (40, 40, None)
    found: list[Any] = []
    first: int | None = 0
    while first is not None:
        page = looking.get("diff", file=b"x", first=first, lines=30, version=whole["version"])
        assert (page["first"], page["total"]) == (first, 40)
        found += page["hunks"]
        first = page["following"]
    assert found == whole["hunks"]
    assert [block for hunk in found for block in hunk["blocks"]] == list(range(40))


def test_another_file_than_on_the_page_before(place: Place) -> None:
    place.write("x", "a\n")
    looking = staged(place, "echo b > x")
    seen, rows_seen = looking.get("diff", file=b"x"), looking.get("changes")
    assert looking.get("changes", first=0, count=0, reviewed=rows_seen["fingerprint"])["rows"] == []
    staged(place, "echo c > x")
    assert looking.refused("diff", file=b"x", version=seen["version"])[0] == 409
    assert looking.refused("changes", reviewed=rows_seen["fingerprint"])[0] == 409
    assert lines(looking.get("diff", file=b"x")) == ["-a", "+c"]


def test_the_difference_of_another_change_than_that_of_the_list(place: Place) -> None:
    """An apply accepts the fingerprint of the list: a command can change the file, and put the listed one back."""
    place.write("d/x", "old\n")
    looking = staged(place, "rm -r d; mkdir d; echo planted > d/x")
    listed = looking.get("changes")
    (row,) = (row for row in listed["rows"] if row["path"] == "d/x")
    staged(place, "mv d e; mkdir d; echo reviewed > d/x")
    assert lines(looking.get("diff", file=b"d/x")) == ["-old", "+reviewed"]
    assert looking.refused("diff", file=b"d/x", stamp=row["stamp"])[:2] == (409, "moved")
    staged(place, "rm -r d; mv e d")
    assert looking.get("changes")["fingerprint"] == listed["fingerprint"]
    assert lines(looking.get("diff", file=b"d/x", stamp=row["stamp"])) == ["-old", "+planted"]


def test_a_file_that_is_being_changed_is_not_shown_as_what_was_collected(place: Place) -> None:
    looking = staged(place, "echo b > x")
    session = place.session()
    (upper,) = session.vault.fork("f").layered
    with open(upper + b"/x", "a") as stream:
        stream.write("more\n")
    assert looking.refused("diff", file=b"x") == (409, "moved", "x is being changed in the fork")


def test_pages_of_rows(place: Place) -> None:
    looking = staged(place, "for n in $(seq 30); do echo $n > $n; done")
    whole = looking.get("changes")
    parts = [looking.get("changes", first=first, count=7) for first in range(0, 35, 7)]
    assert [row for part in parts for row in part["rows"]] == whole["rows"]
    assert {part["total"] for part in parts} == {30}


def test_nobody_gets_more_rows_at_once_than_a_page_shows_soon(place: Place) -> None:
    looking = staged(place, f"seq {FEW + 5} | xargs touch")
    found = looking.get("changes")
    assert (len(found["rows"]), found["total"]) == (FEW, FEW + 5)
    assert len(looking.get("changes", first=FEW, count=MOST)["rows"]) == 5
    assert looking.refused("changes", count=MOST + 1)[0] == 400


def test_only_rows_that_are_asked_for_are_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = staged(place, "for n in $(seq 30); do echo $n > $n; done")
    made: list[bytes] = []

    def making(change: Change, tags: tuple[str, ...]) -> shape.RowShape:
        made.append(change.path)
        return row_of(change, tags)

    monkeypatch.setattr(review, "row_of", making)
    monkeypatch.setattr(review, "_BATCH", 4)
    paths = [show_path(change.path) for change in review_fork(place.session(), "f").rows]
    for first, count in ((5, 5), (0, 1), (29, 1), (30, 9), (4, 26), (0, 30)):
        made.clear()
        found = looking.get("changes", first=first, count=count)["rows"]
        assert [row["path"] for row in found] == paths[first : first + count]
        assert len(made) <= count + 6


def test_lines_of_either_side(place: Place) -> None:
    place.write("x", "".join(f"old {n}\n" for n in range(1, 301)))
    looking = staged(place, "seq -f 'new %g' 500 > x")
    found = looking.get("text", file=b"x", side="old", first=299, count=10)
    assert (found["first"], found["total"]) == (299, 300)
    assert [line[:4] for line in found["lines"]] == [[" ", 299, 0, "old 299"], [" ", 300, 0, "old 300"]]
    assert looking.get("text", file=b"x", side="new", first=500)["lines"][0][:4] == [" ", 0, 500, "new 500"]
    assert looking.get("text", file=b"x", side="new", first=501)["lines"] == []


def test_a_file_with_a_hole_is_not_read_to_its_end(place: Place) -> None:
    looking = staged(place, "echo first > x; truncate -s 2G x")
    found = looking.get("text", file=b"x", side="new")
    assert (found["lines"][0][3], found["total"], found["whole"]) == ("first", 2, False)
    assert found["lines"][1][7] > 100 << 20


def test_the_rest_of_a_long_line(place: Place) -> None:
    looking = staged(place, "seq -s, 100000 > x; echo end >> x")
    line = looking.get("diff", file=b"x")["hunks"][0]["lines"][0]
    text = line[3]
    while line[7]:
        found = looking.get("text", file=b"x", side="new", first=1, count=1, column=line[9])
        (line,) = found["lines"]
        text += line[3]
        if len(text) > 20_000:
            break
    assert text == ",".join(map(str, range(1, 100_001)))[: len(text)]


def test_states_of_a_fork_are_compared(place: Place) -> None:
    place.write("x", "a\n")
    looking = staged(place, "echo b > x; echo n > y")
    place.session().forks.checkpoint("f", "green")
    staged(place, "echo c > x")
    back = {"old": "f", "new": "f@green"}
    assert lines(looking.get("diff", file=b"x", **back)) == ["-c", "+b"]
    assert looking.get("diff", file=b"x", **back)["divisible"] is False
    assert looking.get("text", file=b"x", side="new", **back)["lines"][0][3] == "b"
    assert looking.get("blob", file=b"x", side="old", **back).data == b"c\n"
    assert lines(looking.get("diff", file=b"x", new="f@green")) == ["-a", "+b"]
    assert looking.refused("diff", file=b"y", **back)[0] == 404, "nothing has changed there since"
    assert looking.refused("diff", file=b"x", old="f@red")[0] == 404
    assert looking.refused("diff", file=b"x", old="other")[0] == 400


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"file": b"nothing"}, 404),
        ({"file": b"../../etc/passwd"}, 404),
        ({"file": b"/etc/passwd"}, 404),
        ({"file": b"dir"}, 404),
        ({"file": b"x\0y"}, 404),
        ({"file": "é"}, 400),
        ({"file": "A"}, 400),
        ({"file": ""}, 400),
        ({}, 400),
        ({"file": b"x", "first": -1}, 400),
        ({"file": b"x", "first": 10**30}, 400),
        ({"file": b"x", "context": "many"}, 400),
        ({"file": b"x", "lines": 0}, 400),
        ({"file": b"x", "other": 1}, 400),
    ],
)
def test_what_cannot_be_asked(place: Place, query: dict[str, Any], status: int) -> None:
    place.write("dir/unchanged", "")
    assert staged(place, "echo a > x").refused("diff", **query)[0] == status


def test_a_fork_that_is_gone(place: Place) -> None:
    looking = staged(place, "echo a > x")
    place.session().forks.discard("f")
    for what, query in (("changes", {}), ("diff", {"file": b"x"}), ("blob", {"file": b"x", "side": "new"})):
        assert looking.refused(what, **query)[0] == 404


def test_a_fork_without_changes(place: Place) -> None:
    looking = staged(place, "true")
    assert looking.get("changes")["rows"] == []
    assert looking.refused("diff", file=b"x")[0] == 404


def test_a_link_on_the_way_is_not_followed(place: Place) -> None:
    """What is read is beneath the layer, whatever the fork has put there."""
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret\n")
    place.write("d/x", "a\n")
    looking = staged(place, "echo b > d/x")
    (upper,) = place.session().vault.fork("f").layered
    os.rename(upper + b"/d", upper + b"/e")
    os.symlink(outside, upper + b"/d")
    assert looking.refused("blob", file=b"d/x", side="new")[0] in (404, 409)


@pytest.mark.usefixtures("nothing_left")
def test_directories_nested_deeper_than_calls_may_be(place: Place) -> None:
    """What a hostile command can make: paths of nearly 4096 bytes."""
    deep = "d/" * 1_500
    looking = staged(place, f"mkdir -p {deep}; echo x > {deep}f")
    found = looking.get("changes")["rows"]
    assert [row["path"] for row in found] == [deep + "f"]
    assert lines(looking.get("diff", file=found[0]["id"])) == ["+x"]
