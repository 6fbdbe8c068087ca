"""Time of a push that is held, beside direct ones: outside, and through the gate to a host that is allowed.

    python tests/ext/effects/cost.py [TURNS]

The ways take turns; the clock runs around ``git push`` alone. The table has medians, and the median of each turn's
ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(ROOT / "tests/net"), str(ROOT / "tests/ext/inspection"), str(ROOT / "tests")]

import pytest  # noqa: E402
from forge import ENVIRONMENT  # noqa: E402
from ssh_host import USER, SshHost  # noqa: E402
from yard import Yard  # noqa: E402

from mudroom.core.network.host_rules import parse_rule  # noqa: E402
from mudroom.session import Session  # noqa: E402
from mudroom.session.confinement import command_gate  # noqa: E402
from town import Town  # noqa: E402

WORK = (
    "echo x >> a; git commit -qam x; began=$(date +%s%N); git push -q {} HEAD:refs/heads/{}; "
    "echo $(($(date +%s%N) - began))"
)


def inside(yard: Yard, session: Session, fork: str, url: str, name: str) -> float:
    done = yard.run(session, WORK.format(url, name), fork)
    assert done.exit_code == 0, done.stderr
    return int(done.stdout) / 1e9


def outside(project: Path, path: str, options: list[str], url: str, name: str) -> float:
    words = [word for option in options for word in ("-c", option)]
    script = WORK.format(url, name).replace("git push", " ".join(["git", *words, "push"]))
    done = subprocess.run(
        ["sh", "-ec", script], cwd=project, env=ENVIRONMENT | {"PATH": path}, capture_output=True, check=True
    )
    return int(done.stdout) / 1e9


def measured(turns: int, root: Path, town: Town) -> dict[str, list[float]]:
    yard = Yard(root, town)
    host = SshHost(root / "ssh", yard.forge.root)
    port, path = town.serve(host.talk), f"{host.path}:{os.environ['PATH']}"
    ssh = f"ssh://{USER}@forge.example:{port}{yard.forge.root}/team/app.git"
    web = yard.url(tls=True)
    rule = parse_rule(f"forge.example:{port},{yard.tls_port}", "hold", "the measurement", private=True)
    own = root / "own"
    subprocess.run(["git", "clone", "-q", str(yard.project), str(own)], env=ENVIRONMENT, check=True)
    direct = [f"http.curloptResolve=forge.example:{yard.tls_port}:127.0.0.1", f"http.sslCAInfo={root}/roots.pem"]
    found: dict[str, list[float]] = {}
    with yard.session(rule, PATH=path) as holding, yard.session(hold=False, PATH=path) as allowing:
        for turn in range(turns + 1):
            times = {
                "https, direct": outside(own, path, direct, web, f"d{turn}"),
                "https, through the gate": inside(yard, allowing, "allowed", web, f"g{turn}"),
                "https, held": inside(yard, holding, "held", web, f"h{turn}"),
                "ssh, direct": outside(own, path, [], ssh, f"s{turn}"),
                "ssh, held": inside(yard, holding, "held", ssh, f"t{turn}"),
            }
            for way, seconds in times.items() if turn else ():  # the first of each loads its libraries
                found.setdefault(way, []).append(seconds)
    return found


def main(arguments: list[str]) -> int:
    turns = int(arguments[0]) if arguments else 15
    with tempfile.TemporaryDirectory(prefix="cost-") as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        (root / "town").mkdir()
        with Town(root / "town") as town:
            patch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
            found = measured(turns, root, town)
    for way, times in found.items():
        pairs = zip(times, found[f"{way.partition(',')[0]}, direct"], strict=True)
        ratio = statistics.median(own / direct for own, direct in pairs)
        sys.stdout.write(f"| {way} | {statistics.median(times):.2f} s | {ratio:.2f} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
