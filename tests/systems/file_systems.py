"""The file systems of the story, how each is made, and what is expected of mudroom on it: the table behind
docs/evidence/FILESYSTEMS.md. No test is here.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from story import Outcome
from story_world import fill

HERE = Path(__file__).resolve().parent
Where = Literal["project", "state", "both"]
WHERE: tuple[Where, ...] = ("project", "state", "both")
Who = Literal["root", "user"]


class Missing(Exception):
    """The file system cannot be had on this machine."""


def command(*words: str | Path, may_fail: bool = True) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{words[0]}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def image(kind: str, size: str, *options: str, mount: str = "loop") -> Callable[[Path, Path, bool], None]:
    """A file system of the kernel's on a sparse file."""

    def make(base: Path, target: Path, _user: bool) -> None:
        command("truncate", "-s", size, base / "image")
        command(f"mkfs.{kind}", *options, base / "image")
        command("mount", "-t", kind, "-o", mount, base / "image", target)

    return make


def memory(kind: str, *options: str) -> Callable[[Path, Path, bool], None]:
    return lambda _base, target, _user: command("mount", "-t", kind, *options, kind, target)


def overlay_layers(base: Path, _target: Path, user: bool) -> None:
    for name in ("lower", "upper", "work"):
        (base / name).mkdir()
    fill(base / "lower/project")
    give(base, user)


def overlay(base: Path, target: Path, user: bool) -> None:
    overlay_layers(base, target, user)
    layers = ",".join(f"{name}dir={base / name}" for name in ("lower", "upper", "work"))
    command("mount", "-t", "overlay", "-o", layers, "overlay", target)


def bindfs(*options: str) -> Callable[[Path, Path, bool], None]:
    def make(base: Path, target: Path, user: bool) -> None:
        (base / "below").mkdir()
        give(base, user)
        command("bindfs", *options, base / "below", target)

    return make


def fuse_overlayfs(base: Path, target: Path, user: bool) -> None:
    overlay_layers(base, target, user)
    layers = ",".join(f"{name}dir={base / name}" for name in ("lower", "upper", "work"))
    others = ",allow_other" if os.geteuid() == 0 else ""
    command("fuse-overlayfs", "-o", layers + others, target)


def fuse_image(make_image: Sequence[str], driver: str, size: str, *options: str) -> Callable[[Path, Path, bool], None]:
    """A file system by a driver in a process, on a block device."""

    def make(base: Path, target: Path, user: bool) -> None:
        command("truncate", "-s", size, base / "image")
        command(*make_image, base / "image")
        owner = pwd.getpwnam(USER) if user else None
        ids = [f"uid={owner.pw_uid},gid={owner.pw_gid}"] if owner and "permissions" not in options else []
        loop = subprocess.run(
            ["losetup", "--find", "--show", base / "image"], capture_output=True, text=True, check=False
        )
        if loop.returncode:
            raise Missing(loop.stderr)
        try:
            command(driver, "-o", ",".join((*options, *ids)) or "rw", loop.stdout.strip(), target)
        finally:
            command("losetup", "--detach", loop.stdout.strip())  # when it is unmounted

    return make


USER = "mudroom-test"
"""The ordinary user as whom stories are played if root runs the tests; ./check makes it."""


class Cell(NamedTuple):
    """What is expected of the story."""

    text: str
    """For the document."""
    result: str = "works"
    says: tuple[str, ...] = ()
    """Parts of what mudroom, or the story, has to say."""
    may_say: tuple[str, ...] = ()


YES = Cell("works")
COPY = Cell("in a copy", says=("working in a copy",))
LINKED = Cell("in a copy; hard links [1]", says=("working in a copy",), may_say=("hard links can land",))
UNTRIED = YES._replace(text="[5]")
COARSE = Cell("works [2]", says=("three seconds",))
NO_MODES = Cell("refused [3]", "refused", ("does not keep permissions", "set MUDROOM_STATE"))
NO_WHITEOUTS = Cell("refused [4]", "refused", ("cannot keep what a fork deletes", "set MUDROOM_STATE"))


class FileSystem(NamedTuple):
    name: str
    what: str
    """What is peculiar about it, for the document."""
    make: Callable[[Path, Path, bool], None]
    """Mounts it at the second path; the first is a directory for images and layers; whether for an ordinary user."""
    cells: tuple[Cell, Cell, Cell] = (YES, YES, YES)
    """With the project there, the state there, and both."""
    by_user: bool = False
    """Whether an ordinary user can mount it."""
    needs: Sequence[str] = ()
    """Programs."""
    inside: str = ""
    """A line for sh(1) that mounts it at TARGET in namespaces of the story's own, with BASE as in ``make``."""


_COPIES, _FUSE = (YES, COPY, COPY), (YES, LINKED, LINKED)
_NTFS, _FAT = ("mkfs.ntfs", "-q", "-F"), ("mkfs.exfat",)
_REMOVED = "FUSE: removed files that are open get another name, as by NFS; no O_TMPFILE, no flags of renameat2(2)"
TABLE = (
    FileSystem("ext4", "the reference", image("ext4", "40M", "-q", "-b", "4096", "-N", "3000")),
    FileSystem(
        "ext4, small inodes",
        "times in whole seconds",
        image("ext4", "200M", "-q", "-I", "128", "-N", "20000"),
        (COARSE, YES, COARSE),
    ),
    FileSystem(
        "ext4, casefold",
        "upper and lower case are one, where a directory says so",
        image("ext4", "200M", "-q", "-O", "casefold", "-N", "20000"),
        (UNTRIED, UNTRIED, UNTRIED),
    ),
    FileSystem("tmpfs", "in memory, no reflinks", memory("tmpfs", "-o", "size=24M"), by_user=True),
    FileSystem("ramfs", "no xattrs, as tmpfs before Linux 6.6", memory("ramfs", "-o", "mode=777"), _COPIES),
    FileSystem("xfs", "reflinks", image("xfs", "320M", "-q")),
    FileSystem("btrfs", "reflinks; a device for each subvolume", image("btrfs", "200M", "-q")),
    FileSystem("overlayfs", "a container without a volume", overlay, _COPIES),
    FileSystem(
        "overlayfs in a user namespace",
        "the same, rootless, by the kernel",
        overlay_layers,
        _COPIES,
        by_user=True,
        inside="mount -t overlay -o userxattr,lowerdir=BASE/lower,upperdir=BASE/upper,workdir=BASE/work overlay TARGET",
    ),
    FileSystem("bindfs", _REMOVED, bindfs(), _FUSE, by_user=True, needs=("bindfs",)),
    FileSystem(
        "bindfs, without xattrs",
        "the same, and no xattrs",
        bindfs("--xattr-none"),
        _FUSE,
        by_user=True,
        needs=("bindfs",),
    ),
    FileSystem(
        "fuse-overlayfs",
        "a rootless container without a volume",
        fuse_overlayfs,
        (YES, NO_WHITEOUTS, NO_WHITEOUTS),
        by_user=True,
        needs=("fuse-overlayfs",),
    ),
    FileSystem(
        "ntfs-3g",
        "FUSE on a block device",
        fuse_image(_NTFS, "ntfs-3g", "64M", "permissions"),
        _COPIES,
        needs=("ntfs-3g", "mkfs.ntfs"),
    ),
    FileSystem(
        "ntfs-3g, folded",
        "the same, and upper and lower case are one",
        fuse_image(_NTFS, "lowntfs-3g", "64M", "permissions", "ignore_case"),
        _COPIES,
        needs=("lowntfs-3g", "mkfs.ntfs"),
    ),
    FileSystem(
        "ntfs-3g, without permissions",
        "no modes, as a disk of Windows in WSL",
        fuse_image(_NTFS, "ntfs-3g", "64M"),
        (YES, NO_MODES, NO_MODES),
        needs=("ntfs-3g", "mkfs.ntfs"),
    ),
    FileSystem(
        "exfat-fuse",
        "no links, modes, xattrs; no time of change; upper and lower case are one",
        fuse_image(_FAT, "mount.exfat-fuse", "64M"),
        (COARSE, NO_MODES, NO_MODES),
        needs=("mount.exfat-fuse", "mkfs.exfat"),
    ),
    FileSystem(
        "vfat",
        "the same; times in two seconds",
        image("vfat", "64M"),
        (COARSE._replace(text="[2] [5]"), NO_MODES, NO_MODES),
    ),
)


def by_name(name: str) -> FileSystem:
    return next(system for system in TABLE if system.name == name)


def unexpected(cell: Cell, outcome: Outcome) -> str:
    """Return what of an outcome is not expected; empty if it is all as expected."""
    said = " ".join((outcome.text, *outcome.remarks))
    if outcome.result != cell.result:
        return f"{outcome.result} at {outcome.step!r}: {outcome.text}"
    missing = [part for part in cell.says if part not in said]
    surplus = [remark for remark in outcome.remarks if not any(part in remark for part in (*cell.says, *cell.may_say))]
    return f"not said: {missing}; said: {surplus}" if missing or surplus else ""


def give(path: Path, user: bool) -> None:
    """Give a directory and all below it to the ordinary user."""
    if user and os.geteuid() == 0:
        command("chown", "-R", f"{USER}:{USER}", path)


@contextmanager
def mounted(system: FileSystem, user: bool) -> Iterator[tuple[Path, Path]]:
    """The place of a file system and a directory on the disk, both the user's. Raise Missing if it cannot be had."""
    for program in system.needs:
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")
    base = Path(tempfile.mkdtemp(prefix="mudroom-systems-", dir="/tmp"))
    base.chmod(0o755)
    target, plain = base / "fs", base / "plain"
    for path in (target, plain):
        path.mkdir()
    try:
        give(base, user)
        system.make(base, target, user)
        try:
            if user and os.geteuid() == 0 and target.stat().st_uid == 0:
                os.chown(target, pwd.getpwnam(USER).pw_uid, pwd.getpwnam(USER).pw_gid)
            yield target, plain
        finally:
            unmount(target)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(base)], check=False, capture_output=True)
        shutil.rmtree(base, ignore_errors=True)


def unmount(target: Path) -> None:
    words = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    subprocess.run([*words, str(target)], check=False, capture_output=True)


def play(system: FileSystem, where: Where, who: Who, *options: str) -> Outcome:
    """Play the story on a file system. Raise Missing if it cannot be had here."""
    user = who == "user"
    with mounted(system, user) as (target, plain):
        project = (target if where != "state" else plain) / "project"
        state = (target if where != "project" else plain) / "state"
        words = [str(project), str(state), str(plain / "home"), str(plain / "model"), *options]
        words = [word.replace("TARGET", str(target)) for word in words]
        line = system.inside.replace("TARGET", str(target)).replace("BASE", str(target.parent))
        inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line + ' && exec "$@"', "sh"]
        return run_story(words, user, inside if line else ())


def run_story(words: Sequence[str], user: bool, inside: Sequence[str] = ()) -> Outcome:
    """Play the story as the ordinary user or this one. ``inside``: a program that runs it in another place."""
    as_user = ["runuser", "-u", USER, "--"] if user and os.geteuid() == 0 else []
    done = subprocess.run(
        [*as_user, *inside, sys.executable, str(HERE / "story.py"), *words],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    if done.returncode:
        return Outcome("defect", "the story itself", done.stderr.strip()[-3000:], [], 0, {})
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def cells(who: Who) -> Iterator[tuple[FileSystem, Where, Cell]]:
    """The cells of the table that can be tried: as an ordinary user only what one can mount, unless root does it."""
    for system in TABLE:
        if who == "root" or system.by_user or os.geteuid() == 0:
            for where, cell in zip(WHERE, system.cells, strict=True):
                yield system, where, cell


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    """``NAME|all root|user [project,state,both [OPTION…]]``: play, and print a line for each cell. Return 1 if one is
    not as expected."""
    name, who = words[0], words[1]
    places = words[2].split(",") if len(words) > 2 else WHERE
    failed = 0
    for system, where, cell in cells("root" if who == "root" else "user"):
        if name not in ("all", system.name) or where not in places:
            continue
        try:
            outcome = play(system, where, "root" if who == "root" else "user", *words[3:])
        except Missing as error:
            tell(f"{system.name}, {where}: cannot be had here: {error}")
            continue
        wrong = unexpected(cell, outcome)
        failed |= bool(wrong)
        figures = ", ".join(f"{key} {value:g}" for key, value in outcome.figures.items())
        tell(f"{system.name}, {where}: {wrong or cell.text} ({outcome.seconds} s; {figures})")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
