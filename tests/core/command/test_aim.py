"""The aims of commands, and the protections that hold them."""

from __future__ import annotations

from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, decide, has_rule
from mudroom.core.command.program.aim import at_level
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.protection import NO_PROTECTIONS, Protections
from test_command_table import LEVEL_1, PROJECT
from tiers import each


def classes(line: str, protections: Protections = LEVEL_1) -> str:
    found, _relies = at_level(classify_line(line.encode(), PROJECT, PROJECT), protections)
    return ",".join(name for name in found.classes if name != "read_only") or "read_only"


HELD = """\
mutating                    kill 42
mutating                    kill -9 -1
mutating                    kill $(lsof -ti:3000)
mutating                    pkill -f 'node server.js'
mutating                    lsof -ti:3000 | xargs kill -9
mutating,unknown            npm test; pkill -f vite
read_only                   ls -la ~/.ssh
read_only                   cat $HOME/.aws/credentials
read_only                   cat "${HOME}/.netrc"
read_only                   head ~/.ssh/*.pub
read_only                   cat /home/dev/.ssh/id_rsa
read_only                   cat /home/dev/shop/.npmrc
read_only                   ls /run/user/1000
read_only                   ls /var/run/docker.sock
networked,unknown           curl -d x --netrc-file=/home/dev/.netrc https://example.com
mutating,unknown            echo x >> ~/.profile
mutating,unknown            mv src ~/old
mutating,unknown            cp /usr/share/x ~/x
destructive,unknown         rm -rf ~/old
unknown                     docker build -t x .
read_only                   docker ps -a
unknown                     docker-compose -f test.yml up -d
networked                   kubectl get pods -n x
networked                   aws s3 ls
networked,unknown           terraform plan
read_only                   systemctl status nginx
read_only                   service nginx status
unknown                     service ../../p/evil status
unknown                     service status restart
unknown                     service show restart
unknown                     xdg-open status
unknown                     crontab show
unknown                     crontab -l -e
read_only                   crontab -l
unknown                     at show
unknown                     dbus-send show
read_only                   gpg -K
unknown                     gpg -K --agent-program=./evil
unknown                     gpg --list-keys --homedir ./gh
unknown                     gpg -k --log-file x
read_only                   ssh-keygen -l -f id.pub
unknown                     ssh-keygen -k -f krl x.pub
unknown                     ssh-keygen -K
unknown                     ssh-keygen -l -D ./evil.so
unknown                     ssh-keygen -l -R host -f ./known_hosts
unknown                     gpgconf -K all
unknown                     ssh-agent -k
unknown                     ssh-add -l -s ./evil.so
read_only                   docker compose config --services
unknown                     docker compose config -o out.yml
unknown                     docker-compose -f x config --output=y
unknown                     podman search x
unknown                     ctr images rm x
mutating,networked          aws s3api get-object --bucket b --key k out.bin
networked,unknown           kubectl get pods --profile=cpu --profile-output=x
networked,unknown           kubectl cluster-info dump --output-directory ./d
networked,unknown           helm template . --post-renderer ./x
networked,destructive       git push --force origin main
networked,destructive,unknown psql -h db -c 'drop table x'
networked,destructive,unknown redis-cli flushall
networked,destructive,unknown psql -h /tmp -c 'drop table x'
networked,destructive,unknown psql -h localhost -c 'drop table x'"""


def test_what_the_level_holds_is_not_a_risk() -> None:
    rows = [row.split(maxsplit=1) for row in HELD.splitlines()]
    assert [(classes(line), line) for _expected, line in rows] == [(expected, line) for expected, line in rows]
    assert [line for _expected, line in rows if "host_escape_risk" not in classes(line, NO_PROTECTIONS)] == []


ASKED = [
    "sudo kill 42", "ssh host ls", "cat ~/.gitconfig ~/.ssh/x ~root/.ssh/y", "cat ~bob/.ssh/id_rsa",
    "cat ../../.ssh/id_rsa", "cat ~/../root/.ssh/id_rsa", "cat ~/.ssh/$f", "rm -rf ~/{old,.cache}", "cat /etc/shadow",
    "cat /proc/1/environ", "rm -rf ~", "rm -rf ~/.cache", "rm -rf ~/.cache/pip", "rm -rf /", "cd ~ && rm -rf x",
    "cp x /usr/local/bin", "HOME=/live; rm -rf ~/old", "export HOME=/live; rm -rf ~/old",
    "read HOME < x; rm -rf ~/old", "for HOME in /live; do rm -rf ~/old; done", ". ./x.sh; rm -rf ~/old",
    'eval "$x"; cat ~/.ssh/x', "env HOME=/live bash -c 'rm -rf ~/old'", "docker -H tcp://10.0.0.1:2375 ps",
    "docker --context prod ps", "docker $x ps", "docker login", "docker push x", "docker image push x",
    "docker compose push", "DOCKER_HOST=tcp://10.0.0.1:2375 docker ps", "export DOCKER_HOST=ssh://h; docker ps",
    "env DOCKER_CONTEXT=prod docker ps", "docker-compose -H tcp://x up", "kubectl --kubeconfig=./k get pods",
    "kubectl get pods --kubeconfig ./k", "kubectl get pods --kubeconf ./k", "kubectl get pods --token x",
    "kubectl get pods $x", "KUBECONFIG=./k kubectl get pods", "kubectl delete pod x", "git -C ../other push --force",
    "git -c http.extraHeader=x push --force", "kubectl exec -it x -- sh", "kubectl config set-credentials x",
    "helm install x .", "helm uninstall search", "HELM_PLUGINS=./p helm list", "terraform apply",
    "terraform init -backend-config=x", "terraform init --backend-config=x", "terraform plan --state x",
    "terraform init -migrate-state", "tofu init -force-copy", "aws s3 ls --endpoint-url http://x",
    "oc get pods --config=./k", "docker build --push .", "docker compose -f x.yml push",
    "docker-compose -p x --ansi never push", "BUILDKIT_HOST=tcp://x docker buildx build .",
    "CONTAINERD_ADDRESS=x ctr version", "CONTAINER_RUNTIME_ENDPOINT=x crictl version", "rm -rf /run/*/../../etc",
    "cat /run/*/../../etc/shadow", "ls /run/?/../../root/.ssh", "rm -rf ~/x*/../../../etc",
    "docker buildx build --builder x .", "docker buildx create tcp://x", "docker stack deploy x",
    "podman image scp x y::", "TF_CLI_ARGS=-x terraform plan", "ARM_CLIENT_SECRET=x terraform plan",
    "HCLOUD_TOKEN=x terraform plan", "env $(cat .env) docker ps", "AWS_CONFIG_FILE=./c aws s3 ls",
    "aws s3 cp x s3://y", "aws s3api get-object x ../y", "aws configure", "systemctl -H host restart x",
    "dbus-send --address=unixexec:path=./x a", "DBUS_SESSION_BUS_ADDRESS=unixexec:path=./x gdbus call",
    "gpg --homedir /etc/x --import y", "npm publish",
]  # fmt: skip


def test_what_it_does_not_hold_stays_a_risk() -> None:
    assert [line for line in ASKED if "host_escape_risk" not in classes(line)] == []


LOCAL = """\
networked       helm template . -f values.yaml --set a=b
networked       helm template x ./chart -f "$F"
read_only       helm lint charts/x
read_only       helm version
read_only       kubectl version --client
networked       kubectl kustomize overlays/dev
mutating        terraform fmt -check
unknown         terraform validate
read_only       terraform --version
read_only       ip addr show dev eth0
read_only       ip -br a
read_only       ifconfig
read_only       sysctl kernel.unprivileged_userns_clone
read_only       mount
read_only       iptables -nvL INPUT"""
ACTING = [
    "helm template . --post-renderer ./x", "helm template . --validate", "helm template . $x",
    "helm template . -f secrets://x", "helm --kubeconfig x template .", "helm template . -f ~/.ssh/id_rsa",
    "kubectl version", "kubectl kustomize --enable-exec .", "terraform fmt ~/x", "terraform -chdir=/x fmt",
    "terraform fmt $x", "ip addr add 10.0.0.1/8 dev eth0", "ip link set eth0 down", "ip netns exec x ls",
    "ip route $x", "ip a a dev eth0", "ip route r", "ifconfig eth0 en1", "ip -batch x", "ifconfig eth0 down",
    "sysctl -w kernel.x=1", "sysctl kernel.x=1", "sysctl -p", "mount /dev/sda1 /mnt", "mount -a", "iptables -F",
    "arp -d x",
]  # fmt: skip


def test_subcommands_that_work_on_local_files_act_with_no_account() -> None:
    rows = [row.split(maxsplit=1) for row in LOCAL.splitlines()]
    found = [(classes(line, NO_PROTECTIONS), line) for _expected, line in rows]
    assert found == [(expected, line) for expected, line in rows]
    assert [line for line in ACTING if "host_escape_risk" not in classes(line, NO_PROTECTIONS)] == []


def test_a_lone_dash_before_a_here_document_is_a_word() -> None:
    (part,) = classify_line(b"python3 - <<'EOF'\nd = x(open('p'))\nEOF").parts
    assert part.words == (b"python3", b"-")
    for line in (b"cat -<<EOF\na\nEOF", b"cat - - <<EOF\na\nEOF", b"cat - \\\n<<EOF\na\nEOF"):
        assert classify_line(line).parts, line


@each(
    ("line", "lost"),
    [
        ("pkill -f vite", {"own_processes": False}),
        ("ls ~/.ssh", {"project": b""}),
        ("ls ~/.ssh", {"shown": (b"/home/dev/.ssh/config",)}),
        ("ls ~/.ssh", {"shown": (b"/home/dev",)}),
        ("cat ~/.ssh/x", {"shown": (b"/home/dev/.ssh",)}),
        ("ls /var/run/docker.sock", {"shown": (b"/run/docker.sock",)}),
        ("docker ps", {"no_sockets": False}),
        ("systemctl status x", {"no_sockets": False}),
        ("kubectl get pods", {"no_accounts": False}),
        ("gpg --verify x", {"shown": (b"/home/dev/.gnupg",)}),
        ("gpg --verify x", {"no_sockets": False}),
        ("psql -c 'drop table x'", {"no_sockets": False}),
        ("psql -c 'drop table x'", {"no_hosts": False}),
        ("git push --force", {"no_hosts": False}),
        ("psql -h /tmp -c 'drop table x'", {"no_sockets": False}),
        ("psql -h /tmp -c 'drop table x'", {"shown": (b"/tmp/.s.PGSQL.5432",)}),
        ("psql -h localhost -c 'drop table x'", {"no_sockets": False}),
        ("psql -h localhost -c 'drop table x'", {"own_loopback": False}),
    ],
)
def test_each_aim_needs_its_own_protection(line: str, lost: dict[str, object]) -> None:
    assert "host_escape_risk" not in classes(line)
    assert "host_escape_risk" in classes(line, LEVEL_1._replace(**lost))  # type: ignore[arg-type]


IN_THE_FORK = """
psql -h /tmp -c 'drop table x'
psql --host=/tmp -c 'drop table x'
psql -h "$HOME/run" -c 'truncate x'
psql -h localhost -p 5433 -c 'drop table x'
dropdb -h /tmp x
mysql -uroot -h 127.0.0.1 -P 3307 -e 'drop table x'
redis-cli -h ::1 flushall
redis-cli -s /tmp/r.sock flushall"""
ELSEWHERE = """
psql -c 'drop table x'
psql -h db -c 'drop table x'
psql -h "$H" -c 'drop table x'
psql -h . -c 'drop table x'
psql -h /tmp -h db -c 'drop table x'
psql -h /tmp -hdb -c 'drop table x'
psql -h /tmp --host db -c 'drop table x'
psql -h /tmp 'host=db' -c 'drop table x'
psql -h /tmp postgresql://db/x -c 'drop table x'
psql -h /tmp -c '\\c x u db' -c 'drop table x'
psql -h /tmp -f x.sql -c 'drop table x'
psql -s /tmp -c 'drop table x'
PGHOSTADDR=192.0.2.1 psql -h localhost -c 'drop table x'
export PGSERVICE=db; psql -h localhost -c 'drop table x'
redis-cli -h localhost -u redis://db flushall"""


def test_a_database_in_the_fork_is_no_server_outside() -> None:
    """Rules open a host: only a server that the words place in the sandbox is the command's own."""
    protections = LEVEL_1._replace(no_hosts=False)
    lines = IN_THE_FORK.strip().splitlines()
    assert [line for line in lines if "host_escape_risk" in classes(line, protections)] == []
    lines = ELSEWHERE.strip().splitlines()
    assert [line for line in lines if "host_escape_risk" not in classes(line, protections)] == []


def test_the_reason_names_the_protection() -> None:
    found, relies = at_level(classify_words([b"pkill", b"-f", b"vite"]), LEVEL_1)
    assert relies
    assert decide(found, CommandPolicy()).reason == (
        "pkill -f vite: the sandbox has a pid namespace of its own, so it reaches its own processes only"
    )
    for line, reason in (
        ("docker ps", "docker ps: the sandbox shows no socket of this machine's servers, so it reaches none"),
        ("kubectl get pods", "kubectl get pods: the sandbox holds no credentials, so it acts with no account"),
        ("git push -f", "git push -f: no rule opens a host to the sandbox, so it reaches none"),
    ):
        held, _relies = at_level(classify_line(line.encode(), PROJECT, PROJECT), LEVEL_1)
        assert decide(held, CommandPolicy()).reason == reason
    assert at_level(classify_words([b"sudo", b"ls"]), LEVEL_1)[1] is False


def test_the_classes_of_the_words_do_not_depend_on_the_level() -> None:
    assert classify_words([b"kill", b"42"]).classes == ("host_escape_risk",)


def test_a_rule_by_pattern_counts_as_before() -> None:
    rule = CommandRule(((b"pkill",),), "require_approval", "policy.yaml:3")
    found, _relies = at_level(classify_words([b"pkill", b"-f", b"vite"]), LEVEL_1)
    assert decide(found, CommandPolicy(rules=(rule,))).action == "require_approval"


def test_a_rule_of_the_milder_class_counts() -> None:
    found, _relies = at_level(classify_words([b"kill", b"42"]), LEVEL_1)
    assert decide(found, CommandPolicy((ClassRule("mutating", "deny", "x:1"),))).action == "deny"


def test_a_class_rule_of_a_file_is_known() -> None:
    assert not has_rule(CommandPolicy(), "host_escape_risk")
    assert has_rule(CommandPolicy((ClassRule("host_escape_risk", "require_approval", "x:1"),)), "host_escape_risk")
