"""One command floods the gate, and another, of another session, is served by the same gate meanwhile.

python -m conformance.bypasses.flood     a line of JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ..outside import PYTHON  # noqa: TID252 - the package has another name inside
from .outside import World

CONNECTIONS = 10_000
_PROCESSES = 20
_HELD = 12.0
"""Seconds that the flood is kept up after it has been made: making it takes longer on a busy machine."""

_FLOOD = f"""
import os, resource, select, socket, time
each, began = {CONNECTIONS} // {_PROCESSES}, time.monotonic()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, each + 64), hard))
reading, writing = os.pipe()
for number in range({_PROCESSES}):
    if os.fork():
        continue
    held, refused = [], 0
    for one in range(each):
        channel = socket.socket()
        channel.settimeout(3)
        try:
            channel.connect(("127.0.0.1", 3128) if one % 2 else ("45.33.7.7", 8080))
            channel.sendall((b"GET http://s1.good.example/ HTTP/1.1", b"CONNECT s1", b"\\x05\\x01", b"")[one % 4])
            held.append(channel)
        except OSError:
            refused += 1
    made = time.monotonic() - began
    end = time.monotonic() + {_HELD}
    while time.monotonic() < end:
        for channel in held:
            try:
                channel.send(b"x")
            except OSError:
                pass
        time.sleep(1)
    os.write(writing, b"%d %d %d\\n" % (len(held), refused, made))
    os._exit(0)
os.close(writing)
print(os.fdopen(reading).read())
"""

_SERVED = """
import os, socket, time
times = []
end = time.monotonic() + 15
while time.monotonic() < end:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", 3128), 30) as channel:
        head = b"GET http://s2.good.example/ HTTP/1.1\\r\\nHost: s2.good.example\\r\\n"
        channel.sendall(head + b"Connection: close\\r\\n\\r\\n")
        answer = b""
        while part := channel.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200"), answer
    times.append(time.monotonic() - began)
    time.sleep(0.05)
print(len(times), max(times))
"""


def flood() -> dict[str, Any]:
    world = World("overlay")
    try:
        for name in ("flood", "served"):
            world.project(name)
        run = [PYTHON, "-I", "-S", "-c"]
        began = time.monotonic()
        said, trouble = world.drive({"flood": [[*run, _FLOOD]], "served": [[*run, _SERVED]]})
        took = time.monotonic() - began
        world.stop()
        most = max((len(one.open) for one in (world.home, world.internet)), default=0)
        counts = {one["project"]: one for one in said}
        return {"said": counts, "trouble": trouble, "seconds": took, "left": most}
    finally:
        world.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(flood()) + "\n")
    sys.stdout.flush()
    os._exit(0)
