"""Programs as they are, on an island with a gate: none is told of a proxy, all are judged by name."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from island import Island
from mudroom.core.network.host_rules import HostRule
from origin import Web, certificate, tls
from settlement import Site
from town import Town

pytestmark = pytest.mark.both_users


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        town.names({name: [["127.0.0.1"]] for name in ("good.example", "evil.example")})
        yield town


@pytest.fixture
def island() -> Iterator[Island]:
    with Island() as island:
        if not island.is_there:
            pytest.skip("this machine gives no user and network namespaces")
        if not any(line.startswith("nameserver") for line in Path("/etc/resolv.conf").read_text().splitlines()):
            pytest.skip("this machine's /etc/resolv.conf names no server that a program could ask")
        yield island


def site(town: Town, island: Island, port: int) -> Site:
    return Site(town, island, (port,), HostRule("allow", "good.example", (port,), private=True))


@needs("curl")
def test_curl(town: Town, island: Island) -> None:
    port, secure = town.serve(Web()), town.serve(tls("good.example", Web(b"secure\n")))
    rules = [HostRule("allow", "good.example", (port, secure), private=True)]
    place = Site(town, island, (port, secure), *rules)
    curl = ["curl", "-sS", "--noproxy", "*", "--cacert", str(certificate("good.example"))]
    urls = [f"http://good.example:{port}/", f"https://good.example:{secure}/"]
    assert island.run(*curl, *urls) == (0, "hello\nsecure\n", "")
    code, _, said = island.run(*curl, f"http://evil.example:{port}/")
    assert (code, "Could not resolve host" in said) == (6, True)
    fronted = ["--connect-to", f"evil.example:{secure}:good.example:{secure}", "-k"]
    code, _, said = island.run(*curl, *fronted, f"https://evil.example:{secure}/")
    assert (code, "alert access denied" in said) == (35, True)
    place.guard.wait(flows=4)
    assert "evil.example" not in town.lookups()


@needs("node")
def test_nodes_fetch_which_knows_of_no_proxy(town: Town, island: Island) -> None:
    port = town.serve(Web())
    place = site(town, island, port)
    script = f"""
        const good = await fetch("http://good.example:{port}/"); process.stdout.write(await good.text());
        try {{ await fetch("http://evil.example:{port}/"); }} catch (error) {{ console.log(error.cause.code); }}
    """
    assert island.run("node", "--input-type=module", "-e", script) == (0, "hello\nENOTFOUND\n", "")
    place.guard.wait(flows=2)
    assert {(flow.way, flow.host, flow.verdict) for flow in place.guard.flows} >= {("http", "good.example", "allow")}


def test_python(town: Town, island: Island) -> None:
    port = town.serve(Web())
    site(town, island, port)
    script = (
        f"import urllib.request; print(urllib.request.urlopen('http://good.example:{port}/').read())\n"
        f"try: urllib.request.urlopen('http://evil.example:{port}/')\n"
        "except OSError as error: print(error.reason.strerror)"
    )
    assert island.run(sys.executable, "-c", script) == (0, "b'hello\\n'\nName or service not known\n", "")


@needs("git")
def test_git_clones_by_http(town: Town, island: Island, tmp_path: Path) -> None:
    repository = tmp_path / "repository.git"
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the empty one
    for argv in (["init", "-q", "--bare", "-b", "main", "."], ["hash-object", "-t", "tree", "-w", "/dev/null"]):
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", *argv], cwd=repository, check=True, capture_output=True)
    made = subprocess.run(
        ["git", *identity, "commit-tree", "-m", "m", tree], cwd=repository, check=True, capture_output=True
    )
    subprocess.run(["git", "update-ref", "refs/heads/main", made.stdout.strip()], cwd=repository, check=True)
    subprocess.run(["git", "update-server-info"], cwd=repository, check=True)
    files = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        place = site(town, island, port)
        clone = ["git", "clone", "-q"]
        code, _, said = island.run(*clone, f"http://good.example:{port}/repository.git", str(tmp_path / "clone"))
        assert (code, said) == (0, "")
        code, _, said = island.run(*clone, f"http://evil.example:{port}/repository.git", str(tmp_path / "other"))
        assert code == 128
        server.shutdown()
    place.guard.wait(flows=3)
    assert (tmp_path / "clone/.git/HEAD").exists()


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass
