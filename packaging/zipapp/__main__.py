"""The start of the zipapp: unpack mudroom and its dependencies once, then become the mudroom that lies there.

Extension modules and the programs that a sandbox starts have to be files, so nothing is imported from the archive.

Rules of this file:
1. The place is a directory of this user's alone, named after the digest of the contents and the version of Python:
   $XDG_CACHE_HOME/mudroom/zipapp. A place that others may write to, or a link, is refused; so is one below a directory
   in which others may rename it. It never depends on the current directory, which may be a stranger's project.
2. Each file is compared with its digest while it is unpacked. The directory gets its name by rename(2) when it is
   whole. One start at a time unpacks, by a lock on the place; the next one finds it whole and leaves it alone, because
   the first may run from it already. A later start compares sizes, which finds a cache that was cleaned in part; such
   a place is unpacked anew.
3. Old Python can read this file, to say that it is too old.
4. The native client starts its script as the kernel does, so the script has the interpreter's path in its first line.
"""

import os
import sys

OLDEST = (3, 11)
CLIENT, SCRIPT = "bin/mudroom", "bin/mudroom-python"
LONGEST = 127  # bytes of a first line (execve(2), before Linux 5.1), in which a space ends the path


def fail(message, hint):
    sys.stderr.write("mudroom: %s (%s)\n" % (message, hint))
    sys.exit(125)


def refuse_open_parent(place):
    # The owner of a directory, and all who may write to it without the sticky bit, can rename what is in it.
    trusted = (0, os.geteuid(), os.stat("/").st_uid)  # the last: root, as a user namespace shows it
    parent = os.path.dirname(place)
    while True:
        status = os.stat(parent)
        if status.st_uid not in trusted or (status.st_mode & 0o002 and not status.st_mode & 0o1000):
            fail("others may replace %s: they may write to %s" % (place, parent), "set XDG_CACHE_HOME")
        if parent == "/":
            return
        parent = os.path.dirname(parent)


def cache():
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not home.startswith("/"):
        home = os.path.expanduser("~/.cache")
    if not home.startswith("/"):  # without HOME "~" stays as it is
        fail("there is no home directory", "set XDG_CACHE_HOME to a directory of your own")
    place = home + "/mudroom/zipapp"
    try:
        mask = os.umask(0o077)  # makedirs has a mode for the last directory only
        try:
            os.makedirs(place, exist_ok=True)
        finally:
            os.umask(mask)
        status = os.lstat(place)
        refuse_open_parent(os.path.realpath(place))
    except OSError as error:
        fail("%s: %s" % (place, error.strerror), "set XDG_CACHE_HOME to a directory of your own")
    if status.st_mode & 0o170000 != 0o040000 or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        fail("%s is not a directory of yours alone" % place, "chmod go-w it, or set XDG_CACHE_HOME")
    return place


def script(place):
    return os.fsencode("#!%s/bin/python3\nfrom mudroom.cli import main\n\nmain()\n" % place)


def unpack(archive, manifest, place, version):
    import fcntl
    import shutil

    cache = os.path.dirname(place)
    lock = os.open(cache, os.O_RDONLY)  # released by exec
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(manifest, place):  # another first start was faster
            return
        for name in os.listdir(cache):
            if name.startswith("new-"):  # of a start that was killed: nobody else has the lock
                shutil.rmtree(cache + "/" + name, ignore_errors=True)
        write(archive, manifest, place, version)
    finally:
        os.close(lock)


def write(archive, manifest, place, version):
    import hashlib
    import shutil
    import tempfile

    new = tempfile.mkdtemp(dir=os.path.dirname(place), prefix="new-")
    try:
        for name, (digest, _size, mode) in manifest.items():
            data = script(place) if name == SCRIPT else archive.read("tree/" + name)
            if name != SCRIPT and hashlib.sha256(data).hexdigest() != digest:
                fail("the zipapp is damaged at %s" % name, "get it again")
            path = new + "/" + name
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(data)
            os.chmod(path, mode)
        os.symlink("python3", "%s/lib/python%s" % (new, version))
        base = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
        os.makedirs(new + "/bin", exist_ok=True)
        os.symlink(base, new + "/bin/python3")
        with open(new + "/pyvenv.cfg", "w") as stream:
            stream.write("home = %s\ninclude-system-site-packages = false\n" % os.path.dirname(base))
        shutil.rmtree(place, ignore_errors=True)
        os.rename(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def is_whole(manifest, place):
    try:
        if not os.path.exists(place + "/bin/python3"):
            return False
        return all(os.stat(place + "/" + name).st_size == size for name, (_digest, size, _mode) in manifest.items())
    except OSError:
        return False


def main():
    if sys.version_info < OLDEST:
        fail("Python %d.%d is too old" % sys.version_info[:2], "python3.11 or newer: python3.12 %s" % sys.argv[0])
    import json
    import zipfile

    version = "%d.%d" % sys.version_info[:2]
    with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
        versions = archive.read("tree/versions").decode().split()
        if version not in versions:
            fail("this zipapp is for Python %s, not %s" % (", ".join(versions), version), "pipx install mudroom")
        manifest = json.loads(archive.read("manifest.json"))
        manifest.pop("pyvenv.cfg", None)
        place = "%s/%s-%s" % (cache(), archive.read("digest").decode()[:16], version)
        if SCRIPT in manifest:
            manifest[SCRIPT] = ("", len(script(place)), 0o755)
        if not is_whole(manifest, place):
            try:
                unpack(archive, manifest, place, version)
            except OSError as error:
                fail("%s: %s" % (error.filename or place, error.strerror), "set XDG_CACHE_HOME to a place with room")
            except KeyboardInterrupt:
                sys.exit(130)
    python = place + "/bin/python3"
    if SCRIPT in manifest and len(os.fsencode(python)) + 2 < LONGEST and " " not in python:
        try:
            os.execv(place + "/" + CLIENT, [CLIENT, *sys.argv[1:]])
        except OSError:
            pass  # it is for another machine
    # Not -m, which looks into the current directory first.
    os.execv(python, [python, place + "/" + (SCRIPT if SCRIPT in manifest else CLIENT), *sys.argv[1:]])


main()
