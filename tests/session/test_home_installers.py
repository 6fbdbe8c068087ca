"""Real tools and installers that write into the home: staged, applied, used, and taken back to the byte.

Each row is a script that runs with a staged home, a command that uses on the host what has landed, and what that prints.
The user edits a startup file before the apply and another line of it after that: both are kept.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import Place, listing, tick


class Tool(NamedTuple):
    name: str
    script: str
    use: str
    prints: str
    needs: tuple[str, ...] = ()
    """Programs without which the row is skipped."""
    is_quick: bool = False


NVM = """
mkdir -p ~/.vm/versions/v1/bin; printf '#!/bin/sh\\necho node 1\\n' > ~/.vm/versions/v1/bin/n1
chmod +x ~/.vm/versions/v1/bin/n1; ln -sfn versions/v1 ~/.vm/current
for rc in ~/.bashrc ~/.profile; do printf '\\nexport VM_DIR="$HOME/.vm"\\nPATH="$VM_DIR/current/bin:$PATH"\\n' >> $rc; done
"""
PYENV = """
git init -q --bare ~/.p/repo; git clone -q ~/.p/repo ~/.penv 2>/dev/null; mkdir -p ~/.penv/bin
printf '#!/bin/sh\\necho penv\\n' > ~/.penv/bin/penv; chmod +x ~/.penv/bin/penv; rm -r ~/.p
echo 'eval "$(~/.penv/bin/penv)"' >> ~/.zshrc
"""
DESKTOP = """
mkdir -p ~/.local/share/applications ~/.local/share/icons
printf '[Desktop Entry]\\nType=Application\\nName=T\\nExec=t\\nMimeType=text/x-t;\\n' > ~/.local/share/applications/t.desktop
xdg-mime default t.desktop text/x-t
"""
UNIT = """
mkdir -p ~/.config/systemd/user/default.target.wants; printf '[Service]\\nExecStart=/bin/true\\n' > ~/.config/systemd/user/t.service
ln -s ../t.service ~/.config/systemd/user/default.target.wants/t.service
"""
TOOLS = (
    Tool("git config", "git config --global alias.st 'status -sb'", "git config --global alias.st", "status -sb", ("git",), True),
    Tool("shell installer", NVM, '. ~/.profile; n1', "node 1", (), True),
    Tool("wheel", "'{python}' -m pip install -q --no-index --no-warn-script-location --prefix ~/.local {wheel}",
         "~/.local/bin/hello-wheel", "from a wheel", ("{python} -m pip",), True),
    Tool("npm config set", "npm config set fund false; npm config set init-author-name Me",
         "npm config get init-author-name", "Me", ("npm",)),
    Tool("npm install -g", "npm install -g --offline --no-audit --no-fund --prefix ~/.npm-global ./package",
         "~/.npm-global/bin/hello-package", "from a package", ("npm",)),
    Tool("npm link", "cd package; npm link --offline --prefix ~/.npm-global --no-audit --no-fund",
         "test -L ~/.npm-global/lib/node_modules/hello-package && echo linked", "linked", ("npm",)),
    Tool("npm completion", "npm completion >> ~/.bashrc", "grep -c '_npm_completion ()' ~/.bashrc", "1", ("npm",)),
    Tool("pip config", "'{python}' -m pip config -q set global.timeout 61", "'{python}' -m pip config get global.timeout",
         "61", ("{python} -m pip",)),
    Tool("venv", "/usr/bin/python3 -m venv --without-pip ~/.venvs/x; ln -s ../../.venvs/x/bin/python ~/.local/bin/xpython",
         "~/.local/bin/xpython -c 'import sys; print(sys.prefix[-8:])'", ".venvs/x"),
    Tool("uv tool shell", "{uv} tool update-shell 2>&1; mkdir -p ~/.local/bin; cp {uv} ~/.local/bin/uv",
         "~/.local/bin/uv --version | cut -c1-3", "uv ", ("{uv}",)),
    Tool("uv python pin", "mkdir -p ~/.config/uv; {uv} python pin --global 3.11 2>&1 || echo 3.11 > ~/.config/uv/.python-version",
         "cat ~/.config/uv/.python-version", "3.11", ("{uv}",)),
    Tool("corepack", "corepack enable --install-directory ~/.local/bin", "test -L ~/.local/bin/yarn && echo yarn", "yarn", ("corepack",)),
    Tool("fish", "fish -c 'set -U greeting hi; fish_add_path -U ~/.local/bin; funcsave -q fish_prompt' >/dev/null",
         "fish -c 'echo $greeting'", "hi", ("fish",)),
    Tool("fish completions", "mkdir -p ~/.config/fish/completions; echo 'complete -c t -a x' > ~/.config/fish/completions/t.fish",
         "fish -c 'complete -C \"t \"' | head -1", "x", ("fish",)),
    Tool("zsh", "mkdir -p ~/.zfunc; echo '#compdef t' > ~/.zfunc/_t; printf 'fpath+=~/.zfunc\\nautoload -U compinit\\n' >> ~/.zshrc",
         "zsh -c '. ~/.zshrc; echo $fpath[-1]'", "{home}/.zfunc", ("zsh",)),
    Tool("vim plugin", "mkdir -p ~/.vim/pack/t/start/t/plugin; echo 'let g:t = 7' > ~/.vim/pack/t/start/t/plugin/t.vim; "
         "echo 'set nocp' > ~/.vimrc", "vim -es -c 'redir! > /dev/stdout | echo g:t | qa!'", "7", ("vim",)),
    Tool("tmux", "printf 'set -g prefix C-a\\n' > ~/.tmux.conf; mkdir -p ~/.tmux/plugins/t", "cat ~/.tmux.conf", "set -g prefix C-a"),
    Tool("fonts", "mkdir -p ~/.local/share/fonts; echo not a font > ~/.local/share/fonts/t.ttf; fc-cache -f ~/.local/share/fonts",
         "ls ~/.local/share/fonts | head -1", ".uuid", ("fc-cache",)),
    Tool("git clone", PYENV, "~/.penv/bin/penv", "penv", ("git",)),
    Tool("desktop file", DESKTOP, "grep -c t.desktop ~/.config/mimeapps.list", "1", ("xdg-mime",)),
    Tool("user unit", UNIT, "readlink ~/.config/systemd/user/default.target.wants/t.service", "../t.service"),
    Tool("git template", "mkdir -p ~/.git-template/hooks; echo '#!/bin/sh' > ~/.git-template/hooks/pre-commit; "
         "git config --global init.templateDir ~/.git-template", "git config --global init.templateDir", "{home}/.git-template", ("git",)),
    Tool("cargo-like", "mkdir -p ~/.cargo/bin; printf '#!/bin/sh\\necho c\\n' > ~/.cargo/bin/c; chmod +x ~/.cargo/bin/c; "
         "echo 'PATH=$HOME/.cargo/bin:$PATH' > ~/.cargo/env; echo '. ~/.cargo/env' >> ~/.profile", ". ~/.profile; c", "c"),
)  # fmt: skip
RC = "export A=1\n\n\n\n\nexport B=2\n"


def wheel(directory: Path) -> Path:
    """A wheel with one script, made by hand: PEP 427."""
    files = {
        "hello_wheel.py": "def main():\n    print('from a wheel')\n",
        "hello_wheel-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello-wheel\nVersion: 1\n",
        "hello_wheel-1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "hello_wheel-1.dist-info/entry_points.txt": "[console_scripts]\nhello-wheel = hello_wheel:main\n",
    }
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for name, text in files.items()
    ]
    files["hello_wheel-1.dist-info/RECORD"] = "\n".join([*rows, "hello_wheel-1.dist-info/RECORD,,", ""])
    path = directory / "hello_wheel-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def uv() -> str:
    """The program of the wheel of uv, if it lies where ``MUDROOM_UV`` says, or is installed."""
    return os.environ.get("MUDROOM_UV") or shutil.which("uv") or "no-uv"


def furnish(place: Place) -> None:
    for name in (".bashrc", ".profile"):
        (place.home / name).write_text(RC)
    (place.home / ".config").mkdir()
    (place.home / ".local/bin").mkdir(parents=True)
    place.write("package/package.json", '{"name": "hello-package", "version": "1.0.0", "bin": "hello.js"}')
    place.write("package/hello.js", "#!/usr/bin/env node\nconsole.log('from a package')\n", mode=0o755)
    wheel(place.project)


def used(place: Place, words: str) -> str:
    env = {"HOME": str(place.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    env |= {"PYTHONPATH": str(next(iter(place.home.glob(".local/lib/python*/site-packages")), ""))}
    ran = subprocess.run(["sh", "-c", words], env=env, cwd=place.home, capture_output=True, text=True, timeout=60)
    return ran.stdout.strip("\r\n ") + ran.stderr * (not ran.stdout)


def require(tool: Tool, words: dict[str, str]) -> None:
    for program in tool.needs:
        ran = subprocess.run(["sh", "-c", f"{program.format(**words)} --version"], capture_output=True)
        if ran.returncode:
            pytest.skip(f"{program} is not on this machine")


def play(place: Place, tool: Tool) -> None:
    words = {"python": sys.executable, "uv": uv(), "home": str(place.home), "wheel": "hello_wheel-1-py3-none-any.whl"}
    require(tool, words)
    furnish(place)
    before = listing(place.home)
    script = tool.script
    for name, value in words.items():
        script = script.replace(f"{{{name}}}", value)
    session = place.session()
    result = session.run([b"sh", b"-ec", script.encode()], roots=[os.fsencode(place.home)])
    assert result.exit_code == 0, (result.stdout, result.stderr, result.notes)
    assert listing(place.home) == before
    tick()
    (place.home / ".bashrc").write_text(RC.replace("A=1", "A=10"))
    landed = session.changes.apply(result.fork)
    assert not landed.conflicts
    assert not any(root.landed.conflicts for root in landed.roots)
    after = listing(place.home)
    assert after != before
    shown = used(place, tool.use.format(**words))
    assert shown == tool.prints.format(**words)
    tick()
    session.changes.undo()
    if "fish" not in tool.needs:  # it writes its own files while it is used
        assert (place.home / ".bashrc").read_text() == RC.replace("A=1", "A=10")
        (place.home / ".bashrc").write_text(RC)
        assert {name: row for name, row in listing(place.home).items() if not is_by_use(name)} == before


def is_by_use(name: str) -> bool:
    """Whether a file was made by the use of a tool on the host: compiled modules, caches."""
    return "__pycache__" in name or name.startswith((".npm", ".cache", ".viminfo"))


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.is_quick], ids=lambda tool: tool.name)
def test_an_installation_is_taken_back(place: Place, tool: Tool) -> None:
    play(place, tool)


@pytest.mark.deep
@pytest.mark.parametrize("tool", [tool for tool in TOOLS if not tool.is_quick], ids=lambda tool: tool.name)
def test_every_installation_is_taken_back(place: Place, tool: Tool) -> None:
    play(place, tool)
