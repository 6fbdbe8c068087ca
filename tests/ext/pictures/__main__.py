"""``python -m tests.ext.pictures [NAME…]``: writes docs/pictures, from a real run in a real browser."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "web"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from browser import mudroom, serving
from playwright.sync_api import sync_playwright

from conftest import Place
from pictures.scene import make
from pictures.shots import SHOTS, take

DOCS = Path(__file__).parents[3] / "docs/pictures"
SHOWN = "/srv"
"""Where the project seems to be: a path that nobody's machine has."""
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18


def apart() -> Path:
    """A directory that only we see, as root: mount_namespaces(7). Else any."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() or libc.unshare(CLONE_NEWNS):
        return Path(tempfile.mkdtemp(prefix="mudroom-pictures-"))
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    if libc.mount(b"tmpfs", SHOWN.encode(), b"tmpfs", 0, b"mode=755"):
        raise OSError(ctypes.get_errno(), "mount")
    return Path(SHOWN)


def main(names: list[str]) -> None:
    root = apart()
    os.environ["PATH"] = "/usr/bin:/bin"  # nothing of this machine's user is in the pictures
    from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher

    DOCS.mkdir(exist_ok=True)
    with closing(LauncherClient(SpawnedLauncher())) as client:
        client.start()
        place = Place(root, client)
        place.project.rmdir()
        place.project = root / "shop"
        place.project.mkdir()
        make(place)
        with serving(place) as site, sync_playwright() as playwright:
            where = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=where, chromium_sandbox=os.geteuid() != 0)
            for shot in SHOTS:
                if not names or shot.name in names:
                    take(shot, place, site, browser, DOCS)
            browser.close()
        mudroom(place, "ps", "--end", "--all")


main(sys.argv[1:])
