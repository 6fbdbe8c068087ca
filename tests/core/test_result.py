"""The result as JSON: every key of the schema, and nothing lost of names that are not UTF-8."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.command.verdict import Verdict
from mudroom.core.merge.merge import Conflict
from mudroom.core.result import (
    SCHEMA,
    Denial,
    LeftFile,
    Result,
    changes_to_json,
    conflicts_to_json,
    path_fields,
    text,
    to_json,
)
from mudroom.core.tree.change import Change, Changeset, Remark
from sample import added, deleted, directory, file, modified, paths, symlink

RESULT = Result("run-7f3a", (b"npm", b"install"), 1, 0, None, False, 1.2344, Changeset())


def test_the_whole_object() -> None:
    """docs/FORMAT.md is written from this. A key may be added; none may change or go without another SCHEMA."""
    assert SCHEMA == "mudroom.result/1"
    assert to_json(RESULT) == {
        "schema": "mudroom.result/1",
        "fork": "run-7f3a",
        "command": ["npm", "install"],
        "level": 1,
        "credentials": [],
        "ran": True,
        "approval": None,
        "verdict": {"action": "allow", "classes": [], "rule": "default", "reason": "a command of the user's own"},
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "duration_ms": 1234,
        "cpu_ms": 0,
        "max_rss_kib": 0,
        "stdout": "",
        "stderr": "",
        "truncated": False,
        "checkpoint": None,
        "changes": {
            "summary": {
                "added": 0,
                "modified": 0,
                "deleted": 0,
                "renamed": 0,
                "lines_added": 0,
                "lines_removed": 0,
                "bytes": 0,
            },
            "files": [],
            "rollup": [],
            "remarks": [],
        },
        "denials": [],
        "roots": [],
        "applied": None,
        "left": {"count": 0, "bytes": 0, "files": []},
        "notes": [],
        "limits": [],
        "use": None,
    }


def test_what_a_command_that_failed_says() -> None:
    result = RESULT._replace(
        exit_code=137,
        signal=9,
        timed_out=True,
        verdict=Verdict("deny", ("destructive",), "no-rm", "because"),
        stdout=b"\xff\x00out",
        stderr=b"err",
        truncated=True,
        cpu=0.0125,
        max_rss=2048,
        notes=("working in a copy",),
    )
    found = to_json(result)
    assert (found["exit_code"], found["signal"], found["timed_out"], found["truncated"]) == (137, 9, True, True)
    assert found["verdict"] == {"action": "deny", "classes": ["destructive"], "rule": "no-rm", "reason": "because"}
    assert (found["stdout"], found["stderr"]) == ("\ufffd\0out", "err")
    assert (found["cpu_ms"], found["max_rss_kib"], found["notes"]) == (12, 2048, ["working in a copy"])


def test_what_was_refused() -> None:
    refused = (Denial("metadata", b"/home/\xff", "chown outside"), Denial("system call", b"ptrace", "why", 3))
    assert to_json(RESULT._replace(denials=refused))["denials"] == [
        {
            "kind": "metadata",
            "target": "/home/\ufffd",
            "target_base64": "L2hvbWUv/w==",
            "reason": "chown outside",
            "count": 1,
        },
        {"kind": "system call", "target": "ptrace", "reason": "why", "count": 3},
    ]


def rows(*changes: Change) -> list[dict[str, object]]:
    found: list[dict[str, object]] = changes_to_json(Changeset(changes))["files"]
    return found


def test_a_row_of_each_kind() -> None:
    plain = {"lines_added": 0, "lines_removed": 0, "binary": False, "flags": []}
    changed = modified(
        b"m", file(1), file(9), lines_added=3, lines_removed=2, flags=("executes-later",), original_known=False
    )
    assert rows(
        added(b"a", file(4), binary=True),
        deleted(b"d", symlink()),
        added(b"e", directory()),
        changed,
        Change(b"r", "renamed", None, file(6), source=b"old"),
        deleted(b"old", moved_to=b"r"),
        modified(b"x", file(5), file(5, mode=0o4755), flags=("mode",)),
    ) == [
        {"path": "a", "change": "added", "type": "file", "bytes": 4, **plain, "binary": True, "mode": [None, "0644"]},
        {"path": "d", "change": "deleted", "type": "symlink", "bytes": 0, **plain},
        {"path": "e", "change": "added", "type": "directory", "bytes": 0, **plain, "mode": [None, "0755"]},
        {
            "path": "m",
            "change": "modified",
            "type": "file",
            "lines_added": 3,
            "lines_removed": 2,
            "binary": False,
            "bytes": 9,
            "flags": ["executes-later"],
            "original_known": False,
        },
        {"path": "r", "change": "renamed", "type": "file", "bytes": 6, **plain, "from": "old", "mode": [None, "0644"]},
        {
            "path": "x",
            "change": "modified",
            "type": "file",
            "bytes": 5,
            **plain,
            "flags": ["mode"],
            "mode": ["0644", "4755"],
        },
    ]


def test_directories_that_came_whole() -> None:
    changes = [added(b"n", directory()), *(added(b"n/%02d" % number, file(10)) for number in range(12))]
    found = changes_to_json(Changeset(tuple(changes), (Remark(b"n/socket", "a socket cannot be applied"),)))
    assert found["rollup"] == [{"path": "n/", "added": 12, "bytes": 120}]
    assert len(found["files"]) == 12, "rolling up leaves nothing out of the list"
    assert found["remarks"] == [{"path": "n/socket", "text": "a socket cannot be applied"}]


def test_names_that_are_not_utf8_keep_their_bytes() -> None:
    changes = [added(b"\xff", directory()), *(added(b"\xff/%02d" % number) for number in range(11))]
    moved = Change(b"\xffnew", "renamed", None, file(), source=b"\xfeold")
    found = changes_to_json(Changeset((*changes, moved), (Remark(b"\xfd", "odd"),)))
    assert found["rollup"] == [{"path": "\ufffd/", "path_base64": "/y8=", "added": 11, "bytes": 11}]
    assert found["remarks"] == [{"path": "\ufffd", "path_base64": "/Q==", "text": "odd"}]
    row = found["files"][-1]
    assert (row["path"], row["path_base64"]) == ("\ufffdnew", "/25ldw==")
    assert (row["from"], row["from_base64"]) == ("\ufffdold", "/m9sZA==")
    assert conflicts_to_json([Conflict(b"\xff", "gone"), Conflict(b"a", "gone")]) == [
        {"path": "\ufffd", "path_base64": "/w==", "reason": "gone"},
        {"path": "a", "reason": "gone"},
    ]


@given(st.binary(max_size=20) | paths())
def test_a_path_can_always_be_had_back(path: bytes) -> None:
    found = path_fields(path)
    assert json.loads(json.dumps(found)) == found
    assert (base64.b64decode(found["path_base64"]) if "path_base64" in found else found["path"].encode()) == path
    assert found["path"] == text(path)


@given(st.lists(paths(), max_size=5), st.binary(max_size=20), st.lists(st.binary(max_size=5)))
def test_it_is_json_whatever_is_in_it(some: list[bytes], output: bytes, command: list[bytes]) -> None:
    changeset = Changeset(tuple(added(path) for path in sorted(some)))
    result = RESULT._replace(command=tuple(command), stdout=output, stderr=output, changeset=changeset)
    json.dumps(to_json(result), allow_nan=False).encode()


def test_what_was_left_outside_is_listed_and_counted() -> None:
    left = tuple(LeftFile(b"/tmp/%03d\xff" % number, 2) for number in range(120))
    found = to_json(RESULT._replace(left=left))["left"]
    assert (found["count"], found["bytes"], len(found["files"])) == (120, 240, 100)
    assert found["files"][0] == {
        "path": "/tmp/000\ufffd",
        "path_base64": base64.b64encode(b"/tmp/000\xff").decode(),
        "bytes": 2,
        "kept": False,
    }
