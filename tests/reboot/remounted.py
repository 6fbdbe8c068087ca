"""A project and its state on a file system that is unmounted and mounted again, as by a reboot, or that loses power.

For the latter its image is cloned by reflink while it is in use, and the clone is mounted. No test is here.

All of it is in a mount namespace of its own: a sandbox of another test would keep the file system mounted.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGES = {"btrfs": "200M", "xfs": "400M", "ext4": "60M"}
KINDS = (*IMAGES, "overlayfs", "bindfs")
LAYERS = ("lower", "upper", "work")
ORDINARY = "mudroom-test"
Ended = subprocess.CompletedProcess[str]
_FICLONE = 0x40049409
"""ioctl_ficlone(2)."""
_BOOT = "/proc/sys/kernel/random/boot_id"


class Remounted:
    def __init__(self, base: Path, kind: str, namespace: int, user: str = "") -> None:
        self._namespace, self.user = str(namespace), user
        self._place, self._spare, self._base = Path("/mnt"), base / "spare", base / kind
        self._image, self._under = self._base / "image", base / "under"
        for path in (self._spare, self._base, self._under):
            path.mkdir()
        self._kind, self._unrelated = kind, 0
        self._make()
        self._mount()
        self.target = Path(f"/proc/{namespace}/root{self._place}")

    @property
    def ids(self) -> tuple[int, int]:
        """User and group of the ordinary user."""
        found = pwd.getpwnam(self.user)
        return found.pw_uid, found.pw_gid

    @property
    def project(self) -> Path:
        """The project, for the test itself."""
        return self.target / "project"

    def _do(self, *words: str | Path) -> None:
        argv = ["nsenter", "--mount", "--target", self._namespace, *map(str, words)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{self._kind} cannot be mounted here: {(done.stderr or done.stdout).strip()}")

    def _make(self) -> None:
        """Make an image, on a file system that has reflinks. An overlay and a mirror by FUSE stand on ext4."""
        kind = self._kind if self._kind in IMAGES else "ext4"
        for program in (f"mkfs.{kind}", "mkfs.xfs", *(["bindfs"] if self._kind == "bindfs" else [])):
            if shutil.which(program) is None:
                pytest.skip(f"{self._kind} cannot be mounted here: {program} is not installed")
        self._do("mount", "-t", "tmpfs", "tmpfs", self._place)  # bindfs wants an empty directory
        self._do("truncate", "-s", "3G", self._spare / "bed")
        self._do("mkfs.xfs", "-q", self._spare / "bed")
        self._do("mount", "-o", "loop", self._spare / "bed", self._base)
        self._do("truncate", "-s", IMAGES[kind], self._image)
        self._do(f"mkfs.{kind}", "-q", self._image)

    def _mount(self) -> None:
        if self._kind in IMAGES:
            self._do("mount", "-o", "loop", self._image, self._place)
            return
        self._do("mount", "-o", "loop", self._image, self._under)
        for name in LAYERS:
            self._do("mkdir", "-p", self._under / name)
        if self._kind == "bindfs":
            self._do("bindfs", self._under / "lower", self._place)
        else:
            layers = ",".join(f"{name}dir={self._under / name}" for name in LAYERS)
            self._do("mount", "-t", "overlay", "-o", layers, "overlay", self._place)

    # --- power ---

    def written(self) -> int:
        """Return a number that changes when the file system writes to its image."""
        return self._outside(self._image).stat().st_mtime_ns

    def clone(self, name: str, of: str = "image") -> None:
        """Keep the image as it is at this moment: what a disk has when the power fails now."""
        source, clone = self._outside(self._base / of), self._outside(self._base / name)
        with source.open("rb") as old, clone.open("wb") as new:
            fcntl.ioctl(new, _FICLONE, old.fileno())

    def restore(self, name: str) -> None:
        """Mount what ``clone`` has kept, after another boot."""
        self.unmount()
        self._do("mv", self._base / name, self._image)
        self._mount()
        identity = self._spare / "boot_id"
        self._outside(identity).write_text(f"{uuid.uuid4()}\n")
        self._do("mount", "--bind", identity, _BOOT)

    def flush(self) -> None:
        """Write everything, as the kernel does in its own time."""
        self._do("sync", "-f", self._place if self._kind in IMAGES else self._under)

    def _outside(self, path: Path) -> Path:
        return Path(f"/proc/{self._namespace}/root{path}")

    def remount(self) -> None:
        """Unmount, and mount with another device number."""
        before = self.target.stat().st_dev
        for _attempt in range(20):  # several lower numbers may be free
            self.unmount()
            self._take_a_number()
            self._mount()
            if self.target.stat().st_dev != before:
                return
        raise AssertionError("the device number has not changed, so nothing is tested")

    def unmount(self) -> None:
        self._do("umount", self._place)
        if self._kind not in IMAGES:
            self._do("umount", self._under)

    def _take_a_number(self) -> None:
        """Mount an unrelated file system, and another one on a loop device: they get the lowest free numbers."""
        self._unrelated += 1
        place = self._spare / str(self._unrelated)
        place.mkdir()
        self._do("mount", "-t", "tmpfs", "tmpfs", place)
        self._do("mkdir", place / "on")
        self._do("truncate", "-s", "4M", place / "image")
        self._do("mkfs.ext4", "-q", place / "image")
        self._do("mount", "-o", "loop", place / "image", place / "on")

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start Python with these words in the project, as the user."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("MUDROOM_", "XDG_"))}
        environ |= {"MUDROOM_KEEPER": "0", "MUDROOM_STATE": f"{self._place}/state", "LC_ALL": "C.UTF-8"}
        environ |= {"HOME": f"{self._place}/home", "PYTHONDONTWRITEBYTECODE": "1"}
        enter = ["nsenter", "--mount", "--target", self._namespace, f"--wdns={self._place}/project"]
        if self.user:
            enter += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        return subprocess.Popen(
            [*enter, sys.executable, "-P", *map(str, words)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def mudroom(self, *words: str) -> Ended:
        """Run the command line in a process of its own: no descriptor keeps the file system mounted."""
        return self.python("-m", "mudroom", *words)

    def python(self, *words: str | Path) -> Ended:
        with self.start(*words) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def succeed(self, *words: str) -> str:
        ended = self.mudroom(*words)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout


@contextmanager
def remounted(base: Path, kind: str, user: str = "") -> Iterator[Remounted]:
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        if keeper.stdout.readline() != b"ready\n":
            pytest.skip(f"{kind} cannot be mounted here: there are no mount namespaces")
        ground = Remounted(base, kind, keeper.pid, user)
        try:
            for name in ("project", "home"):
                (ground.target / name).mkdir()
            if user:
                for path in (ground.target, *ground.target.iterdir()):
                    shutil.chown(path, user, user)
            yield ground
        finally:
            ground.unmount()  # ends a driver that is a process
