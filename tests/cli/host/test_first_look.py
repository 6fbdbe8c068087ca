"""The first look of ``mudroom doctor --setup``: levels, limits and fixes of findings, and the verb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom.cli.doctor import probe
from mudroom.cli.host import doctor, setup
from mudroom.cli.host.setup import first_look
from mudroom.cli.main import run
from mudroom.core.confinement.protection import Finding
from mudroom.core.registry import is_installed

SANDBOX = Finding("a sandbox", "strict", "namespaces")
ENGINE = Finding("a container engine", "missing", "no engine is installed", "apt install podman")


def test_a_machine_with_everything() -> None:
    look = first_look(
        [SANDBOX, Finding("limit: memory", "strict", "cgroup v2"), Finding("a container engine", "strict", "")]
    )
    assert [row.state for row in look.levels] == ["yes", "yes", "yes"]
    assert [row.missing for row in look.levels] == [(), (), ()]
    assert (look.limits, look.no_limits, look.fixes) == (("memory",), (), ())


def test_no_sandbox_has_its_reason_and_its_fix_first() -> None:
    look = first_look([Finding("a sandbox", "missing", "user namespaces are forbidden", "sysctl …"), ENGINE])
    assert look.levels[1][2:] == ("no", ("user namespaces are forbidden",))
    assert [fix.text for fix in look.fixes] == ["sysctl …", "apt install podman"]


def test_a_weaker_protection_is_named() -> None:
    look = first_look([SANDBOX, Finding("Landlock", "degraded", "ABI 1", "a newer kernel"), ENGINE])
    assert look.levels[1][2:] == ("partly", ("Landlock",))
    assert look.levels[2][2:] == ("no", ("no engine is installed",))


def test_a_fix_of_several_limits_is_told_once() -> None:
    rows = [Finding(f"limit: {name}", "missing", "", "delegate") for name in ("memory", "io", "cpus")]
    assert [tuple(fix) for fix in first_look([SANDBOX, *rows]).fixes] == [
        ("delegate", ("limit: memory", "limit: io", "limit: cpus"))
    ]


def test_setup_is_one_screen_and_ends_with_a_command_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "_containers", lambda *_words: [ENGINE])  # trying engines takes seconds
    environ = {b"HOME": str(tmp_path).encode(), b"PATH": b"/usr/bin:/bin", b"SHELL": b"/bin/zsh"}
    (tmp_path / "p").mkdir()
    code = run(["doctor", "--setup", "--project", str(tmp_path / "p")], environ)
    text = capfd.readouterr().out
    assert code in (0, 1)
    assert len(text.splitlines()) <= 28
    assert any(line.split()[:1] == ["try"] for line in text.splitlines())
    assert ("mudroom completion zsh" in text) == is_installed("completion")
    assert "apt install podman" in text
    assert "sudo" not in text.split()


def test_setup_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_words, **_more: [Finding("a sandbox", "missing", "no", "a fix")])
    environ = {b"HOME": str(tmp_path).encode(), b"PATH": b"/usr/bin:/bin"}
    assert run(["doctor", "--setup", "--json", "--project", str(tmp_path / "p")], environ) == 1
    look = json.loads(capfd.readouterr().out)
    assert (look["schema"], [row["state"] for row in look["levels"]]) == ("mudroom.setup/1", ["yes", "no", "no"])
    assert look["fixes"] == [{"fix": "a fix", "for": ["a sandbox"]}]


def test_the_first_command_is_one_that_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_words, **_more: [Finding("a sandbox", "missing", "no", "a fix")])
    environ = {b"HOME": str(tmp_path).encode(), b"PATH": b"/usr/bin:/bin"}
    (tmp_path / "p/lib").mkdir(parents=True)
    for where, line in ((tmp_path / "p", "mudroom run -- rm -rf lib"), (tmp_path, "cd PROJECT && mudroom")):
        run(["doctor", "--setup", "--json", "--project", str(where)], environ)
        assert json.loads(capfd.readouterr().out)["first"] == line, "a home directory is no project"


def test_a_wrong_word_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--setup", "now"], {}) == 125
    assert (
        capfd.readouterr().err.strip() == "mudroom: only --certify writes a file (mudroom doctor --certify --json now)"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_no_line_of_setup_is_wider_than_the_terminal(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fix = "limit the container, with all that runs in it (docker run --memory, --pids-limit); or do without " * 3
    weak = [Finding(f"limit: {name}", "missing", "", fix) for name in ("memory", "processes", "cpus", "io", "x" * 30)]
    weak += [Finding(f"containers: {name} of a container", "degraded", "") for name in ("walls", "limits", "gate")]
    findings = [SANDBOX, ENGINE._replace(state="strict"), *weak]
    monkeypatch.setattr(doctor, "examine", lambda *_words, **_more: findings)
    monkeypatch.setattr(setup, "find_program", lambda *_words: b"/bin/true")  # every agent is installed
    (tmp_path / "p").mkdir()
    run(
        ["doctor", "--setup", "--project", str(tmp_path / "p")],
        {b"HOME": str(tmp_path).encode(), b"PATH": b"/bin", b"SHELL": f"/bin/{shell}".encode()},
    )
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert " ".join(fix.split()) in " ".join(" ".join(lines).split())
