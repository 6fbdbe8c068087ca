"""Secrets are hidden, and ordinary commands stay as they are. The tokens are put together here: none is anybody's."""

from __future__ import annotations

import gc
import math
import re
import shlex
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text import redaction
from mudroom.core.text.redaction import (
    LONGEST,
    MARK,
    MOST,
    redact,
    redact_argv,
    redact_data,
    redact_reason,
    redact_words,
    secret_values,
    truncate,
)
from mudroom.core.text.secret_place import NAMES, SHAPES
from tiers import each

ALNUM = "q7Zx2LmT9vKcR4bW8nYd1HsF6gJpU3eA5tXo0iEw"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
S = "hunter2-" + "correct"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0." + ALNUM
KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n" + ALNUM + "\n" + ALNUM + "\n-----END OPENSSH PRIVATE KEY-----"

# The shape that is meant, a text that has it, and what must not be in the result.
HIDDEN: list[tuple[str, str, str]] = [
    ("private key", f"printf '%s' '{KEY}' > id", ALNUM),
    ("AWS access key", "aws configure set aws_access_key_id AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("GitHub token", "git push https://ghp_" + ALNUM[:36] + "@github.com/a/b", ALNUM[:36]),
    ("GitHub token", "echo ghs_" + ALNUM[:36], ALNUM[:36]),
    ("GitHub fine-grained token", "echo github_pat_" + ALNUM, ALNUM),
    ("GitLab token", "glab auth login -t glpat-" + ALNUM[:20], ALNUM[:20]),
    ("Slack token", "echo xoxb-" + "123456789012-" + ALNUM, ALNUM),
    ("Slack webhook", "curl https://hooks.slack.com/services/T0/B0/" + ALNUM, ALNUM),
    ("npm token", "echo npm_" + ALNUM[:36], ALNUM[:36]),
    ("PyPI token", "twine upload -p pypi-" + ALNUM + ALNUM, ALNUM),
    ("Anthropic key", "echo sk-ant-" + "api03-" + ALNUM, ALNUM),
    ("OpenAI key", "echo sk-proj-" + ALNUM, ALNUM),
    ("Stripe key", "echo sk_live_" + ALNUM, ALNUM),
    ("Google API key", "echo AIza" + ALNUM[:35], ALNUM[:35]),
    ("Google OAuth token", "echo ya29." + ALNUM, ALNUM),
    ("Hugging Face token", "echo hf_" + ALNUM[:34], ALNUM[:34]),
    ("DigitalOcean token", "echo dop_v1_" + HEX, HEX),
    ("SendGrid key", "echo SG." + ALNUM[:22] + "." + ALNUM, ALNUM),
    ("age key", "echo AGE-SECRET-KEY-1" + ALNUM.upper() + "QPZRY9X8GF2TVDW0S3JN", ALNUM.upper()),
    ("JSON web token", f"echo {JWT} | cut -d. -f2", JWT[21:40]),
    ("authorization header", f"curl -H 'Authorization: Bearer {S}' https://a.example", S),
    ("authorization header", f'curl -H "authorization: Basic {S}" https://a.example', S),
    ("authorization header", f"http a.example Authorization:{S}", S),
    ("authorization header", f"Authorization: Digest username=\"a\", response={S}", "username"),
    ("bearer token", "said Bearer " + ALNUM, ALNUM),
    ("secret header", f"curl -H 'X-Api-Key: {S}' a.example", S),
    ("secret header", f"curl -H 'PRIVATE-TOKEN: {S}' a.example", S),
    ("secret header", f"curl --header 'Cookie: session={S}; b=2' a.example", S),
    ("password in a URL", f"git clone https://me:{S}@git.example/a.git", S),
    ("password in a URL", f"psql postgres://app:{S}@localhost:5432/app", S),
    ("password in a URL", f"redis-cli -u redis://:{S}@localhost", S),
    ("token in a URL", f"git clone https://{ALNUM}@git.example/a.git", ALNUM),
    ("signature in a URL", f"wget 'https://a.example/x?a=1&sig={ALNUM}&b=2'", ALNUM),
    ("signature in a URL", f"wget https://s3.example/x?X-Amz-Signature={HEX}", HEX),
    ("key in a URL", f"curl https://maps.example/?key={ALNUM}", ALNUM),
    ("assignment", f"DB_PASSWORD={S} make test", S),
    ("assignment", f"export GITHUB_TOKEN='{S} x'; make", S),
    ("assignment", f'AWS_SECRET_ACCESS_KEY="{S}" terraform plan', S),
    ("assignment", f"tool --api-key={S} run", S),
    ("assignment", f"docker run -e POSTGRES_PASSWORD={S} postgres", S),
    ("assignment", f"kubectl create secret generic db --from-literal=password={S}", S),
    ("assignment", f"curl 'https://a.example/?access_token={S}&x=1'", S),
    ("assignment", f"psql 'host=db user=app password={S} dbname=app'", S),
    ("assignment", f"echo //registry.npmjs.org/:_authToken={S} >> .npmrc", S),
    ("option", f"mysql --password {S} app", S),
    ("option", f"tool --token '{S} x' run", S),
    ("option", f"tool --client-secret {S} --id 7", S),
    ("option", f"sh -c 'deploy --db-password {S}'", S),
    ("member", '{"user": "me", "password": "' + S + '"}', S),
    ("member", 'curl -d "{\\"api_key\\": \\"' + S + '\\"}" a.example', S),
    ("user of curl", f"curl -s -u me:{S} https://a.example", S),
    ("user of curl", f"curl --user 'me:{S}' https://a.example", S),
    ("sshpass", f"sshpass -p {S} ssh host", S),
    ("mysql", f"mysqldump -u root -p{S} app", S),
    ("registry login", f"docker login -u me -p {S} registry.example", S),
    ("private key", KEY.replace("OPENSSH ", "PGP ").replace("KEY-", "KEY BLOCK-").replace("\n", "\n\n", 1), ALNUM),
    ("private key", KEY.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AA\n\n"), ALNUM),
    ("secret header", f"curl -H 'apikey: {S}' a.example", S),
    ("token before a word", f"git clone https://{S}:x-oauth-basic@git.example/a.git", S),
    ("token in a URL", f"git clone https://{ALNUM}:x-oauth-basic@git.example/a.git", ALNUM),
    ("signature in a URL", f"curl https://a.example/callback?code={S}", S),
    ("assignment", f"PASSWORD=$'{S}' make", S),
    ("assignment", f"PASSWORD='a'\"{S}\" make", S),
    ("assignment", f"PASSWORD=''\"{S}\" make", S),
    ("assignment", f"PASSWORD=a\"{S}\" make", S),
    ("assignment", f"PASSWORD=two\\ {S} make", S),
    ("assignment", f"PASSWORD=${{X:-{S}}} make", S),
    ("assignment", f'PASSWORD="${{X:-{S}}}" make', S),
    ("assignment", f"tool 'DefaultEndpointsProtocol=https;AccountKey={S}==;EndpointSuffix=x'", S),
    ("assignment", f"sqlcmd 'Uid=sa;Pwd={S};'", S),
    ("assignment", f"DB_PWD={S} make", S),
    ("option", f"curl --oauth2-bearer {S} https://a.example", S),
    ("option", f"az storage blob list --account-key {S}", S),
    ("code", f"python3 -c 'API_KEY = \"{S}\"'", S),
    ("code", f"python3 -c 'd[\"password\"]=\"{S}\"'", S),
    ("code", f"echo \"password = '{S}'\"", S),
    ("code", f"node -e 'const token: string = \"{S}\"'", S),
    ("YAML", f"cat > a.yml <<E\nuser: me\npassword: {S}\nE", S),
    ("YAML", f"printf 'db_password: {S}' > a.yml", S),
    ("YAML", f"cat > a.yml <<E\ndb:\n  password: 'two {S}'\nE", S),
    ("setting", f"npm config set //registry.npmjs.org/:_authToken {S}", S),
    ("setting", f"aws configure set aws_secret_access_key {S} --profile x", S),
    ("cookie of curl", f"curl -b session={S} https://a.example", S),
    ("cookie of curl", f"curl -bsession={S} https://a.example", S),
    ("cookie of curl", f"curl --cookie 'a=1; session={S}' https://a.example", S),
    ("user of curl", f"curl -ume:{S} https://a.example", S),
    ("sshpass", f"sshpass -p{S} ssh host", S),
    ("registry login", f"docker login -u me -p{S} registry.example", S),
    ("registry login", f"docker login -u me -p={S} registry.example", S),
    ("registry login", f"sudo helm registry login -u me -p {S} registry.example", S),
    ("INI", f"printf '[default]\\naws_secret_access_key = {S}2\\n' > c", S),
    ("weak name", f"export STRIPE_KEY={ALNUM[:20]}", ALNUM[:20]),
    ("weak name", f'echo \'{{"auth": "{ALNUM}=="}}\' > config.json', ALNUM),
    ("weak option", f"tool --license-key {ALNUM[:24]} run", ALNUM[:24]),
    ("netrc", f"printf 'machine a.example\nlogin me\npassword {S}\n' > .netrc", S),
    ("netrc", f"echo machine a.example login me password {S} >> ~/.netrc", S),
    ("pgpass", f"echo 'db.example:5432:app:me:{S}' > ~/.pgpass", S),
    ("SQL", f"psql -c \"CREATE USER me WITH LOGIN PASSWORD '{S}'\"", S),
    ("SQL", f"echo \"ALTER USER 'a'@'b' IDENTIFIED BY '{S}'\" | cat", S),
    ("SQL function", f"mysql -e \"SET PASSWORD FOR me = password('{S}')\"", S),
    ("exported", f"fish -c 'set -gx API_TOKEN {S}'", S),
    ("exported", f"csh -c 'setenv API_TOKEN {S}; make'", S),
    ("password hash", "echo '$6$saltsalt$" + ALNUM + ALNUM + "' > x", ALNUM),
    ("redis-cli", f"redis-cli -a {S} ping", S),
    ("sudo", f"bash -c 'echo {S} | sudo -S apt update'", S),
    ("zip", f"zip -P {S} a.zip x", S),
    ("zip", f"unzip -P{S} a.zip", S),
    ("openssl", f"openssl enc -aes-256-cbc -pass pass:{S} -in a", S),
]  # fmt: skip

ORDINARY = [
    "git checkout 3f2a9c41d5e8b7a60f1c2d3e4b5a69788f9e0d1c",
    "git show " + HEX,
    "git log --author=token --grep 'password reset'",
    "git clone git@github.com:someone/some-project-with-a-long-name.git",
    "git clone ssh://git@git.example:22/a/b.git",
    "git push -u origin main",
    "git config credential.helper store",
    "sha256sum -c <<< '" + HEX + "  file'",
    "docker run -u 1000:1000 -p 8080:80 --rm image@sha256:" + HEX,
    "docker run -e GITHUB_TOKEN -e TOKEN=$TOKEN -e SECRET=${SECRET} image",
    "kubectl get secret my-secret -o yaml",
    "npm install token-bucket jsonwebtoken password-hash",
    "pip install secrets==1.0 'token>=2'",
    "npm ci --no-audit --prefer-offline",
    "pytest -k 'password or token' tests/test_token.py::test_secret",
    "python train.py --max-tokens 4096 --max_tokens=100 --pad-token-id 0",
    "cargo build --release --target x86_64-unknown-linux-gnu",
    "ssh-keygen -t ed25519 -f key",
    "openssl rand -hex 32",
    "curl -fsSL https://sh.rustup.rs",
    "curl -u me https://a.example",
    "sudo -u postgres psql -p 5432",
    "mysql -u root -p app",
    "grep -rn 'password' src --include=*.py",
    "grep -n token= src",
    "find . -name '*.key' -newer package.json",
    "sed -i 's/secret/public/' notes.md",
    "gh auth login --with-token",
    "docker login --password-stdin registry.example",
    "vault kv get -field=password secret/app",
    "rm -rf node_modules/.cache /tmp/3f2a9c41-d5e8-4b7a-960f-1c2d3e4b5a69",
    "uuidgen; echo 550e8400-e29b-41d4-a716-446655440000",
    "echo c2hvcnQgYmFzZTY0IHRleHQgb2Ygbm8gc2VjcmV0 | base64 -d",
    "export PATH=/usr/bin:$PATH PWD",
    "PWD=/x OLDPWD=/home/me make",
    "OLDPWD=there make",
    "make PASSWORD='' TOKEN=\"\"",
    "tool --pwd /srv/app --pwd=~/app",
    'python -c "pwd=os.getcwd()"',
    "mkdir -p login",
    "make login -p 3",
    "cd login && mkdir -p deep/er",
    "curl https://a.example/?code=200",
    'git commit -m "token: fix parser"',
    "curl -b cookies.txt https://a.example",
    "unzip -o a.zip -d out",
    "npm config set registry https://registry.example/",
    "aws configure set region eu-west-1",
    "make TOKEN=${TOKEN:?needed} SECRET=${SECRET:-} KEY_TOKEN=${A:-$B}",
    "if [ \"$TOKEN\" = x ]; then echo 'no token: none'; fi",
    "ffmpeg -pass 1 -i a.mp4 b.mp4",
    "make PASSWORD= TOKEN=\"$TOKEN\" VERBOSE=1 USE_TOKEN=false",
    "terraform apply -var-file=prod.tfvars -auto-approve",
    "systemctl status ssh.service",
    "time=12:30:45 http://localhost:8080/path?page=2&sort=key",
    "rsync -a user@host:/srv/data/ .",
    "scp -P 2222 a:b/c.key .",
    "2 secrets are shown empty: .env, .npmrc (--show PATH, or secrets.show in the policy)",
    "evil.example:443 no rule names it",
]  # fmt: skip


@each(("name", "text", "secret"), HIDDEN)
def test_what_is_secret_is_hidden_in_a_line(name: str, text: str, secret: str) -> None:
    assert name
    assert secret in text
    assert secret not in redact(text)
    assert MARK in redact(text)


def test_every_shape_has_an_example_that_needs_it() -> None:
    import re

    for shape in SHAPES:
        examples = [text for name, text, _secret in HIDDEN if name == shape.name]
        assert examples, shape.name
        assert any(re.search(shape.pattern, text) for text in examples), shape.name
        assert all(any(hint in text.lower() for hint in shape.hints) and shape.needs in text for text in examples)


@each(
    ("name", "text", "secret"),
    [
        one
        for one in HIDDEN
        if one[0] not in ("private key", "member", "pgpass")
        and not any(sign in one[1] for sign in ("Digest", "$'", "<<E"))
    ],
)
def test_and_in_the_words_of_a_command(name: str, text: str, secret: str) -> None:
    del name
    words = redact_words(shlex.split(text))
    assert secret not in " ".join(words)
    assert len(words) == len(shlex.split(text))
    assert words[0] == shlex.split(text)[0] or "=" in words[0] or words[0].endswith(":")


@each("text", ORDINARY)
def test_ordinary_commands_stay_as_they_are(text: str) -> None:
    assert redact(text) == text
    try:
        words = shlex.split(text)
    except ValueError:
        return
    assert redact_words(words) == words


def test_what_is_around_a_secret_stays() -> None:
    assert redact(f"curl -H 'Authorization: Bearer {S}' https://a.example") == (
        "curl -H 'Authorization: Bearer [redacted]' https://a.example"
    )
    assert redact(f"git clone https://me:{S}@git.example/a.git") == "git clone https://me:[redacted]@git.example/a.git"
    assert redact(f"A_TOKEN={S}; make") == "A_TOKEN=[redacted]; make"
    assert redact_words(["mysql", "--password", S, "app"]) == ["mysql", "--password", MARK, "app"]
    assert redact_words(["curl", "-u", f"me:{S}", "x"]) == ["curl", "-u", f"me:{MARK}", "x"]
    assert redact_words(["mysql", f"-p{S}"]) == ["mysql", f"-p{MARK}"]
    assert redact_words(["bash", "-c", f"TOKEN={S} make"]) == ["bash", "-c", f"TOKEN={MARK} make"]


def test_a_word_that_is_an_assignment_is_hidden_to_its_end() -> None:
    for word in ("DB_PASSWORD=", "--password=", "--db.password=", "PGPASSWORD="):
        assert redact_words(["env", f"{word}two {S}", "make"]) == ["env", f"{word}{MARK}", "make"]
        assert redact_data({"command": ["env", f"{word}two {S}"]}) == {"command": ["env", f"{word}{MARK}"]}
    assert redact_words(["docker", "login", "-u", "me", f"-p={S}"]) == ["docker", "login", "-u", "me", f"-p={MARK}"]
    assert redact_words(["curl", f"-ume:{S}"]) == ["curl", f"-ume:{MARK}"]
    assert redact_words(["curl", "-b", f"a={S}; b={S}"]) == ["curl", "-b", f"a={MARK}"]


def test_what_is_quoted_around_a_value_ends_there() -> None:
    assert redact(f"sh -c 'TOKEN={S}' && echo 'over'") == f"sh -c 'TOKEN={MARK}' && echo 'over'"
    assert redact(f"f('TOKEN={S}'); g('x')") == f"f('TOKEN={MARK}'); g('x')"
    assert redact(f'["TOKEN={S}","b"]') == f'["TOKEN={MARK}","b"]'


def test_of_values_that_overlap_the_longest_is_hidden_first() -> None:
    known = ["swordfish", "swordfish-and-more", "swordfish-and-more-of-it"]
    for order in (known, known[::-1], set(known)):
        assert redact(f"echo {known[2]} {known[0]} {known[1]}", order) == f"echo {MARK} {MARK} {MARK}"


def test_everywhere_in_an_event() -> None:
    data: dict[str, Any] = {
        "command": ["sh", "-c", f"T_TOKEN={S} x"],
        "notes": [f"https://a:{S}@b.example"],
        "denials": [{"reason": [[f"password={S}"], 3, None, True]}],
        "exit_code": 0,
        "credentials": ["gh", "~/.config/tool"],
    }
    found = redact_data(data)
    assert S not in str(found)
    assert found["exit_code"] == 0
    assert found["credentials"] == ["gh", "~/.config/tool"]
    assert found["denials"][0]["reason"][1:] == [3, None, True]
    assert S in str(data), "what was given stays"


def test_values_that_are_known_are_hidden_wherever_they_stand() -> None:
    assert redact("echo swordfish-7 | wc", {"swordfish-7"}) == f"echo {MARK} | wc"
    assert redact_words(["echo", "xswordfish-7y"], ["swordfish-7"]) == ["echo", f"x{MARK}y"]
    assert redact("echo abc", {"abc"}) == "echo abc", "too short to be told from other words"
    assert redact_data({"a": ["swordfish-7"]}, {"swordfish-7"}) == {"a": [MARK]}


def test_values_of_variables_that_are_secret_by_their_names() -> None:
    environ = {
        b"GITHUB_TOKEN": b"abcdefgh1",
        b"DB_PASSWORD": b"swordfish-7",
        b"my_api_key": b"zzzzzzzzz",
        b"PWD": b"/home/me/x",
        b"SSH_ASKPASS": b"/usr/bin/ask",
        b"TOKEN_FILE": b"longer-than-eight",
        b"A_SECRET": b"short",
        b"PORT_KEY_TOKEN": b"123456789",
        b"EDITOR": b"vim -u NONE",
        b"BAD_TOKEN\xff": b"not-a-name-of-one",
        b"X_TOKEN": b"a\nbcdefghi",
    }
    assert secret_values(environ) == {"abcdefgh1", "swordfish-7", "zzzzzzzzz"}


UNITS = ["a", "token", "token=", "curl ", "mysql -", "--token ", "://", "://a:", "login ", "eyJaaaaaaaa.", "pass:",
     "-eyJ", "-eyJaaaaaaaaa", "token=${", "token=a\"", "token=\\", "password: ", "token = ", "config set ",
     "docker login ", "curl -b a=b;c", "zip ", "zip -P", "pwd ", "-----BEGIN PRIVATE KEY-----", "password: a\n",
     "token['\"", "token=''x",
     '"token":"', "-", "a-", " --a-a-token", "bearer ", "authorization: ", "'", "sk-", "cookie:", "token='",
]  # fmt: skip


@each("unit", UNITS)
def test_time_is_in_proportion_to_the_text(unit: str) -> None:
    """Of two lengths: a pattern that goes back and forth over the text takes sixteen times as long for the fourfold."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        started = time.thread_time()
        redact(text)
        return time.thread_time() - started

    redact(unit * 20)
    small = large = math.inf
    gc.disable()  # it would walk over what all tests before have left, the oftener the longer the text
    try:
        for _ in range(30):  # a busy machine only makes it longer: the least of all is the nearest
            small, large = min(small, seconds(1 << 15)), min(large, seconds(1 << 17))
            if large < 0.03 or large / small < 8:
                return
    finally:
        gc.enable()
    raise AssertionError(f"{large / small} times as long for four times the text")


PIECES = [one for _name, one, _secret in HIDDEN] + ORDINARY


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=4).map(" ; ".join))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_the_form_of_data_stays(data: Any) -> None:
    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: form(one) for key, one in value.items()}
        return [form(one) for one in value] if isinstance(value, list) else type(value)

    assert form(redact_data(data)) == form(data)


@given(
    st.recursive(
        st.sampled_from(PIECES)
        | st.text(max_size=5)
        | st.lists(st.sampled_from([w for p in PIECES for w in p.split()])),
        lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from("abc"), one, max_size=3),
        max_leaves=6,
    )
)
def test_looking_at_all_texts_first_changes_nothing(data: Any) -> None:
    """What ``redact_data`` does not even look for would not have been found."""

    def slowly(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            return {key: slowly(one) for key, one in value.items()}
        if all(isinstance(one, str) for one in value):
            return redact_words(value)
        return [slowly(one) for one in value]

    assert redact_data(data) == slowly(data)


def test_what_is_very_long_is_cut_and_counted() -> None:
    assert truncate({"a": ["x", 1, None], "b": True}) == {"a": ["x", 1, None], "b": True}
    found = truncate({"command": ["a" * 1_000_000, "b"], "words": ["w"] * 5_000})
    assert len(found["command"][0]) < LONGEST + 60
    assert " [967,232 characters left out] " in found["command"][0]
    assert found["words"][-1] == "[4,000 more]"
    assert len(found["words"]) == MOST + 1


@given(st.lists(st.sampled_from(("old", "api", "secret", "key", "s", "_", "-", "pwd", "pass", "word", "token", "x"))))
def test_a_variable_is_secret_by_the_ends_of_names(parts: list[str]) -> None:
    name = "".join(parts)
    expected = re.fullmatch(rf"(?i).*{NAMES}", name) is not None
    assert redaction.names_secret(name.encode()) == expected


@each(
    "words",
    [
        ("ssh", "host", "-o", "ProxyCommand=curl -u bob:QUEUEPW77 x"),
        ("ssh", "host", "-oProxyCommand=/usr/bin/curl -u bob:QUEUEPW77 x"),
        ("sh", "-c", "ssh host -o 'ProxyCommand=curl -u bob:QUEUEPW77 x'"),
        ("sh", "-c", "ssh host -o ProxyCommand='curl -u bob:QUEUEPW77 x'"),
        ("sh", "-c", 'GIT_SSH_COMMAND="sshpass -p QUEUEPW77 ssh" git fetch'),
        ("git", "-c", "core.sshCommand=sshpass -p QUEUEPW77 ssh", "fetch"),
        ("ssh-keygen", "-t", "ed25519", "-N", "QUEUEPW77", "-f", "k"),
        ("ssh-keygen", "-p", "-P", "QUEUEPW77", "-N", "QUEUEPW77x", "-f", "k"),
        ("sh", "-c", "ssh-keygen -t ed25519 -NQUEUEPW77 -f k"),
    ],
)
def test_a_command_in_an_option_has_its_secrets_hidden(words: tuple[str, ...]) -> None:
    assert "QUEUEPW77" not in str(redact_words(words))
    assert "QUEUEPW77" not in redact(shlex.join(words))
    assert "QUEUEPW77" not in str(redact_data({"command": list(words), "pattern": shlex.join(words)}))


@each(
    ("reason", "expected"),
    [
        ("htpasswd -b f: a program that is not in the tables", None),
        ("sshpass -p: acts on another machine", None),
        ("smbclient //h/s -U: a program that is not in the tables (policy.yaml:3)", None),
        ("docker login -p: runs containers: past this sandbox", None),
        ("docker login --password: runs containers: past this sandbox", None),
        (f"sshpass -p {S}9: acts on another machine", "sshpass -p [redacted]: acts on another machine"),
        (f"mysql -p{S}9 db: runs statements of a database", "mysql -p[redacted] db: runs statements of a database"),
        (
            f"curl -H Authorization: Bearer {ALNUM}: uses the network",
            "curl -H Authorization: Bearer [redacted]: uses the network",
        ),
    ],
)
def test_the_reason_of_a_verdict_is_redacted_apart_from_its_command(reason: str, expected: str | None) -> None:
    assert redact_reason(reason) == (expected or reason)
    data = {"command": ["true"], "verdict": {"reason": reason}, "denials": [{"reason": reason}]}
    assert redact_data(data)["verdict"]["reason"] == (expected or reason)
    assert redact_data(data)["denials"][0]["reason"] == (expected or reason)


def test_a_value_behind_a_header_in_a_reason_is_hidden() -> None:
    for name in ("x-api-key", "authorization", "private-token"):
        text = f"curl -H {name}: {ALNUM}: uses the network"
        assert ALNUM not in redact_reason(text), text


def test_a_password_that_is_piped_into_a_login_is_hidden_from_those_who_decide() -> None:
    hidden = (
        "echo QQDSECRET | docker login -u a --password-stdin",
        "printf %s QQDSECRET | gh auth login --with-token",
        "echo 'QQDSECRET' | helm registry login h --password-stdin",
    )
    for line in hidden:
        assert "QQDSECRET" not in str(redact_words(["bash", "-c", line], inert=True)), line
    shown = (
        "echo QQDSECRET | sudo -S sh",
        "docker() { sh; }; echo QQDSECRET | docker login -u a --password-stdin",
        "PATH=.; echo QQDSECRET | docker login -u a --password-stdin",
        "echo QQDSECRET | sh -s docker login --password-stdin",
        "echo QQDSECRET | ./docker login --password-stdin",
        "echo QQDSECRET | docker run -i alpine sh login --password-stdin",
        "echo '$(reboot)' | docker login --password-stdin",
    )
    for line in shown:
        assert "[redacted]" not in str(redact_words(["bash", "-c", line], inert=True)), line


def test_after_the_name_that_is_unset_each_variable_of_env_is_hidden_up_to_its_command() -> None:
    words = [b"env", b"--chdir", b"/x", b"-u", b"MUDROOM_VALUES", b"MODE=a b", b"X=1", b"sh", b"-c", b"Y=2; ls"]
    hidden = [b"MODE=[redacted]", b"X=[redacted]"]
    assert redact_argv(words) == (*words[:5], *hidden, *words[7:])
    question = redact_argv([*words[:5], b"X=$(reboot)", b"make"], inert=True)
    assert b"X=$(reboot)" in question, "people who decide see what may act"
    assert redact_argv([b"env", *words[5:]]) == (b"env", *words[5:])
