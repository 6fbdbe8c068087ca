"""``mudroom net`` in a Windows Python: rules to the byte of their file, and each part that stays closed in one line.
Run by ``dev/wine``."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.windows.stage import nt_private
from mudroom.policy.config import environment, places
from mudroom.policy.host_answers import NAME
from mudroom.policy.trust import seen
from mudroom.stage import disk
from test_session_on_windows import Place, place

__all__ = ["place"]


def rules(place: Place) -> list[tuple[str, str, list[int], bool]]:
    report = json.loads(place.say("net", "ls", "--json").out)
    return [(rule["action"], rule["host"], rule["ports"], rule["private"]) for rule in report["rules"]]


def test_rules_are_kept_explained_and_removed(place: Place) -> None:
    """Every rule counts at once: what was said on this machine needs no trust of its own."""
    assert place.say("net", "allow", "api.example.com", "*.corp.example:443,8443").code == 0
    said = place.say("net", "deny", "gist.github.com")
    assert (said.code, said.out) == (0, "gist.github.com is denied on every port\n"), said
    assert place.say("net", "allow", "--private", "db.corp.example:5432").code == 0
    assert sorted(rules(place)) == [
        ("allow", "*.corp.example", [443, 8443], False),
        ("allow", "api.example.com", [], False),
        ("allow", "db.corp.example", [5432], True),
        ("deny", "gist.github.com", [], False),
    ]
    said = place.say("net", "why", "api.example.com", "gist.github.com:22", "other.example")
    assert said.code == 1 and said.err == "", said
    assert [line.split(": ")[:2] for line in said.out.splitlines()] == [
        ["api.example.com:443", "allow"],
        ["gist.github.com:22", "deny"],
        ["other.example:443", "ask"],
    ]
    said = place.say("net", "rm", "api.example.com", "db.corp.example:5432")
    assert said.code == 0 and place.say("net", "why", "api.example.com").code == 1, said
    today = time.strftime("%Y-%m-%d").encode()
    state = Path(os.fsdecode(places(environment()).state))
    [file] = (state / "answers").glob("*/" + NAME.decode())
    body = file.read_bytes().split(b"\n", 2)[2]  # two lines of comment
    rows = (b"allow:", b'  - "*.corp.example:443,8443"  # ' + today, b"deny:", b"  - gist.github.com  # " + today)
    assert body == b"\n".join((*rows, b"private:", b"")), body
    kinds = [json.loads(line)["kind"] for line in place.say("log", "--json").out.splitlines()]
    assert kinds.count("net") == 4, kinds


def test_presets_and_the_log(place: Place) -> None:
    assert place.say("net", "allow", "@npm").code == 0
    assert place.say("net", "presets", "npm").out.startswith("on @npm")
    assert place.say("net", "why", "registry.npmjs.org").code == 0
    assert place.say("net", "rm", "@npm").code == 0 and rules(place) == []
    said = place.say("net", "log", "--json")
    assert (said.code, said.out) == (0, ""), said


def test_what_a_project_opens_counts_once_it_is_trusted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of that counts as missing where others could have written it."""
    (place.project / ".mudroom").mkdir()
    (place.project / ".mudroom" / "policy.yaml").write_text("network:\n  allow: [api.example.com]\n")
    why = ("net", "why", "api.example.com")
    assert place.say(*why).code == 1
    said = place.say("policy", "trust", "--yes")
    assert said.code == 0 and "trusted on this machine" in said.err, said
    assert place.say(*why).code == 0
    record = (disk.real_path(os.fsencode(place.project)), places(environment()).state)
    assert seen(*record)
    with monkeypatch.context() as patched:
        patched.setattr(nt_private, "is_own", lambda _descriptor: False)
        assert not seen(*record)
    assert place.say("policy", "distrust").code == 0 and place.say(*why).code == 1


WRONG = (
    ((), "net needs an action"),
    (("allow",), "in PowerShell a preset stands in quotes: '@npm'"),
    (("allow", "exa mple"), "' ' is not for names"),
    (("allow", "@nmp"), "mudroom net allow @npm"),
    (("allow", "C:\\x"), "is no port"),
    (("rm", "nothing.example"), "neither allowed nor denied here"),
    (("open", "3000"), "mudroom net open needs namespaces that others can join; found: a job"),
    (("show", "3000", "--fork", "x"), "start the server and its client in one: mudroom run -- COMMAND"),
    (("reach", "x:3000", "--fork", "y"), "mudroom net reach needs namespaces"),
    (("credential", "TOKEN", "api.example"), "needs a gate that looks into TLS"),
    (("why", "x.mudroom.internal:80", "--fork", "no"), "there is no fork named no"),
)


def test_what_is_wrong_or_closed_is_said_in_one_line(place: Place) -> None:
    before = place.files()
    for words, says in WRONG:
        said = place.say("net", *words)
        assert (said.code, said.out) == (125, ""), said
        assert said.err.count("\n") == 1 and says in said.err, said
    assert place.files() == before
