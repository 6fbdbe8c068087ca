"""A project and its state on a file system that is unmounted and mounted again, as by a reboot. No test is here.

All of it is in a mount namespace of its own: a sandbox of another test would keep the file system mounted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGES = {"btrfs": "200M", "xfs": "400M", "ext4": "60M"}
KINDS = (*IMAGES, "overlayfs", "bindfs")
LAYERS = ("lower", "upper", "work")
Ended = subprocess.CompletedProcess[str]


class Remounted:
    def __init__(self, base: Path, kind: str, namespace: int) -> None:
        self._namespace = str(namespace)
        self._place, self._spare, self._base = base / "target", base / "spare", base / kind
        for path in (self._place, self._spare, self._base):
            path.mkdir()
        self._kind, self._unrelated = kind, 0
        self._make()
        self._mount()
        self.target = Path(f"/proc/{namespace}/root{self._place}")

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
        program = f"mkfs.{self._kind}" if self._kind in IMAGES else "bindfs" if self._kind == "bindfs" else "mount"
        if shutil.which(program) is None:
            pytest.skip(f"{self._kind} cannot be mounted here: {program} is not installed")
        if self._kind in IMAGES:
            self._do("truncate", "-s", IMAGES[self._kind], self._base / "image")
            self._do(program, "-q", self._base / "image")
            return
        self._do("mount", "-t", "tmpfs", "tmpfs", self._base)  # an overlay's upper directory is on no overlay
        for name in LAYERS:
            self._do("mkdir", self._base / name)

    def _mount(self) -> None:
        if self._kind in IMAGES:
            self._do("mount", "-o", "loop", self._base / "image", self._place)
        elif self._kind == "bindfs":
            self._do("bindfs", self._base / "lower", self._place)
        else:
            layers = ",".join(f"{name}dir={self._base / name}" for name in LAYERS)
            self._do("mount", "-t", "overlay", "-o", layers, "overlay", self._place)

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

    def mudroom(self, *words: str) -> Ended:
        """Run the command line in a process of its own: no descriptor keeps the file system mounted."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("MUDROOM_", "XDG_"))}
        environ |= {"MUDROOM_KEEPER": "0", "MUDROOM_STATE": f"{self._place}/state", "LC_ALL": "C.UTF-8"}
        environ |= {"HOME": f"{self._place}/home"}
        enter = ["nsenter", "--mount", "--target", self._namespace, f"--wdns={self._place}/project"]
        return subprocess.run(
            [*enter, sys.executable, "-P", "-m", "mudroom", *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def succeed(self, *words: str) -> str:
        ended = self.mudroom(*words)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout


@contextmanager
def remounted(base: Path, kind: str) -> Iterator[Remounted]:
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        if keeper.stdout.readline() != b"ready\n":
            pytest.skip(f"{kind} cannot be mounted here: there are no mount namespaces")
        ground = Remounted(base, kind, keeper.pid)
        try:
            for name in ("project", "home"):
                (ground.target / name).mkdir()
            yield ground
        finally:
            ground.unmount()  # ends a driver that is a process
