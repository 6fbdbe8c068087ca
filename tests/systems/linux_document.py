"""docs/evidence/LINUX.md, made of ``linux.json``, which has a row for each system that ran.

``python tests/systems/linux_document.py FILE`` takes the row that ``dev/vm --record`` has printed into FILE, and writes
both; without FILE it writes the document. No test is here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORED, DOCUMENT = Path(__file__).with_name("linux.json"), ROOT / "docs/evidence/LINUX.md"
WSL = Path(__file__).with_name("wsl.config")
STEPS = ("run", "diff", "apply", "undo")
OPTIONS = {
    "USER_NS": "a sandbox", "PID_NS": "a sandbox", "NET_NS": "no network", "IPC_NS": "a sandbox", "UTS_NS": "a sandbox",
    "OVERLAY_FS": "the overlay view", "TMPFS_XATTR": "the overlay view of a state in memory", "FUSE_FS": "mounts",
    "SECCOMP_FILTER": "a system call filter", "SECURITY_LANDLOCK": "Landlock",
    "NF_TABLES_INET": "the gate", "NFT_NAT": "the gate", "NFT_REDIR": "the gate",
    "MEMCG": "limit: memory", "CGROUP_PIDS": "limit: processes", "CFS_BANDWIDTH": "limit: cpus",
    "CGROUP_FREEZER": "pause of a command", "BLK_DEV_THROTTLING": "limit: io",
}  # fmt: skip
"""Options of a kernel's configuration that mudroom uses, without CONFIG_, and what is missing or weaker without."""

HEAD = """\
# Linux systems

Made by `python tests/systems/linux_document.py` of `tests/systems/linux.json`; `dev/vm --system NAME --record` renews
a row. Each is a machine emulated by QEMU with a stock kernel, without systemd. *First minute*: a command is run, shown,
applied and undone. *Got out*: attempts of [ESCAPES.md](ESCAPES.md). All as an ordinary user.

| system | kernel | Python | first minute | protections that hold | got out | attempts that ended | date, commit |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

NOT_RUN = {
    "Ubuntu 24.04, its AppArmor restriction": "Debian's kernel lacks `apparmor_restrict_unprivileged_userns`",
    "Fedora: SELinux, btrfs as root": "no image; btrfs below a project is in [FILESYSTEMS.md](FILESYSTEMS.md)",
    "Alpine, Python with musl": "no package brings such a Python; the launcher is static, with musl",
    "Debian 11, Linux 5.10": "no command runs, and `mudroom run` says so: mount_setattr(2) came with 5.12",
    "Linux 5.15 and 6.8": "no Debian package brings them",
}


def row_of(lines: Iterable[str]) -> dict[str, Any] | None:
    """Return the last row that a run has printed, or None."""
    found = [json.loads(line)["linux"] for line in lines if line.startswith('{"linux"')]
    return found[-1] if found else None


def merged(rows: Iterable[Mapping[str, Any]], row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows with that of one system replaced, in the order of the kernels' versions."""
    kept = [one for one in rows if one["system"] != row["system"]]
    return sorted([*kept, row], key=lambda one: (one["machine"], [int(part) for part in one["kernel"].split(".")[:2]]))


def lacking(configuration: str) -> list[str]:
    """Return the options of ``OPTIONS`` that a kernel's configuration does not set to y or m."""
    given = {
        line.removeprefix("CONFIG_").partition("=")[0]
        for line in configuration.splitlines()
        if line.endswith(("=y", "=m"))
    }
    return [option for option in OPTIONS if option not in given]


def document(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    return HEAD + "\n".join(_lines(rows)) + "\n"


def _lines(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        minute = "yes" if row["held"] == list(STEPS) else f"only {', '.join(row['held'])}"
        held = row["protections"] - len(row["weaker"])
        out, tried = (len(row["out"]), f"{row['answered']} of {row['tried']}") if "tried" in row else ("not tried", "")
        yield (
            f"| {row['system']}: {row['distribution']} | {row['kernel']} {row['machine']} | {row['python']} | {minute} "
            f"| {held} of {row['protections']} | {out} | {tried} | {row['date']}, {row['commit']} |"
        )
    yield from (
        "",
        "What `mudroom doctor` says of the others:",
        "",
        "| system | protection | found |",
        "| --- | --- | --- |",
    )
    for row in rows:
        for protection, found in row["weaker"].items():
            yield f"| {row['system']} | {protection} | {found.replace('|', chr(92) + '|')} |"
    names = sorted({name for row in rows for name in row.get("out", ())})
    if names:
        yield from ("", "| got out | where | how |", "| --- | --- | --- |")
    for name in names:
        where = {row["system"]: row["out"][name] for row in rows if name in row.get("out", ())}
        yield f"| {name} | {', '.join(where)} | {next(iter(where.values()))} |"
    yield from ("", "Not run:", "", "| system | why |", "| --- | --- |")
    configuration = WSL.read_text()
    version = configuration.split(",")[0].removeprefix("# Linux/x86 ")
    missing = ", ".join(f"{option} ({OPTIONS[option]})" for option in lacking(configuration)) or "no option"
    compared = f"its configuration, compared by option ({len(OPTIONS)}), lacks {missing}; Landlock is of ABI 1"
    yield f"| WSL 2, kernel {version} | {compared} |"
    for system, why in NOT_RUN.items():
        yield f"| {system} | {why} |"


if __name__ == "__main__":
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    if len(sys.argv) > 1:
        told = row_of(Path(sys.argv[1]).read_text(errors="replace").splitlines())
        if told is None:
            sys.exit(f"{sys.argv[1]} has no row of a system: run dev/vm --system NAME --record")
        stored = merged(stored, told)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    DOCUMENT.write_text(document(stored))
