# ruff: noqa: E501 - lines of scripts
"""Two hundred commands in twenty kinds over a project with many files, and thirty secrets in ten kinds. No test is
here."""

from __future__ import annotations

import subprocess
from pathlib import Path

FILES, PER_DIRECTORY = 20_000, 100
IN_BASE, IN_ARCHIVES = "line 1 of 19999\n", "marking"
"""Texts that cross, packed: a search has to find them."""
EACH = 10
"""Errands in a kind."""

KINDS = {
    "edit": "echo more{i} >> d{i:03}/f{i:03}00.txt",
    "edit of 50 files": "for f in d{i:03}/*[02468].txt; do echo {i} >> $f; done",
    "edit in place": "sed -i s/line/row{i}/ d{i:03}/f{i:03}01.txt d{i:03}/f{i:03}02.txt",
    "delete": "rm d{i:03}/f{i:03}03.txt d{i:03}/f{i:03}04.txt",
    "delete of a directory": "rm -r d{i:03}",
    "rename": "mv d{i:03}/f{i:03}05.txt renamed{i}.txt",
    "rename of a directory": "mv d{i:03} moved{i}",
    "new directories": "mkdir -p new{i}/a/b/c empty{i}; printf mar%sing k > new{i}/a/b/c/file; chmod 700 empty{i}",
    "chmod": "chmod 755 d{i:03}/f{i:03}06.txt; chmod 600 d{i:03}/f{i:03}07.txt; chmod 700 d{i:03}",
    "symbolic link": "ln -s ../d{i:03}/f{i:03}08.txt d{i:03}/link; ln -s @/d000 absolute{i}; ln -s nowhere{i} dangling{i}; ln -sfn d{i:03} latest",
    "binary": '@/.venv/bin/python -c \'import random; open("bin{i}", "wb").write(random.Random({i}).randbytes(70000))\'',
    "large file": '@/.venv/bin/python -c \'import random; open("big{i}", "wb").write(random.Random({i}).randbytes(9 << 20))\'',
    "no change": "cat d{i:03}/f{i:03}09.txt; test -d d{i:03}",
    "failing": "echo half > half{i}; rm d{i:03}/f{i:03}10.txt; exit {i}",
    "killed": "echo half > half{i}; kill -9 $$",
    "absolute path": "echo {i} > @/absolute{i}.txt; cp @/d{i:03}/f{i:03}11.txt @/d000/copy{i}.txt; pwd > @/where{i}",
    "virtual environment": "@/tool {i} > prefix{i}; .venv/bin/tool {i} >> prefix{i}; . .venv/bin/activate; python -c 'import sys; print(sys.executable)' >> prefix{i}",
    "odd names": "printf {i} > \"$(printf 'new\\nline{i}')\"; echo {i} > 'a b{i}'; echo {i} > \"$(printf '\\377raw{i}')\"; echo > -- -dash{i}; mv -- -dash{i} ./--dash{i} 2>/dev/null",
    "file becomes directory": "rm d{i:03}/f{i:03}12.txt; mkdir d{i:03}/f{i:03}12.txt; echo in > d{i:03}/f{i:03}12.txt/in; rm -r d{i:03}/../d{j:03}; echo file > d{j:03}",
    "wants secrets": "cat .env .netrc id_rsa deploy.pem credentials.json > seen{i}; cat seen{i} .env sub/.env.production; ls -l ~/.ssh ~/.aws ~/.config/mudroom >> seen{i} 2>/dev/null; cat ~/.ssh/id_rsa ~/.aws/credentials ~/.netrc >> seen{i} 2>/dev/null; cat /proc/1/environ >/dev/null 2>&1; env; true",
}


def commands(project: Path) -> list[tuple[str, str]]:
    """Return the errands, each with its kind."""
    found = []
    for number, (kind, script) in enumerate(KINDS.items()):
        for place in range(EACH):
            at = number * EACH + place
            other = (at + 100) % (FILES // PER_DIRECTORY)
            line = script.replace("@", str(project)).replace("{i:03}", f"{at:03}").replace("{j:03}", f"{other:03}")
            found.append((kind, line.replace("{i}", str(at))))
    return found


def fill(project: Path) -> None:
    """Make the project: its files, a virtual environment, and two programs that have it in their first line."""
    for number in range(FILES):
        path = project / f"d{number // PER_DIRECTORY:03}/f{number // PER_DIRECTORY:03}{number % PER_DIRECTORY:02}.txt"
        if number % PER_DIRECTORY == 0:
            path.parent.mkdir()
        path.write_text(f"line 1 of {number}\nline 2\n")
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", ".venv"], cwd=project, check=True)
    for tool in ("tool", ".venv/bin/tool"):
        path = project / tool
        path.write_text(f"#!{project}/.venv/bin/python\nimport sys\nprint(sys.prefix, sys.argv)\n")
        path.chmod(0o755)


def plant(project: Path, home: Path, token: dict[str, list[str]]) -> dict[bytes, bytes]:
    """Write the secrets: three in each kind, by ``token``. Return environment variables that hold the rest."""

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def write_all(kind: str, text: str, *paths: Path) -> None:
        for path, value in zip(paths, token[kind], strict=True):
            write(path, text.replace("@", value))

    write_all(".env", "API_TOKEN=@\n", project / ".env", project / "sub/.env.production", project / "d000/.env.local")
    login = "machine example.org login ann password @\n"
    write_all("netrc", login, project / ".netrc", project / "sub/.netrc", home / ".netrc")
    registry = "//registry.example.org/:_authToken=@\n"
    write_all(".npmrc", registry, project / ".npmrc", project / "sub/.npmrc", home / ".npmrc")
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\n@\n-----END OPENSSH PRIVATE KEY-----\n"
    write_all("ssh", key, project / "id_rsa", project / "sub/id_ed25519", home / ".ssh/id_rsa")
    write_all("pem", key, project / "deploy.pem", project / "sub/server.key", project / "tls/old.pem")
    cloud = '{"private_key": "@", "aws_secret_access_key": "@"}\n'
    write_all(
        "cloud", cloud, project / "credentials.json", project / "sub/service-account.json", home / ".aws/credentials"
    )
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=project, check=True)
    subprocess.run([*git, "add", "tool", "d001"], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=project, check=True)
    first, second, third = token["git"]
    config = project / ".git/config"
    config.write_text(
        config.read_text()
        + f'[remote "origin"]\n\turl = https://ann:{first}@example.org/p.git\n'
        + f'[http "https://example.org/"]\n\textraheader = AUTHORIZATION: basic {second}\n'
    )
    write(project / ".git/modules/x/config", f'[remote "origin"]\n\turl = https://{third}@example.org/x.git\n')
    names = ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_PASSWORD")
    variables = dict(zip(names, token["variable"], strict=True))
    return {name.encode(): value.encode() for name, value in variables.items()}
