"""The classes of system programs, by name. A program that is in no table is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import (
    CommandContext,
    CommandFinding,
    change_directory,
    is_shared,
    locate,
    names_credentials,
    write_classes,
)
from mudroom.core.command.option_grammar import Grammar
from mudroom.core.command.table_rule import (
    CHANGE,
    ESCAPE,
    FETCH,
    INFORMS,
    LOSE,
    REACH,
    READ,
    UNSURE,
    Classes,
    ProgramRule,
    effect_of_options,
    entries,
    grammar_of_rule,
    judge_parsed,
    judge_paths,
    names,
    operands,
    option,
    parsed_words,
    tidy,
)  # fmt: skip
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word, program_name
from mudroom.core.text.regex import regex

# --- programs that copy, pack or link files or print the time, where a table does not suffice to judge the words ---

_SETUID = regex(rb"0*[2-7][0-7]{3}\Z|[ugoa,+=rwxX-]*[+=][rwxXt]*s")


_TAR = ProgramRule(
    READ,
    "",
    (
        option(
            "--to-command --checkpoint-action --use-compress-program --rsh-command --info-script --new-volume-script"
            " --rmt-command -F -I --files-from -T",
            UNSURE,
            "runs a program that it names",
        ),
        option("--remove-files --delete --recursive-unlink", LOSE, "removes files"),
        option("--absolute-names -P", ESCAPE, "may write to absolute paths"),
        option("--index-file --listed-incremental -g --volno-file", CHANGE, "writes a file"),
    ),
    safe=names("-f --file -C --directory --one-top-level -U --unlink-first"),
)


def tar(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(_with_dashes(words, grammar_of_rule(_TAR, context)), _TAR, context)
    effect = effect_of_options(parsed, _TAR, context)
    classes: set[CommandClass] = set()
    reason = "lists an archive"
    written = list(effect.written)
    if parsed.has(b"--extract", b"--get", b"-x"):
        classes, reason = {"mutating"}, "unpacks an archive"
        written += [*(parsed.values(b"--directory", b"-C") or [Word(b".")]), *parsed.values(b"--one-top-level")]
    elif parsed.has(b"--create", b"-c", b"--append", b"-r", b"--update", b"-u", b"--catenate", b"-A", b"--delete"):
        classes, reason = {"mutating"}, "writes an archive"
        written += [value for value in parsed.values(b"--file", b"-f") if value.text != b"-"]
    elif not parsed.has(b"--list", b"-t", b"--diff", b"-d", b"--test-label"):
        classes, reason = {"unknown"}, "has a mode that is not known before it runs"
    if any(b":" in value.text for value in parsed.values(b"--file", b"-f")) and not parsed.has(b"--force-local"):
        classes |= {"networked", "unknown"}
        reason = "asks another machine for the archive"
    classes |= set(write_classes(written, context)[0])
    if any(names_credentials(word, context) for word in words[1:]):
        classes.add("host_escape_risk")
    return CommandFinding(tidy({*classes, *effect.classes}), effect.reason or reason)


def _with_dashes(words: Sequence[Word], grammar: Grammar) -> Sequence[Word]:
    """Return the words with the letters in ``tar xzf FILE`` as options, each with its value: ``-x -z -f FILE``."""
    if len(words) < 2 or not words[1].literal or words[1].text.startswith(b"-"):
        return words
    letters: list[Word] = []
    rest = list(words[2:])
    for letter in words[1].text:
        name = bytes((45, letter))
        letters.append(Word(name))
        option = grammar.options.get(name)
        if option is not None and option.value == "required" and rest:
            letters.append(rest.pop(0))
    return [words[0], *letters, *rest]


_PLAIN = ProgramRule(CHANGE, "")


def chmod(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _PLAIN, context)
    classes: set[CommandClass] = {"mutating", *effect_of_options(parsed, _PLAIN, context).classes}
    classes.update(write_classes(operands(words[1:])[1:], context)[0])
    if any(_SETUID.match(word.text) for word in words[1:]):
        return CommandFinding(tidy({*classes, "host_escape_risk"}), "lets a program run as its owner")
    return CommandFinding(tidy(classes), "changes permissions")


def link(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    finding = judge_paths(words, ProgramRule(CHANGE, "makes a link", targets="last"), context)
    parsed = parsed_words(words, _PLAIN, context)
    symbolic = parsed.has(b"-s", b"--symbolic")
    into = parsed.has(b"-t", b"--target-directory") or len(parsed.operands) == 1
    targets = parsed.operands if into else parsed.operands[:-1]
    name = (parsed.values(b"-t", b"--target-directory") or parsed.operands[-1:] or [Word(b".")])[0]
    if symbolic and not into and name.literal:
        # a relative link leads from its own directory, which is the last operand if that is a directory
        froms = [change_directory(Word(place), context) for place in (name.text, name.text.rpartition(b"/")[0] or b".")]
        context = context._replace(places=tuple({place for places in froms for place in places}))
    if any(locate(word, context) != "inside" for word in targets if symbolic or word.text.startswith(b"/")):
        return CommandFinding(tidy({*finding.classes, "unknown"}), "makes a link that leads outside the project")
    return finding


def move(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``mv``: a place that commands share, such as /tmp, is empty for the next command."""
    rule = ProgramRule(CHANGE, "moves files", targets="all")
    finding = judge_paths(words, rule, context)
    parsed = parsed_words(words, rule, context)
    targets = parsed.values(b"-t", b"--target-directory") or parsed.operands[-1:]
    if any(is_shared(word) and not all(map(is_shared, parsed.operands)) for word in targets):
        return CommandFinding(tidy({*finding.classes, "destructive"}), "moves files out of the project")
    return finding


_RSYNC = ProgramRule(
    CHANGE,
    "copies files",
    (
        option(
            "-e --rsh --rsync-path --daemon --config --dparam -M --remote-option --server --early-input",
            UNSURE,
            "runs a program that it names",
        ),
        option(
            "--del --delete --delete-before --delete-during --delete-delay --delete-after --delete-excluded"
            " --delete-missing-args --remove-source-files --remove-sent-files --force",
            LOSE,
            "removes files",
        ),
        option(
            "--log-file --write-batch --only-write-batch --temp-dir -T --backup-dir --partial-dir",
            CHANGE,
            "writes a file",
        ),
    ),
    safe=names("--inplace --compare-dest --copy-dest --link-dest"),
)


def rsync(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _RSYNC, context)
    effect = effect_of_options(parsed, _RSYNC, context)
    classes: set[CommandClass] = {"mutating", *effect.classes}
    reason = effect.reason or "copies files"
    plain = parsed.operands
    written = list(effect.written)
    if any(b":" in word.text for word in plain):
        classes, reason = classes | {"networked"}, effect.reason or "copies files over the network"
    if plain and b":" not in plain[-1].text:
        written.append(plain[-1])
    elif plain:
        classes, reason = classes | {"host_escape_risk"}, "copies files to another machine"
    classes |= set(write_classes(written, context)[0])
    if any(names_credentials(word, context) for word in words[1:]):
        classes, reason = classes | {"host_escape_risk"}, "names a credential file"
    return CommandFinding(tidy(classes), reason)


def remote(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    if len(words) == 2 and words[1].text in INFORMS:
        return CommandFinding(READ, "prints its version or help")
    return CommandFinding(("networked", "host_escape_risk"), "acts on another machine")


_SCP = ProgramRule(
    FETCH,
    "copies files to or from another machine",
    (option("-o -S -F -D -J", UNSURE, "runs a program that it names"),),
    safe=names("-i"),
)


def scp(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _SCP, context)
    plain = parsed.operands
    out = plain and b":" in plain[-1].text
    classes: set[CommandClass] = {"networked", "host_escape_risk"} if out else {"networked", "mutating"}
    if not out:
        classes |= set(write_classes(plain[-1:], context)[0])
    effect = effect_of_options(parsed, _SCP, context)
    return CommandFinding(tidy({*classes, *effect.classes}), effect.reason or _SCP.reason)


_DATE = ProgramRule(READ, "prints the time", (option("-s --set", ESCAPE, "sets the clock"),), safe=names("-f --file"))


def date(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    parsed = parsed_words(words, _DATE, context)
    if any(word.literal and word.text.isdigit() for word in parsed.operands):
        return CommandFinding(ESCAPE, "sets the clock")
    return judge_parsed(parsed, words, _DATE, context)


def named_only(reason: str) -> ProgramRule:
    """Return a rule for a program that prints a value without operands and sets it with an operand: ``hostname``."""
    rule = ProgramRule(
        READ,
        "prints a setting of the machine",
        (
            option("-F --file -b --boot", ESCAPE, reason),
            option("-f --fqdn --long -d --domain -i --ip-address -A --all-fqdns", REACH, "asks a name server"),
        ),
    )

    def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
        parsed = parsed_words(words, rule, context)
        return CommandFinding(ESCAPE, reason) if parsed.operands else judge_parsed(parsed, words, rule, context)

    return ProgramRule(ESCAPE, reason, judge=judge)


_SECOND = ProgramRule(READ, "only reads")


def second_written(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``uniq IN OUT`` and ``xxd IN OUT``: the second operand is written."""
    parsed = parsed_words(words, _SECOND, context)
    finding = judge_parsed(parsed, words, _SECOND, context)
    if len(parsed.operands) > 1:
        outside = write_classes(parsed.operands[-1:], context)[0]
        return CommandFinding(tidy({*finding.classes, "mutating", *outside}), "writes a file")
    unsure = any(word.is_several for word in parsed.operands)
    return finding._replace(classes=tidy({*finding.classes, "unknown"})) if unsure else finding


# --- the tables ---

_READS = ProgramRule(READ, "only reads")
_WRITES_ALL = ProgramRule(CHANGE, "writes files", targets="all")
_OUT = "writes a file"
_RUNS = "runs a program"
_WRITES_OUT = option("-o --output", CHANGE, _OUT)

_ACCOUNT: Classes = ("networked", "host_escape_risk")


def _of_account(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    from mudroom.core.command.program.account import judge

    return judge(words, context)


# --- programs that print or change the machine's network, mounts or kernel settings ---
# Only the forms in ``_FORMS`` print. Everything else changes settings, unknown words included: these programs take
# abbreviations (``ip a a`` adds an address), and a second operand often sets a value.

_IP = regex(
    rb"(?:-(?:br|brief|4|6|s|j|p|o|c|d) )*(?:a|addr|address|r|route|l|link|n|neigh|rule)"
    rb"(?: (?:show|list|ls)(?: (?:dev )?[a-z][a-z0-9.@]*)?)?"
)
_IFCONFIG = regex(rb"(?:-[as])?|(?:-a )?[a-z][a-z0-9]*")
_LISTS = regex(rb"(?:-[46aenv]+(?: |\Z))*")
_IPTABLES = regex(
    rb"(?:-t (?:nat|filter|mangle|raw) )?(?:-[nv]+ )*-[nv]*[LS][nv]*(?: -[nv]+)*"
    rb"(?: (?:INPUT|OUTPUT|FORWARD)(?: -[nv]+)*)?"
)
_SYSCTL = regex(rb"(?:-[nNe] )*(?:-a|[a-z][a-z0-9_./]*(?: [a-z][a-z0-9_./]*)*)")
_MOUNT = regex(rb"(?:-[lv])?")
_FORMS = {
    b"ip": _IP,
    b"ifconfig": _IFCONFIG,
    b"route": _LISTS,
    b"arp": _LISTS,
    b"iptables": _IPTABLES,
    b"sysctl": _SYSCTL,
    b"mount": _MOUNT,
}
"""By program: the words that only print, joined by blanks."""


def _of_machine(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    name = program_name(words[0].text)
    is_known = all(word.literal for word in words[1:])
    if is_known and _FORMS[name].fullmatch(b" ".join(word.text for word in words[1:])):
        return CommandFinding(READ, "prints settings of the machine")
    what = "disks" if name == b"mount" else "network or kernel"
    return CommandFinding(ESCAPE, f"changes the machine's {what}")


READERS = """
    ls cat head tail wc grep egrep fgrep zgrep cut tr nl od hexdump hexyl stat du df pwd basename dirname
    realpath readlink which whereis whoami id groups users who w uname arch nproc uptime free ps pgrep pidof printenv
    locale getconf seq sleep tac rev fold fmt column expand unexpand pr comm join paste cmp cksum md5sum sha1sum
    sha224sum sha256sum sha384sum sha512sum b2sum sum base32 basenc zcat bzcat xzcat factor
    numfmt tsort look cal ncal lsblk lscpu lsof lsusb lspci lsmod pstree vmstat iostat c++filt tokei tty
    logname hostid pathchk apropos whatis eza exa lsd locate plocate mlocate dircolors tput clear reset mountpoint
    findmnt lslocks lsns getfacl lsattr getcap namei pbcopy exiftool cloc scc uuidgen
"""

_OPENSSL_READS = ProgramRule(
    READ,
    "only prints",
    (
        option("-out --out -keyout --keyout -writerand --writerand -CAserial --CAserial", CHANGE, _OUT),
        option("-CA --CA -CAcreateserial --CAcreateserial", CHANGE, "writes a serial number"),
        option(
            "-engine --engine -keyform --keyform -provider --provider -provider-path --provider-path"
            " -provparam --provparam -config --config",
            UNSURE,
            "loads code",
        ),
        option("-in -CAfile -CA -untrusted -certfile -CAkey -key -inkey", REACH, "reads over the network", when="://"),
        option("http://* https://* -crl_download", REACH, "reads over the network"),
    ),
    flags=names(
        """-d -e -a -A -base64 -salt -nosalt -pbkdf2 -nopad -noout -text -hex -dates -enddate -startdate -subject
        -issuer -fingerprint -serial -modulus -pubkey -pubin -pubout -check -purpose -binary -r -c -hash
        -email -alias -nodes -noenc -nokeys -nocerts -clcerts -cacerts -info -new -x509 -genkey -noenc
        -sha1 -sha224 -sha256 -sha384 -sha512 -md5 -sha3-256 -blake2b512 -aes128 -aes192 -aes256 -des3
        -aes-128-cbc -aes-192-cbc -aes-256-cbc -aes-128-ctr -aes-256-ctr -chacha20 -export -req -1 -5 -6
        -apr1 -stdin -v -encrypt -decrypt -list"""
    ),
    takes=names(
        """-in -inform -outform -out -keyout -pass -passin -passout -k -kfile -K -iv -S -md -iter -inkey -signature
        -prverify -hmac -mac -macopt -checkend -CAfile -CApath -untrusted -nameopt
        -certopt -ext -newkey -days -subj -addext -key -algorithm -pkeyopt -name -certfile -CA -CAkey
        -CAserial -signkey -extfile -extensions -writerand -engine -keyform -provider -provider-path
        -provparam -config"""
    ),
    style="single",
)
_OPENSSL: dict[bytes, ProgramRule] = {
    **entries(
        """asn1parse base64 ciphers crl crl2pkcs7 dgst dhparam dsa dsaparam ec ecparam enc errstr gendsa genpkey genrsa
        help info kdf list mac md5 nseq passwd pkcs12 pkcs7 pkcs8 pkey pkeyparam pkeyutl prime rand rsa rsautl
        sha1 sha224 sha256 sha384 sha512 smime spkac verify version x509""",
        _OPENSSL_READS,
    ),
    b"req": _OPENSSL_READS._replace(classes=CHANGE, reason="makes a request or a key"),
    **entries("s_client s_server s_time ocsp cmp", ProgramRule(("networked", "unknown"), "talks over the network")),
}
"""Only the last row talks over the network (openssl(1)); ``ca``, ``srp``, ``ts`` and others are unknown. ``req`` writes
a key even without an option. ``-sign`` and ``-verify`` are unknown: they take a value in some subcommands only."""

_PACKER = ProgramRule(
    CHANGE,
    "replaces files",
    (
        option("-o", CHANGE, _OUT),
        option("--rm", LOSE, "removes files"),
        option("-r --recursive", LOSE, "replaces all files of a directory"),
    ),
    "all",
)
PROGRAMS: dict[bytes, ProgramRule] = {
    **entries(READERS, _READS),
    b"who": ProgramRule(READ, "only reads", (option("--lookup", REACH, "asks a name server"),)),
    b"getent": ProgramRule(
        READ, "only reads", (option("hosts ahosts ahostsv4 ahostsv6", REACH, "asks a name server"),)
    ),
    **entries("echo expr", ProgramRule(READ, "only prints", style="any")),
    **entries("mkdir touch mktemp mkfifo rmdir tee patch csplit dos2unix unix2dos pdftotext", _WRITES_ALL),
    b"split": _WRITES_ALL._replace(options=(option("--filter", UNSURE, _RUNS),)),
    b"cp": ProgramRule(CHANGE, "writes files", targets="last"),
    b"install": ProgramRule(CHANGE, "writes files", (option("--strip-program", UNSURE, _RUNS),), "last"),
    b"ln": ProgramRule(CHANGE, "", judge=link),
    b"mv": ProgramRule(CHANGE, "", judge=move),
    **entries("rm unlink trash rimraf", ProgramRule(LOSE, "removes files", targets="all", unlinks=True)),
    **entries("shred srm wipe", ProgramRule(LOSE, "overwrites files", targets="all")),
    b"truncate": ProgramRule(LOSE, "cuts files short", targets="all"),
    b"dd": ProgramRule(READ, "copies bytes", (option("of=", LOSE, "overwrites a file"),), "none"),
    b"chmod": ProgramRule(CHANGE, "", judge=chmod),
    **entries("chown chgrp setfacl chattr", ProgramRule(CHANGE, "changes owners or attributes", targets="all")),
    b"setcap": ProgramRule(ESCAPE, "gives a program capabilities"),
    b"mknod": ProgramRule(ESCAPE, "makes a device"),
    b"sort": ProgramRule(
        READ,
        "only reads",
        (_WRITES_OUT, option("--compress-program --files0-from", UNSURE, _RUNS)),
        takes=names("-k -t -S --key --field-separator"),
    ),
    b"base64": ProgramRule(READ, "only reads", (_WRITES_OUT,)),
    **entries("zstdcat lz4cat", ProgramRule(READ, "only reads", (_WRITES_OUT, option("--rm", LOSE, "removes files")))),
    b"shuf": ProgramRule(READ, "only reads", (_WRITES_OUT,), takes=names("-n -i -e")),
    b"tree": ProgramRule(
        READ, "only reads", (option("-o", CHANGE, _OUT), option("-R", UNSURE, _RUNS)), takes=names("-L -I -P")
    ),
    b"file": ProgramRule(
        READ, "only reads", (option("-C --compile", CHANGE, _OUT), option("-m -z -Z", UNSURE, "reads a magic file"))
    ),
    **entries(
        "diff colordiff", ProgramRule(READ, "only reads", (_WRITES_OUT._replace(names=(b"-o",)),), takes=names("-U -x"))
    ),
    **entries(
        "less more most bat batcat",
        ProgramRule(READ, "only reads", (option("-o -O --log-file --LOG-FILE --pager +*", UNSURE, _OUT),)),
    ),
    b"man": ProgramRule(READ, "only reads", (option("-P --pager -H --html -C --config-file", UNSURE, _RUNS),)),
    b"info": ProgramRule(READ, "only reads", (option("-o --output --restore --init-file", UNSURE, _OUT),)),
    b"top": ProgramRule(READ, "only reads"),
    **entries(
        "htop btop dmesg journalctl",
        ProgramRule(
            READ,
            "prints facts about the machine",
            (
                option(
                    "-C --clear -c --vacuum-size --vacuum-time --rotate --flush", ESCAPE, "changes the machine's log"
                ),
            ),
        ),
    ),
    **entries(
        "rg ripgrep",
        ProgramRule(
            READ,
            "only reads",
            (option("--pre --hostname-bin", UNSURE, _RUNS),),
            takes=names("-e -g -t -T -A -B -C -m --glob --type --regexp --max-count"),
        ),
    ),
    b"ag": ProgramRule(READ, "only reads", (option("--pager", UNSURE, _RUNS),)),
    b"ack": ProgramRule(READ, "only reads", (option("--pager --ackrc --output", UNSURE, _RUNS),)),
    b"yq": ProgramRule(
        READ,
        "only reads",
        (option("-i --inplace --in-place", CHANGE, "edits files in place"), option("-s --split-exp", CHANGE, _OUT)),
        takes=names("-o -p"),
    ),
    **entries("uniq xxd", ProgramRule(READ, "", judge=second_written)),
    b"iconv": ProgramRule(READ, "only reads", (_WRITES_OUT,), takes=names("-f -t")),
    **entries(
        "nm objdump addr2line strings readelf size",
        ProgramRule(READ, "only reads", (option("--plugin", UNSURE, "loads code"),)),
    ),
    b"diff3": ProgramRule(READ, "only reads", (option("--diff-program", UNSURE, _RUNS),)),
    b"sdiff": ProgramRule(READ, "only reads", (_WRITES_OUT, option("--diff-program", UNSURE, _RUNS))),
    **entries("ldd", ProgramRule(UNSURE, "may run the file that it inspects")),
    b"tar": ProgramRule(READ, "", judge=tar),
    **entries("bsdtar gtar", ProgramRule(READ, "", judge=tar)),
    b"unzip": ProgramRule(
        CHANGE,
        "unpacks an archive",
        (option("-d", CHANGE, "unpacks an archive"),),
        targets="all",
        softened=names("-l -t -Z -p -v"),
        safe=names("-o -f -u -B -K"),
    ),
    b"zip": ProgramRule(
        CHANGE,
        "writes an archive",
        (
            option("-T -TT --test --unzip-command", UNSURE, _RUNS),
            option("-m --move -d --delete -FS --filesync", LOSE, "removes files"),
            option("-O --output-file -lf --logfile-path -b --temp-path", CHANGE, _OUT),
        ),
        "all",
    ),
    **entries(
        "7z 7za 7zr unrar rar cpio",
        ProgramRule(
            CHANGE,
            "packs or unpacks an archive",
            (option("d m mf rn -sdel -df -dw -dr", LOSE, "removes files"), option("-o", CHANGE, _OUT)),
            targets="all",
        ),
    ),
    **entries(
        "gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lzma unlzma brotli compress uncompress",
        _PACKER._replace(softened=names("-c --stdout --to-stdout -l --list -t --test")),
    ),
    b"lz4": _PACKER._replace(softened=names("-c --stdout --to-stdout --list -t --test")),
    b"date": ProgramRule(READ, "", judge=date),
    b"hostname": named_only("sets the name of the machine"),
    b"domainname": named_only("sets the name of the machine"),
    b"sync": _READS,
    **entries(
        "curl xh http https",
        ProgramRule(
            REACH,
            "uses the network",
            (
                option("-o --output -O --remote-name --remote-name-all -J --output-dir --create-dirs", CHANGE, _OUT),
                option(
                    "-c --cookie-jar -D --dump-header --trace --trace-ascii --stderr --hsts --alt-svc --etag-save"
                    " --libcurl",
                    CHANGE,
                    _OUT,
                ),
                option("-w --write-out", CHANGE, _OUT, when="%output @"),
                option("-K --config --engine", UNSURE, "takes options from a file"),
                option("--unix-socket --abstract-unix-socket", ESCAPE, "talks to a service of the machine"),
            ),
            takes=names("-H -d -X -u -A -b -e -F --header --data --data-raw --request --max-time -m --retry"),
        ),
    ),
    **entries(
        "wget aria2c axel",
        ProgramRule(
            FETCH,
            "fetches files",
            (
                option("-e --execute --use-askpass --config --on-download-complete --conf-path", UNSURE, _RUNS),
                option("-O --output-document -P --directory-prefix -o --output-file -a -d --dir", CHANGE, _OUT),
            ),
            takes=names("--header -U"),
        ),
    ),
    **entries(
        "ping ping6 pg_isready dig nslookup host traceroute tracepath mtr whois",
        ProgramRule(REACH, "uses the network", (option("-f", UNSURE, "reads a file"),)),
    ),
    **entries(
        "nc netcat ncat",
        ProgramRule(
            ("networked", "unknown"),
            "talks over the network",
            (
                option("-z", REACH, "looks whether a port answers"),
                option("-e -c -o -x -l --exec --sh-exec --lua-exec --output --listen --ssl-key --proxy", UNSURE, _RUNS),
            ),
            softened=names("-z"),
            flags=names("-z -v -n -u -4 -6"),
            takes=names("-w"),
        ),
    ),
    **entries(
        "socat telnet ftp tftp nmap tcpdump",
        ProgramRule(("networked", "unknown"), "talks over the network"),
    ),
    b"pandoc": ProgramRule(
        READ,
        "converts a document",
        (
            option("-o --output", CHANGE, _OUT),
            option("-o --output", UNSURE, "runs another program", when=".pdf"),
            option("-f -r --from --read -t -w --to --write", UNSURE, "runs a program", when=".lua"),
            option("http://* https://*", REACH, "reads over the network"),
        ),
        takes=names("-o --output -f -r --from --read -t -w --to --write"),
        flags=names("-s --standalone --toc"),
    ),
    b"ffprobe": ProgramRule(
        READ,
        "prints facts about a file",
        (
            option(
                "-i http* tcp* udp* rt* ftp* sftp* tls* unix* sub* concat* hls* mms* gopher* ip* srt* amq*",
                UNSURE,
                "opens an address",
                when=":",
            ),
        ),
        takes=names("-v -i -of -print_format -show_entries -select_streams"),
        flags=names("-show_format -show_streams -hide_banner"),
        style="single",
    ),
    b"openssl": ProgramRule(READ, "", subcommands=_OPENSSL),
    b"ss": ProgramRule(
        READ,
        "prints connections",
        (
            option("-K --kill", ESCAPE, "closes connections of other programs"),
            option("-D --diag", CHANGE, _OUT),
            option("-r --resolve", REACH, "asks a name server"),
            option("-N --net", UNSURE, "enters another network"),
        ),
        takes=names("-D --diag -N --net"),
    ),
    b"netstat": ProgramRule(
        REACH,
        "prints connections, and asks a name server",
        takes=names("-A"),
        flags=names("-a -l -t -u -w -x -p -e -o -v -W -c -r -i -g -s -M -4 -6 -C -F -Z -N"),
        softened=names("-n --numeric"),
    ),
    **entries("ssh mosh sshpass autossh", ProgramRule(REACH, "", judge=remote)),
    b"scp": ProgramRule(REACH, "", judge=scp),
    b"sftp": ProgramRule(("networked", "unknown"), "copies files to or from another machine"),
    b"rsync": ProgramRule(CHANGE, "", judge=rsync),
    **entries(
        "ssh-keygen ssh-add ssh-agent ssh-copy-id gpg gpg2 gpgconf age pass secret-tool security keychain op vault",
        ProgramRule(ESCAPE, "handles keys"),
    ),
    **entries(
        "docker podman nerdctl buildah skopeo crictl ctr runc lxc lxc-attach docker-compose podman-compose"
        " vagrant minikube kind",
        ProgramRule(ESCAPE, "runs containers: past this sandbox"),
    ),
    **entries("kubectl helm kustomize terraform tofu", ProgramRule(_ACCOUNT, "", judge=_of_account)),
    **entries(
        "oc pulumi ansible ansible-playbook aws gcloud az gsutil s3cmd doctl flyctl fly heroku vercel netlify firebase"
        " wrangler eb sam cdk serverless",
        ProgramRule(_ACCOUNT, "acts with an account of a remote service"),
    ),
    **entries(
        "umount losetup insmod rmmod modprobe depmod kexec swapon swapoff fdisk parted sfdisk gdisk wipefs"
        " cryptsetup"
        " mdadm lvm pvcreate vgcreate lvcreate debugfs hdparm mke2fs mkswap e2fsck fsck tune2fs resize2fs badblocks",
        ProgramRule(ESCAPE, "changes disks or the kernel"),
    ),
    **entries(
        "mkfs mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat mkfs.ext3 mkfs.ext2",
        ProgramRule(("destructive", "host_escape_risk"), "makes a file system"),
    ),
    **entries(
        "systemctl service initctl rc-service update-rc.d reboot shutdown halt poweroff init telinit loginctl"
        " timedatectl"
        " hostnamectl localectl launchctl crontab at batch anacron",
        ProgramRule(ESCAPE, "changes services or scheduled jobs of the machine"),
    ),
    **entries("iptables sysctl ip ifconfig route arp mount", ProgramRule(ESCAPE, "", judge=_of_machine)),
    **entries(
        "ip6tables nft ufw firewall-cmd tc bridge ethtool iw nmcli netplan wg",
        ProgramRule(ESCAPE, "changes the machine's network or kernel"),
    ),
    **entries(
        "useradd userdel usermod groupadd groupdel passwd chpasswd chsh chfn visudo vipw adduser deluser addgroup",
        ProgramRule(ESCAPE, "changes the machine's users"),
    ),
    **entries(
        "criu bpftool bpftrace nsjail firejail bwrap proot fakeroot unshadow dbus-send busctl gdbus xdg-open open",
        ProgramRule(ESCAPE, "reaches past a sandbox"),
    ),
    **entries(
        "strace ltrace gdb lldb valgrind perf",
        ProgramRule(
            UNSURE, "runs a given command", (option("-p --pid --attach", ESCAPE, "looks into another process"),)
        ),
    ),
    **entries("script expect screen tmux entr inotifywait nodemon", ProgramRule(UNSURE, "runs a given command")),
    **entries("yes", _READS),
    **entries(
        "convert magick ffmpeg gs pdflatex latex xelatex", ProgramRule(("mutating", "unknown"), "converts files")
    ),
}
