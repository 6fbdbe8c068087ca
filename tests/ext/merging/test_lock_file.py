"""Lock files in conflict: made again by their package manager, and nothing else is taken from that run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from conftest import Place, tick
from mudroom.core.command.verdict import Verdict
from mudroom.core.confinement.limit import LimitReached
from mudroom.core.merge.diff3 import merge3
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.merging.lock_file import LOCK_FILES, _why_failed, command_of, make_again, start_of
from mudroom.session import Session
from mudroom.vault.apply.conflict import ForkConflict
from tiers import each

NPM = "npm install --package-lock-only --ignore-scripts --no-audit --no-fund"
MAKES = """\
import json
wanted = json.load(open("package.json"))["dependencies"]
known = json.load(open("package-lock.json"))["packages"]
lock = {"packages": {name: known.get(name, {"version": "new"}) for name in sorted(wanted)}}
json.dump(lock, open("package-lock.json", "w"), indent=2)
"""


def manifest(*names: str) -> str:
    return json.dumps({"dependencies": dict.fromkeys(names, "*")}, indent=2) + "\n"


def lock(**versions: str) -> str:
    return json.dumps({"packages": {name: {"version": version} for name, version in versions.items()}}, indent=2) + "\n"


@pytest.fixture
def staged(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A project whose npm is a script, at first one that makes the lock file."""
    npm(place, MAKES)
    monkeypatch.setenv("PATH", f"{place.project}/tools:{os.environ['PATH']}")
    place.write("package.json", manifest("a"))
    place.write("package-lock.json", lock(a="1"))
    return place


def npm(place: Place, body: str) -> None:
    place.write("tools/npm", f"#!/usr/bin/python3\n{body}", 0o755)


def conflicted(place: Place, settings: Settings | None = None, manifests: bool = True) -> tuple[Session, str]:
    """A fork that adds b, in a project that adds c meanwhile. The manifests merge, the lock files do not."""
    session = place.session(settings)
    write = {"package-lock.json": lock(a="1", b="2")}
    if manifests:
        write["package.json"] = manifest("b", "a")
    script = "".join(f"cat > {name} <<'END'\n{text}END\n" for name, text in write.items())
    fork = session.run([b"sh", b"-c", script.encode()]).fork
    tick()
    place.write("package-lock.json", lock(a="1", c="3"))
    return session, fork


def conflict_at(session: Session, fork: str, path: bytes = b"package-lock.json") -> ForkConflict:
    conflict = session.changes.conflict(fork, path)
    assert conflict is not None
    return conflict


def made(session: Session, fork: str) -> list[str]:
    """Make the lock file again. Return what was told."""
    told: list[str] = []
    make_again(session, fork, conflict_at(session, fork), told.append)
    return told


def refused(session: Session, fork: str) -> str:
    """Return why the lock file is not made again. Its conflict is as it was."""
    with pytest.raises(MudroomError) as raised:
        made(session, fork)
    assert not conflict_at(session, fork).decided
    assert [other.name for other in session.vault.forks()] == [fork]
    assert "\n" not in str(raised.value)
    return raised.value.message


def test_a_lock_file_is_made_again_from_what_an_apply_would_leave(staged: Place) -> None:
    session, fork = conflicted(staged)
    assert conflict_at(session, fork).remade_by == NPM
    assert conflict_at(session, fork).by_rule is None, "no rule of texts is asked"
    assert made(session, fork) == [f"making package-lock.json again in a sandbox: {NPM}"]
    decided = conflict_at(session, fork)
    assert (decided.decided, decided.how) == (True, f"made again by {NPM}")
    assert decided.result == lock(a="1", b="2").strip().encode(), "the fork's manifest, and its version of b"
    assert (staged.project / "package-lock.json").read_text() == lock(a="1", c="3")
    landed = session.changes.apply(fork)
    assert (staged.project / "package-lock.json").read_bytes() == decided.result
    assert (b"package-lock.json", f"made again by {NPM}") in [(each.path, each.text) for each in landed.applied.remarks]
    session.changes.undo()
    assert (staged.project / "package-lock.json").read_text() == lock(a="1", c="3")
    assert session.vault.forks() == [] or [other.name for other in session.vault.forks()] == [fork]


def test_other_files_that_the_command_changed_are_told_and_dropped(staged: Place) -> None:
    npm(staged, MAKES + 'import os\nos.makedirs("node_modules/b")\n'
        'open("node_modules/b/package.json", "w")\nopen("left", "w")\nos.remove("kept")\n')  # fmt: skip
    staged.write("kept")
    session, fork = conflicted(staged)
    assert made(session, fork)[1:] == [f"{NPM} also changed 3 files, dropped: kept, left, node_modules/b/package.json"]
    session.changes.apply(fork)
    assert {path.name for path in staged.project.iterdir()} == {"tools", "package.json", "package-lock.json", "kept"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise SystemExit('npm error no such version')", "failed with exit code 1: npm error no such version"),
        ("import os\nos.remove('package-lock.json')", "left no such file"),
        (
            "import os\nos.remove('package-lock.json')\nos.symlink('/etc/passwd', 'package-lock.json')",
            "left no such file",
        ),
        ("import os\nos.remove('package-lock.json')\nos.mkfifo('package-lock.json')", "left no such file"),
        ("open('package-lock.json', 'w').write('{')", "left a text that is no package-lock.json"),
        ("open('package-lock.json', 'w').write('<<<<<<< a\\n')", "left a text that is no package-lock.json"),
        (
            MAKES + "open('package.json', 'a').write('\\n')",
            "changed package.json, which was not reviewed so",
        ),
        (
            MAKES + "import os\nos.mkdir('w')\nopen('w/package.json', 'w')",
            "changed w/package.json, which was not reviewed so",
        ),
    ],
)
def test_a_run_that_cannot_be_trusted_leaves_the_conflict(staged: Place, body: str, why: str) -> None:
    npm(staged, body)
    session, fork = conflicted(staged)
    assert refused(session, fork) == f"package-lock.json is not made again: {NPM} {why}"


def test_a_missing_tool_leaves_the_conflict(staged: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(staged.project / "tools")
    (staged.root / "empty").mkdir()
    monkeypatch.setenv("PATH", str(staged.root / "empty"))
    session = staged.session()
    files = session.forks.new("x").name
    session.forks.files(files).write(b"package-lock.json", lock(a="1", b="2"))
    session.forks.flush(files)
    staged.write("package-lock.json", lock(a="1", c="3"))
    assert refused(session, files).startswith("package-lock.json is not made again: npm: ")


def test_a_host_that_the_policy_does_not_name_is_told(staged: Place) -> None:
    npm(staged, "import urllib.request\nurllib.request.urlopen('https://registry.example/')")
    session, fork = conflicted(staged, Settings(network="gate"))
    with pytest.raises(MudroomError) as raised:
        made(session, fork)
    assert raised.value.message == f"package-lock.json is not made again: {NPM} may not connect to registry.example"
    assert raised.value.hint == (
        "network: {allow: [registry.example]} in the policy allows it; "
        f"mudroom resolve {fork} package-lock.json --mine, or --theirs, decides it"
    )


def test_a_lock_file_that_the_project_has_moved_is_not_made_again(staged: Place) -> None:
    session, fork = conflicted(staged)
    conflict = conflict_at(session, fork)
    moved = conflict._replace(ours=conflict.ours._replace(path=b"web/package-lock.json"))
    with pytest.raises(MudroomError) as raised:
        make_again(session, fork, moved, lambda _line: None)
    assert raised.value.message == (
        "package-lock.json is not made again: the project has moved it to web/package-lock.json"
    )


@each(
    ("result", "why"),
    [
        (Result("f", (), 1, 126, ran=False, verdict=Verdict("deny", reason="no")), "x was refused: no"),
        (Result("f", (), 1, 124, timed_out=True), "x did not end within 10 minutes"),
        (
            Result("f", (), 1, 137, reached=(LimitReached("memory", "killed", 512 << 20),)),
            "x reached a limit: killed: memory, 512 MiB",
        ),
        (Result("f", (), 1, 1, stderr=b"npm error code E\nnpm error no x\nnpm error log: y\n"),
         "x failed with exit code 1: npm error code E; npm error no x"),
        (Result("f", (), 1, 1, stdout=b"some\nwords \x1b[1m\n"), "x failed with exit code 1: words \\x1b[1m"),
        (Result("f", (), 1, 1), "x failed with exit code 1"),
        (Result("f", (), 1, 0, stderr=b"error"), ""),
    ],
)  # fmt: skip
def test_a_failure_is_told_in_one_line(result: Result, why: str) -> None:
    assert _why_failed(result, "x")[0] == why


def test_a_manifest_in_conflict_comes_first(staged: Place) -> None:
    session, fork = conflicted(staged)
    staged.write("package.json", manifest("c", "a"))
    with pytest.raises(MudroomError) as raised:
        made(session, fork)
    assert raised.value.message == "package-lock.json is not made again: package.json is in conflict, too"
    assert raised.value.hint.startswith(f"mudroom resolve {fork} package.json; ")
    session.changes.decide(fork, conflict_at(session, fork, b"package.json"), "ours")
    made(session, fork)
    assert conflict_at(session, fork).result == lock(a="1", c="3").strip().encode()


@pytest.mark.parametrize("what", ["project", "fork", "decision"])
def test_another_manifest_needs_another_lock_file(staged: Place, what: str) -> None:
    session, fork = conflicted(staged)
    if what == "decision":
        staged.write("package.json", manifest("c", "a"))
        session.changes.decide(fork, conflict_at(session, fork, b"package.json"), "ours")
    made(session, fork)
    assert conflict_at(session, fork).decided
    tick()
    if what == "project":
        staged.write("package.json", manifest("a") + "\n")
    elif what == "fork":
        session.forks.files(fork).write(b"package.json", manifest("b", "a", "d"))
        session.forks.flush(fork)
    else:
        session.changes.decide(fork, conflict_at(session, fork, b"package.json"), "theirs")
    assert not conflict_at(session, fork).decided
    assert b"package-lock.json" in [conflict.path for conflict in session.changes.apply(fork).conflicts]
    assert (staged.project / "package-lock.json").read_text() == lock(a="1", c="3")


def test_a_policy_has_an_apply_make_it_again(staged: Place) -> None:
    session, fork = conflicted(staged, Settings(merge_rules="apply"))
    landed = session.changes.apply(fork)
    assert landed.conflicts == ()
    assert json.loads((staged.project / "package-lock.json").read_text()) == json.loads(lock(a="1", b="2"))
    assert (b"package-lock.json", f"made again by {NPM}") in [(each.path, each.text) for each in landed.applied.remarks]


def test_a_policy_cannot_apply_what_cannot_be_made_again(staged: Place) -> None:
    npm(staged, "raise SystemExit(3)")
    session, fork = conflicted(staged, Settings(merge_rules="apply"))
    landed = session.changes.apply(fork)
    assert [conflict.path for conflict in landed.conflicts] == [b"package-lock.json"]
    assert f"package-lock.json is not made again: {NPM} failed with exit code 3" in " ".join(session.forks.remarks)


def test_a_lock_file_that_does_not_conflict_runs_nothing(staged: Place) -> None:
    npm(staged, "raise SystemExit(3)")
    session = staged.session(Settings(merge_rules="apply"))
    fork = session.run([b"sh", b"-c", b"echo >> package-lock.json"]).fork
    assert session.changes.apply(fork).conflicts == ()
    assert not session.forks.remarks


@each(
    ("path", "ours", "theirs", "command"),
    [
        (b"package-lock.json", b"{}", b"{}", NPM),
        (b"a/b/Cargo.lock", b"", b"", "cargo update --workspace"),
        (
            b"yarn.lock",
            b"# yarn lockfile v1\n",
            b"# yarn lockfile v1\n",
            "yarn install --ignore-scripts --non-interactive",
        ),
        (b"yarn.lock", b"\n__metadata:\n", b"\n__metadata:\n", "yarn install --mode=update-lockfile"),
        (b"yarn.lock", b"# yarn lockfile v1\n", b"\n__metadata:\n", ""),
        (b"package.json", b"{}", b"{}", ""),
        (b"uv.lock", None, b"", ""),
        (b"xuv.lock", b"", b"", ""),
    ],
)
def test_a_command_is_known_by_name_and_text(
    path: bytes, ours: bytes | None, theirs: bytes | None, command: str
) -> None:
    assert command_of(path, ours, theirs) == command


def toml(*packages: str) -> bytes:
    return "".join(f'[[package]]\nname = "{each[0]}"\nversion = "{each[1:]}"\n\n' for each in packages).encode()


@each(
    ("path", "base", "ours", "theirs", "start"),
    [
        (b"uv.lock", toml("a1"), toml("a1", "b2"), toml("a1", "c3"), toml("a1", "b2", "c3")),
        (b"uv.lock", toml("a1"), toml("a1", "b2"), toml("a1", "b2", "c3"), toml("a1", "b2", "c3")),
        (b"uv.lock", toml("a1"), toml("a2"), toml("a3"), toml("a2")),
        (b"uv.lock", toml("a1", "b1", "d1"), toml("a2", "b1"), toml("a3", "b2", "d1"), toml("a2", "b2")),
        (
            b"poetry.lock",
            b"",
            b"x = 1\n" + toml("a1") + b"[metadata]\nh = 1\n",
            toml("b1") + b"[metadata]\nh = 2\n",
            b"x = 1\n" + toml("a1", "b1") + b"[metadata]\nh = 1\n",
        ),
        (
            b"uv.lock",
            b"",
            toml("a1") + b"[package.metadata]\nx = 1\n",
            b'x = 2\n[[package]]\nname = "b\n',
            toml("a1") + b"[package.metadata]\nx = 1\n",
        ),
        (b"uv.lock", b"x", b"y", b"z", b"y"),
        (
            b"package-lock.json",
            b'{"a": 1, "b": 1, "d": 1}',
            b'{"a": 2, "b": 1, "d": 1}',
            b'{"a": 3, "b": 2}',
            b'{\n"a": 2,\n"b": 2\n}\n',
        ),
        (b"package-lock.json", b"", b'{\n  "a": 1\n}', b'{\n  "b": 1\n}', b'{\n  "a": 1,\n  "b": 1\n}\n'),
        (b"package-lock.json", b"{}", b'{"a": 1}', b"{", b'{"a": 1}'),
        (b"pnpm-lock.yaml", b"a\n", b"b\n", b"c\n", b"<<<<<<< project\nb\n=======\nc\n>>>>>>> fork\n"),
    ],
)
def test_a_command_starts_from_the_versions_of_both_sides(
    path: bytes, base: bytes, ours: bytes, theirs: bytes, start: bytes
) -> None:
    row = next(row for row in LOCK_FILES if row.name == path)
    assert start_of(row, merge3(base, ours, theirs), ours) == start


# --- real package managers, with packages in the project: no registry is needed ---


def package(place: Place, tool: str, name: str) -> None:
    if tool == "cargo":
        place.write(f"libs/{name}/src/lib.rs")
        place.write(f"libs/{name}/Cargo.toml", f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n')
    elif tool == "npm":
        place.write(f"libs/{name}/package.json", json.dumps({"name": name, "version": "0.1.0"}))
    else:
        build = '[build-system]\nrequires = []\nbuild-backend = "x"\n'
        place.write(
            f"libs/{name}/pyproject.toml",
            f'[project]\nname = "{name}"\nversion = "0.1.0"\nrequires-python = ">=3.9"\n{build}',
        )


def real_manifest(place: Place, tool: str, *names: str) -> tuple[str, str]:
    """Return the manifest's name and text."""
    if tool == "npm":
        wanted = {name: f"file:libs/{name}" for name in names}
        return "package.json", json.dumps({"name": "app", "version": "1.0.0", "dependencies": wanted}, indent=2) + "\n"
    if tool == "cargo":
        lines = "".join(f'{name} = {{ path = "libs/{name}" }}\n' for name in names)
        head = '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
        return "Cargo.toml", head + lines
    lines = "".join(f'  "{name} @ file://{place.project}/libs/{name}",\n' for name in names)
    head = '[project]\nname = "app"\nversion = "0.1.0"\nrequires-python = ">=3.9"\ndependencies = [\n'
    return "pyproject.toml", head + lines + "]\n"


REAL = {
    "npm": ("package-lock.json", "npm install --package-lock-only --ignore-scripts --no-audit --no-fund --offline"),
    "cargo": ("Cargo.lock", "cargo update --workspace --offline"),
    "uv": ("uv.lock", "uv lock --offline"),
    "poetry": ("poetry.lock", "poetry lock --no-interaction"),
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", REAL)
def test_a_real_package_manager_makes_its_lock_file_again(
    place: Place, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the lock file that the tool makes of the merged manifest."""
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"not installed: {tool}")
    path, command = REAL[tool]
    monkeypatch.setenv("PATH", f"{os.path.dirname(program)}:/usr/bin:/bin")
    for name in ("aa", "bb", "cc", "dd"):
        package(place, tool, name)
    place.write("src/lib.rs")
    (manifest_path, text), (_path, after) = (
        real_manifest(place, tool, *names) for names in (("aa", "dd"), ("aa", "bb", "dd"))
    )
    rustup = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))  # the test's home is another one
    shown = (os.fsencode(rustup),) if tool == "cargo" and os.path.isdir(rustup) else ()
    session = place.session(Settings(read=shown, environment=tuple(b"RUSTUP_HOME=" + path for path in shown)))

    def locked(text: str) -> bytes:
        """Return the lock file of a manifest, made in a fork."""
        script = f"cat > {manifest_path} <<'END'\n{text}END\n{command}"
        result = session.run([b"sh", b"-c", script.encode()])
        assert result.exit_code == 0, result.stderr
        content = session.forks.files(result.fork).read(path.encode())
        session.forks.discard(result.fork)
        return content

    place.write(manifest_path, text)
    place.write(path, locked(text))
    script = f"cat > {manifest_path} <<'END'\n{after}END\n{command}"
    result = session.run([b"sh", b"-c", script.encode()])
    assert result.exit_code == 0, result.stderr
    tick()
    mine = real_manifest(place, tool, "aa", "cc", "dd")[1]
    place.write(path, locked(mine))
    place.write(manifest_path, mine)
    conflict = conflict_at(session, result.fork, manifest_path.encode())
    both = real_manifest(place, tool, "aa", "bb", "cc", "dd")[1]
    session.changes.decide(result.fork, conflict, "content", both.encode())
    told: list[str] = []
    make_again(session, result.fork, conflict_at(session, result.fork, path.encode()), told.append)
    assert session.changes.apply(result.fork).conflicts == (), told
    assert (place.project / path).read_bytes() == locked(both)
    assert Path(place.project, manifest_path).read_text() == both
