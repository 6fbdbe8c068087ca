"""Clients beside an engine of containers, unchanged: docker-py, and Testcontainers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.engine.numbers import lacking
from mudroom.session import Session
from test_engine import write_image

pytestmark = pytest.mark.both_users

DOCKER_PY = """
import json, os, sys, urllib.request
import docker

client, said = docker.from_env(), {}
client.images.build(path="image", tag="page", rm=True)
said["images"] = [tag.rpartition("/")[2] for row in client.images.list() for tag in row.tags]
said["run"] = client.containers.run("page", "cat /w/index.html", remove=True).decode()
try:
    client.containers.run("page", ["sh", "-c", "echo bad >&2; exit 3"], remove=True)
except docker.errors.ContainerError as error:
    said["error"] = [error.exit_status, error.stderr.decode()]
container = client.containers.run(
    "page", ["sh", "-c", "echo ready; httpd -f -p 80 -h /w"], detach=True, ports={"80/tcp": None}, name="web",
    labels={"of": "test"}, environment={"WORD": "word"}, volumes={os.getcwd(): {"bind": "/p", "mode": "rw"}},
)
said["log"] = next(container.logs(stream=True)).decode()
said["list"] = [row.name for row in client.containers.list(filters={"label": "of=test"})]
said["exec"] = container.exec_run(["sh", "-c", "(echo $WORD; cat /p/input) >/p/output; exit 4"]).exit_code
outputs = (container.exec_run("echo said").output for _again in range(5))  # Podman loses one of hundreds
said["output"] = next(filter(None, outputs)).decode()
container.reload()
port = container.ports["80/tcp"][0]["HostPort"]
while "page" not in said and container.status == "running":  # until it serves
    try:
        said["page"] = urllib.request.urlopen(f"http://localhost:{port}/").read().decode()
    except OSError:
        container.reload()
client.volumes.create("data")
data = {"data": {"bind": "/d", "mode": "rw"}}
client.containers.run("page", ["sh", "-c", "echo kept >/d/f"], volumes=data, remove=True)
said["volume"] = client.containers.run("page", "cat /d/f", volumes=data, remove=True).decode()
container.stop(timeout=0)
container.remove()
said["left"] = len(client.containers.list(all=True))
print(json.dumps(said))
"""

TESTCONTAINERS = """
import os, urllib.request
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import wait_for_logs

with DockerImage(path="image", tag="page:latest") as image, Network() as network:
    page = DockerContainer(str(image)).with_command(["sh", "-c", "echo ready; httpd -f -p 80 -h /w"])
    page = page.with_exposed_ports(80).with_network(network).with_network_aliases("web")
    with page.with_volume_mapping(os.getcwd(), "/p", "rw") as container:
        wait_for_logs(container, "ready", timeout=60)
        url = f"http://{container.get_container_host_ip()}:{container.get_exposed_port(80)}/"
        served = None
        while served is None and container.get_wrapped_container().status != "exited":
            try:
                served = urllib.request.urlopen(url).read()
            except OSError:
                container.get_wrapped_container().reload()
        print(served.decode(), end="")
        print(container.exec(["cp", "/p/input", "/p/output"]).exit_code)
        address = container.get_wrapped_container().attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"]
        with DockerContainer(str(image)).with_network(network).with_command("sleep 1000") as other:
            script = f"echo GET / HTTP/1.0 | nc {address} 80 | tail -1 >/w/beside; exec grep page /w/beside"
            print(other.exec(["sh", "-c", script]).exit_code)
"""


@pytest.fixture
def project(place: Place) -> Place:
    """A project with the recipe of an image: Busybox, and a page."""
    busybox = shutil.which("busybox")
    if os.geteuid() == 0:
        pytest.skip("an engine beside a command is not for root")
    if (missing := lacking()) or busybox is None:
        pytest.skip(f"no engine beside a command here: {missing[0][0] if missing else 'busybox'}")
    place.write("image/page", "page\n")
    place.write("image/Dockerfile", "FROM scratch\nADD box.tar /\nCOPY page /w/\nRUN mv /w/page /w/index.html\n")
    write_image(place.project / "image/box.tar", Path(busybox))
    place.write("input", "in\n")
    return place


def run(place: Place, *words: str) -> tuple[Session, Any]:
    session = place.session(Settings(engine_beside=True))
    return session, session.run([sys.executable.encode(), *(word.encode() for word in words)])


def test_docker_py_builds_runs_and_asks(project: Place) -> None:
    project.write("client.py", DOCKER_PY)
    session, result = run(project, "client.py")
    assert result.exit_code == 0, result.stderr.decode()
    assert json.loads(result.stdout) == {
        "images": ["page:latest"],
        "run": "page\n",
        "error": [3, "bad\n"],
        "log": "ready\n",
        "list": ["web"],
        "exec": 4,
        "output": "said\n",
        "page": "page\n",
        "volume": "kept\n",
        "left": 0,
    }
    assert not (project.project / "output").exists()
    session.changes.apply(result.fork)
    assert (project.project / "output").read_text() == "word\nin\n"


def test_testcontainers_serve_a_page_on_a_network(project: Place) -> None:
    project.write("client.py", TESTCONTAINERS)
    _session, result = run(project, "client.py")
    assert result.exit_code == 0, (result.stdout + result.stderr).decode()[-4000:]
    assert result.stdout == b"page\n0\n0\n"
