"""``.github/workflows`` and ``dev/certify``, as far as they can be run here: each line of the workflow runs
with stand-ins for programs of other systems, and the parts of ``dev/certify`` by a mudroom that does as if."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from mudroom.ext.certify import shipped
from mudroom.ext.certify.identity import Identity, code_of
from mudroom.ext.certify.row import opens
from mudroom.ext.certify.table import TABLES

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / ".github/workflows/certify.yml").read_text()
WORKFLOW = yaml.safe_load(TEXT)
SCRIPT = (ROOT / "dev/as-user.ps1").read_text()
RELEASE = (ROOT / ".github/workflows/release.yml").read_text()
BOTH = [(TEXT, WORKFLOW), (RELEASE, yaml.safe_load(RELEASE))]
STOOD_FOR = ("python", "python3", "pwsh", "sudo", "gh")
_STAND_IN = """#!/usr/bin/python3 -IS
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + chr(10))
"""
SIGNS = {"id-token", "attestations"}
WRITES = {"unix": SIGNS, "windows": SIGNS, "build": SIGNS, "records": {"contents"}, "draft": {"contents"}}


def lines_of(job: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the lines that a job runs with their variables, once for each value of the matrix that those name."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for step in job["steps"]:
        if "run" in step:
            values = {name: matrix[text[11:-3]] for name, text in job.get("env", {}).items()}
            for chosen in itertools.product(*values.values()):
                assert "${{" not in step["run"], "no expression in a line: a stranger's text would be a command"
                yield step["run"], dict(zip(values, chosen, strict=True))


def started(line: str, variables: dict[str, str], place: Path) -> list[list[str]]:
    """Return the commands of a line, as they would be started in a checkout."""
    programs, log = place / "bin", place / "log"
    programs.mkdir(exist_ok=True)
    for path in (
        *(programs / name for name in STOOD_FOR),
        *(place / name for name in (".venv/bin/python", "dev/wine", "dev/certify", "dev/release")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_STAND_IN.format(log=str(log)))
        path.chmod(0o755)
    log.unlink(missing_ok=True)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", **variables}
    subprocess.run(["bash", "-e", "-c", line], cwd=place, env=environment, check=True, timeout=20)
    return [json.loads(row) for row in log.read_text().splitlines()]


def check(words: list[str]) -> None:
    """Assert that what a command names exists."""
    if words[0] == "pwsh":
        assert words[1] == "dev/as-user.ps1" and words[2] in ("user", "admin")
        return check(words[3:])
    if words[0] in ("gh", "release"):
        assert words[1:3] == ["release", "create"] or words[1:] == ["--try"]
        return None
    if words[0] == "certify" or words[1:2] == ["dev/certify"]:
        assert os.access(ROOT / "dev/certify", os.X_OK) and words[-2] in ("run", "publish")
        return None
    if words[0] not in ("python", "python3"):
        assert words[0] in (*STOOD_FOR, "wine"), words
        return None
    assert words[1] == "-m", words
    module, *rest = words[2:]
    if module == "pytest":
        paths = [word.removeprefix("--ignore=") for word in rest if "/" in word]
        assert paths
        for path in paths:
            assert (ROOT / path).exists(), path
    elif module == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = [name for word in rest for name in re.findall(r"\[([\w,-]+)\]", word)]
        assert {name for group in named for name in group.split(",")} <= set(extras)
    else:
        assert module == "venv"
    return None


def test_each_line_of_the_workflow_runs_and_names_what_exists(tmp_path: Path) -> None:
    count = 0
    for job in (job for _text, workflow in BOTH for job in workflow["jobs"].values()):
        for line, variables in lines_of(job):
            commands = started(line, variables, tmp_path)
            assert commands, line
            for words in commands:
                check(words)
            count += 1
    assert count >= 9


def test_actions_are_pinned_and_say_their_release() -> None:
    jobs = [job for _text, workflow in BOTH for job in workflow["jobs"].values()]
    used = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name in used)
    pinned = re.findall(r"(?m)uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", TEXT + RELEASE)
    assert len(pinned) == len(used)
    assert len(set(used)) == len({name.partition("@")[0] for name in used}), "one commit of each action"


def test_a_job_may_do_what_it_has_to_and_ends() -> None:
    assert [workflow["permissions"] for _text, workflow in BOTH] == [{}, {}]
    for name, job in (row for _text, workflow in BOTH for row in workflow["jobs"].items()):
        assert 0 < job["timeout-minutes"] <= 120, name
        writes = {scope for scope, may in job["permissions"].items() if may == "write"}
        assert writes == WRITES.get(name, set()), name
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"] == {"persist-credentials": False}
    assert set(WORKFLOW[True]) == {"push", "workflow_dispatch", "schedule"}  # YAML 1.1: on is true. No pull request
    assert "workflow_dispatch" in WORKFLOW["jobs"]["records"]["if"]
    assert BOTH[1][1][True] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("job", ["unix", "windows"])
def test_a_record_is_signed_and_sent_whatever_fell(job: str) -> None:
    steps = WORKFLOW["jobs"][job]["steps"]
    (run,) = [step for step in steps if "dev/certify run" in step.get("run", "")]
    assert "||" not in run["run"] and "if" not in run, "a part that fell fails the job"
    later = [step for step in steps if re.search("attest|upload", step.get("uses", ""))]
    assert [step["if"].startswith("always()") for step in later] == [True, True]
    assert later[0]["with"]["subject-path"] == "certified/certificate.json" and later[1]["with"]["path"] == "certified"


def test_the_script_for_a_standard_user() -> None:
    """It has not run on Windows. What can be said of its text: it has no parameters of its own that would take the
    command's, it removes the account whatever happens, and blocks are closed."""
    code = re.sub(r"(?m)#.*$", "", SCRIPT)
    assert not re.search(r"(?i)\bparam\s*\(|CmdletBinding", code)
    for opening, closing in ("{}", "()", "[]"):
        assert code.count(opening) == code.count(closing)
    assert "Remove-LocalUser" in code.partition("} finally {")[2]
    assert os.access(ROOT / "dev/wine", os.X_OK)


# --- dev/certify ---


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return dev/certify as a module, whose records lie elsewhere."""
    loader = importlib.machinery.SourceFileLoader("certify_script", str(ROOT / "dev/certify"))
    spec = importlib.util.spec_from_loader("certify_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "RECORDS", tmp_path / "records")
    return module


def sent(platform: str = "darwin", **more: Any) -> bytes:
    """Return a certificate of this checkout's code."""
    facts = {"platform": platform, "system": "a system", "machine": "arm64", "tool": "t", "modules": code_of(platform)}
    rows = [{"name": row.name, "verdict": "held"} for row in TABLES[platform]]
    record = {"schema": "mudroom.certificate/1", "facts": {**facts, "kind": "k"}, "platform": platform}
    return json.dumps({**record, "system": "a system", "machine": "arm64", "made": 7, "rows": rows, **more}).encode()


def put(place: Path, content: bytes) -> Path:
    place.mkdir(parents=True)
    (place / "certificate.json").write_bytes(content)
    return place


def test_certificates_of_this_code_become_records_and_older_ones_leave(script: ModuleType, tmp_path: Path) -> None:
    put(tmp_path / "sent/one", sent())
    put(tmp_path / "sent/two", sent("win32"))
    older = json.loads(sent())
    older["facts"]["modules"] = "older"
    content = json.dumps(older).encode()
    script.RECORDS.mkdir()
    (script.RECORDS / f"{hashlib.sha256(content).hexdigest()}.json").write_bytes(content)
    assert script.main(["collect", str(tmp_path / "sent")]) == 0
    assert sorted(shipped.contents(str(script.RECORDS))) == sorted([sent(), sent("win32")])
    assert len(list(script.RECORDS.iterdir())) == 2


ROWS = json.loads(sent())["rows"]
BAD = {
    "no certificate of this mudroom": [b"{", sent(rows=[]), sent(machine="x86_64"), sent(rows=ROWS[1:]),
                                           sent(schema="mudroom.other/1")],
    "it is of other code than this checkout's": [
        sent(facts={**json.loads(sent())["facts"], "modules": code_of("win32")})
    ],
    "it does not name the kind of machine that it is of, so it would open nothing": [
        sent(facts={**json.loads(sent())["facts"], "kind": ""}),
        sent(facts={**json.loads(sent())["facts"], "more": "x"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("why", "content"), [(why, one) for why, contents in BAD.items() for one in contents], ids=range(8)
)
def test_another_certificate_becomes_no_record(
    script: ModuleType, tmp_path: Path, why: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    place = put(tmp_path / "sent", content)
    assert script.main(["collect", str(place)]) == 1
    assert capsys.readouterr().err == f"{place}/certificate.json: {why}\n"
    assert list(script.RECORDS.iterdir()) == []


@pytest.mark.parametrize("platform", ["darwin", "linux", "win32"])
def test_a_record_by_hand_opens_its_kind_of_machine_and_no_other(
    script: ModuleType, tmp_path: Path, platform: str
) -> None:
    here = Identity(platform, "a system", "arm64", "t", code_of(platform), "p", "h", 1, "v", "k")
    assert set(here.shared) == script.SHARED
    assert script.main(["collect", str(put(tmp_path / "sent", sent(platform)))]) == 0
    made = shipped.load(here, TABLES[platform], str(script.RECORDS))
    assert made is not None and opens(TABLES[platform], made)
    for fact in ("system", "machine", "tool", "modules", "kind"):
        other = here._replace(**{fact: "other"})
        assert shipped.load(other, TABLES[platform], str(script.RECORDS)) is None, fact
    (record,) = script.RECORDS.iterdir()
    record.write_bytes(record.read_bytes().replace(b"held", b"fell", 1))  # its name is no digest of it any more
    assert shipped.load(here, TABLES[platform], str(script.RECORDS)) is None


def test_nothing_is_published_unless_each_certificate_was_signed_by_the_workflow(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "sent", sent())
    calls: list[list[str]] = []

    def refused(words: list[str], **_options: Any) -> None:
        calls.append(words)
        raise subprocess.CalledProcessError(1, words)

    monkeypatch.setattr(script.subprocess, "run", refused)
    for name in ("REPOSITORY", "SHA", "RUN_ID"):
        monkeypatch.setenv(f"GITHUB_{name}", f"the-{name}")
    with pytest.raises(subprocess.CalledProcessError):
        script.main(["publish", str(tmp_path / "sent")])
    assert not script.RECORDS.exists()
    words = calls[0]
    assert words[:3] == ["gh", "attestation", "verify"] and "--deny-self-hosted-runners" in words
    assert words[words.index("--signer-workflow") + 1] == "the-REPOSITORY/.github/workflows/certify.yml"
    assert words[words.index("--source-digest") + 1] == "the-SHA"


MUDROOM = """#!/bin/sh
echo "$1" >>"$LOG"
case "$1" in
    --version) echo mudroom 0.1.0 ;;
    doctor) [ "$2" != --certify ] || echo '{"rows": [{"name": "tcp", "verdict": "fell"}]}' >"$4"; exit 1 ;;
esac
"""


def test_where_the_platform_is_closed_its_record_is_kept_and_no_command_runs(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(machine: Any) -> tuple[str, str]:
        machine.scripts.mkdir(parents=True)
        machine.mudroom.write_text(MUDROOM)
        machine.mudroom.chmod(0o755)
        return "held", ""

    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("MUDROOM_CERTIFY_ONLY", "install certificate first_minute page agent")
    monkeypatch.setitem(script.PARTS, "install", install)
    monkeypatch.setattr(script.shutil, "which", lambda name: f"/nowhere/{name}")
    assert script.main(["run", str(tmp_path / "out")]) == 1
    rows = [line.split("\t") for line in (tmp_path / "out/rows.tsv").read_text().splitlines()]
    assert [row[:2] for row in rows] == [
        ["install", "held"], ["certificate", "fell"], ["first_minute", "not shown"], ["page", "not shown"],
        ["agent", "not shown"],
    ]  # fmt: skip
    assert rows[1][2] == "closed: 0 of 1 rows held; tcp fell"
    assert set((tmp_path / "log").read_text().split()) == {"doctor", "keeper"}
    assert (tmp_path / "out/certificate.json").exists()
    capsys.readouterr()
    assert script.main(["run", str(tmp_path / "out")]) == 2
    assert "exists: name a new directory" in capsys.readouterr().err


def test_a_part_that_breaks_stops_no_other_and_no_variable_of_the_runner_is_seen(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def broken(machine: Any) -> tuple[str, str]:
        seen.append(machine.environ)
        raise RuntimeError("a\nb")

    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "a secret")
    monkeypatch.setenv("GITHUB_TOKEN", "a secret")
    monkeypatch.setenv("MUDROOM_CERTIFY_ONLY", "system containers")
    monkeypatch.setitem(script.PARTS, "system", broken)
    assert script.main(["run", str(tmp_path / "out")]) == 1
    rows = (tmp_path / "out/rows.tsv").read_text().splitlines()
    assert rows[0] == "system\tfell\tRuntimeError: a b" and rows[1].startswith("containers\tnot shown\t")
    assert "a secret" not in seen[0].values()


def test_on_windows_too_it_has_a_home_of_its_own(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and policy are below LOCALAPPDATA and APPDATA there, whatever HOME says."""
    for directory in ("here", "there"):
        (tmp_path / directory).mkdir()
    assert "APPDATA" not in script.Machine(tmp_path, tmp_path / "here").environ
    monkeypatch.setattr(script, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    home = str(tmp_path / "there/home")
    environ = script.Machine(tmp_path, tmp_path / "there").environ
    assert [environ[name] for name in ("USERPROFILE", "LOCALAPPDATA", "APPDATA")] == [home] * 3


@pytest.mark.parametrize("words", [[], ["run"], ["collect"], ["publish"], ["else", "x"]], ids=str)
def test_wrong_words_are_answered_by_the_usage(
    script: ModuleType, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(words) == 2
    assert "dev/certify run DIRECTORY" in capsys.readouterr().err


def test_a_checkout_has_the_bytes_of_the_commit_on_each_system(tmp_path: Path) -> None:
    """Git for Windows turns line ends by default, which would make the code another one."""
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    (tmp_path / "a.py").write_bytes(b"one\ntwo\n")
    git = ["git", "-c", "core.autocrlf=true", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
        ["rm", "-q", "a.py"],
        ["reset", "-q", "--hard"],
    ):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    assert (tmp_path / "a.py").read_bytes() == b"one\ntwo\n"
