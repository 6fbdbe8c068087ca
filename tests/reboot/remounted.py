"""A project and its state on a file system that is unmounted and mounted again, as by a reboot, or that loses power.

For the latter its disk logs each write and each flush (``block_log.py``), and the disk is made again as it may be
found after any of them. No test is here.

All of it is in a mount namespace of its own: a sandbox of another test would keep the file system mounted.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import select
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import block_log

IMAGES = {"btrfs": "200M", "xfs": "400M", "ext4": "60M"}
KINDS = (*IMAGES, "overlayfs", "bindfs")
LAYERS = ("lower", "upper", "work")
ORDINARY = "mudroom-test"
HERE = Path(__file__).resolve().parent
SYSTEMS = HERE.parent / "systems"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Remounted:
    def __init__(self, base: Path, kind: str, namespace: int, user: str = "") -> None:
        self._namespace, self.user, self._kind = str(namespace), user, kind
        self._place = Path("/mnt")
        self._disk, self._fuse, self._under, self._boot = (base / name for name in ("disk", "fuse", "under", "boot_id"))
        self._image, self._numbers = self._disk / "image", [base / "odd", base / "even"]
        for path in (self._disk, self._fuse, self._under, *self._numbers):
            path.mkdir()
        self._log = block_log.Log(self._disk / "log")
        self._driver = -1
        """A pipe that the driver in a process holds open."""
        self._boots = {"image": _BOOT.read_text()}
        """By image: the boot that it was last mounted in."""
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

    def _do(self, *words: str | Path, descriptors: tuple[int, ...] = ()) -> None:
        argv = ["nsenter", "--mount", "--target", self._namespace, *map(str, words)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, pass_fds=descriptors)
        if done.returncode:
            pytest.skip(f"{self._kind} cannot be mounted here: {(done.stderr or done.stdout).strip()}")

    def _make(self) -> None:
        """Make an image. An overlay and a mirror by FUSE stand on ext4."""
        kind = self._kind if self._kind in IMAGES else "ext4"
        for program in (f"mkfs.{kind}", *(["bindfs"] if self._kind == "bindfs" else [])):
            if shutil.which(program) is None:
                pytest.skip(f"{self._kind} cannot be mounted here: {program} is not installed")
        self._do("mount", "-t", "tmpfs", "tmpfs", self._place)  # bindfs wants an empty directory
        self._do("truncate", "-s", IMAGES[kind], self._image)
        self._do(f"mkfs.{kind}", "-q", self._image)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Serve the disk, with the file system on it."""
        self._make()
        try:
            device = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"{self._kind} cannot be mounted here: {error}")
        words = (sys.executable, "-I", "-S", block_log.__file__, str(device), self._image, self._disk / "log")
        with subprocess.Popen(words, pass_fds=(device,)) as server:
            try:
                options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
                self._do("mount", "-i", "-t", "fuse", "-o", options, "log", self._fuse, descriptors=(device,))
                self._mount()
                with self.start(HERE / "commands.py") as self._commands:
                    yield
                self.unmount()  # ends a driver that is a process
                self._do("umount", self._fuse)  # and the server
            except BaseException:
                server.kill()
                raise
            finally:
                os.close(device)

    def _mount(self) -> None:
        image = self._fuse / os.fsdecode(block_log.NAME)
        if self._kind in IMAGES:
            self._do("mount", "-o", "loop", image, self._place)
            return
        self._do("mount", "-o", "loop", image, self._under)
        for name in LAYERS:
            self._do("mkdir", "-p", self._under / name)
        if self._kind == "bindfs":
            self._driver, held = os.pipe()
            self._do("bindfs", self._under / "lower", self._place, descriptors=(held,))
            os.close(held)
        else:
            layers = ",".join(f"{name}dir={self._under / name}" for name in LAYERS)
            self._do("mount", "-t", "overlay", "-o", layers, "overlay", self._place)

    # --- power ---

    def written(self) -> int:
        """Return the place in the log of the disk behind all that it was told until now."""
        return self._log.end

    def places(self, start: int, end: int) -> list[int]:
        """Return the places at which power can be cut: behind each write and each flush between two places."""
        return [place for place, _write in self._log.entries(start, end)]

    def keep(self, name: str) -> int:
        """Write everything, and keep the disk under a name. Return the place in the log."""
        self.flush()
        start = self.written()
        self._copy("image", name)
        return start

    def crash(self, name: str, kept: str, start: int, cut: int, draw: random.Random | None) -> None:
        """Make the disk ``name`` as it may be found if power fails at a place of the log: see ``Log.crash``. It is
        found after another boot."""
        self._log.crash(self._disk / kept, self._disk / name, start, cut, draw)
        self._boots[name] = f"{uuid.uuid4()}\n"

    def restore(self, kept: str, *, aside: str = "") -> int:
        """Mount a copy of the disk that is kept under a name, in its boot. ``aside``: the name that the disk gets which
        was mounted until now. Return the place in the log before."""
        self.unmount()
        if aside:
            self._copy("image", aside)
        self._copy(kept, "image")
        start = self.written()
        self._mount()
        return start

    @contextmanager
    def boot(self) -> Iterator[None]:
        """Show the boot that the disk was mounted in. No sandbox can be made meanwhile: a user namespace may mount no
        proc(5) if something stands over a part of it (``mount_too_revealing``, fs/namespace.c)."""
        self._boot.write_text(self._boots["image"])
        self._boot.chmod(0o644)
        self._do("mount", "--bind", self._boot, _BOOT)
        yield
        self._do("umount", _BOOT)

    def _copy(self, kept: str, name: str) -> None:
        self._do("cp", "--sparse=always", self._disk / kept, self._disk / name)
        self._boots[name] = self._boots[kept]

    def flush(self) -> None:
        """Write everything, as the kernel does in its own time."""
        self._do("sync", "-f", self._place if self._kind in IMAGES else self._under)

    # --- mounts and processes ---

    def remount(self) -> None:
        """Unmount, and mount with another device number."""
        before = self.target.stat().st_dev
        self.unmount()
        taken, given = self._numbers
        for _attempt in range(20):  # several lower numbers may be free
            self._take_a_number(taken)
            self._mount()
            if self.target.stat().st_dev != before:
                break
            self.unmount()
        else:
            raise AssertionError("the device number has not changed, so nothing is tested")
        self._give_numbers(given)
        self._numbers.reverse()

    def unmount(self) -> None:
        self._do("umount", self._place)
        if self._kind == "bindfs":  # its process keeps the file system below busy until it has ended
            os.read(self._driver, 1)
            os.close(self._driver)
        if self._kind not in IMAGES:
            self._do("umount", self._under)

    def _take_a_number(self, directory: Path) -> None:
        """Mount an unrelated file system, and another one on a loop device: they get the lowest free numbers."""
        place = directory / str(len(os.listdir(directory)))
        place.mkdir()
        self._do("mount", "-t", "tmpfs", "tmpfs", place)
        self._do("mkdir", place / "on")
        self._do("truncate", "-s", "4M", place / "image")
        self._do("mkfs.ext4", "-q", place / "image")
        self._do("mount", "-o", "loop", place / "image", place / "on")

    def _give_numbers(self, directory: Path) -> None:
        for place in directory.iterdir():
            self._do("umount", place / "on", place)
            place.rmdir()

    def start(self, script: Path, *words: str | Path) -> subprocess.Popen[str]:
        """Start a script of Python as the user. It is told by its standard input when to use the file system."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("MUDROOM_", "XDG_"))}
        environ |= {"MUDROOM_KEEPER": "0", "MUDROOM_STATE": f"{self._place}/state", "LC_ALL": "C.UTF-8"}
        environ |= {"HOME": f"{self._place}/home", "PROJECT": f"{self._place}/project", "PYTHONDONTWRITEBYTECODE": "1"}
        environ["PYTHONPATH"] = ":".join(map(str, (HERE, SYSTEMS)))
        enter = ["nsenter", "--mount", "--target", self._namespace, "--wdns=/"]
        if self.user:
            enter += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        argv = [*enter, sys.executable, "-P", script, *words]
        return subprocess.Popen(argv, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, *words: str) -> None:
        """Start a command: see ``commands.py``."""
        assert self._commands.stdin is not None
        self._commands.stdin.write(json.dumps(words) + "\n")
        self._commands.stdin.flush()

    def is_running(self) -> bool:
        assert self._commands.stdout is not None
        return not select.select([self._commands.stdout], [], [], 0)[0]

    def ended(self) -> Ended:
        """Wait for the command."""
        assert self._commands.stdout is not None
        return Ended(*json.loads(self._commands.stdout.readline()))

    def mudroom(self, *words: str) -> Ended:
        """Run the command line in a process of its own: no descriptor keeps the file system mounted."""
        self.begin("mudroom", *words)
        return self.ended()

    def look(self, *, another: bool = False) -> dict[str, Any]:
        """Return what a user finds. ``another``: the machine was started a moment ago."""
        places = (f"{self._place}/{name}" for name in ("project", "state", "home"))
        with self.boot():
            self.begin("look", *places, *(["another"] if another else []))
            ended = self.ended()
        assert ended.code == 0, ended.err[-2000:]
        found: dict[str, Any] = json.loads(ended.out)
        return found

    def succeed(self, *words: str) -> str:
        ended = self.mudroom(*words)
        assert ended.code == 0, (words, ended)
        return ended.out


@contextmanager
def remounted(base: Path, kind: str, user: str = "") -> Iterator[Remounted]:
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        if keeper.stdout.readline() != b"ready\n":
            pytest.skip(f"{kind} cannot be mounted here: there are no mount namespaces")
        ground = Remounted(base, kind, keeper.pid, user)
        with ground.mounted():
            for name in ("project", "home", "model"):
                (ground.target / name).mkdir()
            if user:
                for path in (ground.target, *ground.target.iterdir()):
                    shutil.chown(path, user, user)
            yield ground
