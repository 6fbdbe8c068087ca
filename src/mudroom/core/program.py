"""What the programs of a system do, by name. A program that is not here (and not in the other tables) is unknown."""

from __future__ import annotations

from mudroom.core.rule import CHANGE, ESCAPE, FETCH, LOSE, REACH, READ, UNSURE, Rule, option, same

_READS = Rule(READ, "only reads")
_WRITES_ALL = Rule(CHANGE, "writes files", targets="all")
_WRITES_LAST = Rule(CHANGE, "writes files", targets="last")
_MACHINE = Rule(ESCAPE, "changes the machine, not the project")
_CODE = Rule(UNSURE, "runs code that is not read here")
_OUT = "writes a file"
_RUNS = "runs a program"

READERS = """
    ls cat head tail wc grep egrep fgrep zgrep cut tr nl od hexdump strings stat du df pwd echo true false : test [
    basename dirname realpath readlink which type whereis whoami id groups users who w uname arch nproc uptime free ps
    pgrep printenv locale getconf seq sleep tac rev fold fmt column expand unexpand pr comm join paste cmp diff diff3
    cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum sum base32 base64 basenc zcat bzcat xzcat zstdcat
    lz4cat jq expr factor numfmt tsort look cal ncal lsblk lscpu lsof lsusb lspci lsmod pstree vmstat iostat
    nm objdump readelf size ldd c++filt addr2line cloc tokei scc tty stty logname hostid pathchk wait
    exit return break continue shift times ulimit umask hash jobs getopts cd pushd popd dirs sync man apropos whatis
    more exa eza lsd colordiff wdiff sdiff locate plocate mlocate pidof fuser nohup.out iconv
"""

PROGRAMS: dict[bytes, Rule] = {
    **same(READERS, _READS),
    **same("mkdir touch mktemp mkfifo rmdir tee patch install.sh", _WRITES_ALL),
    **same("cp ln install", _WRITES_LAST),
    b"mv": Rule(CHANGE, "moves files", targets="all"),
    b"rm": Rule(LOSE, "removes files", targets="all"),
    **same("unlink shred srm wipe", Rule(LOSE, "removes or overwrites files", targets="all")),
    b"truncate": Rule(LOSE, "cuts files short", targets="all"),
    b"dd": Rule(READ, "copies bytes", (option("of=", LOSE, "overwrites a file"),), "all"),
    b"sort": Rule(
        READ, "only reads", (option("-o --output", CHANGE, _OUT), option("--compress-program", UNSURE, _RUNS))
    ),
    b"curl": Rule(
        REACH,
        "wants the network",
        (
            option("-o --output -O --remote-name --remote-name-all -J --output-dir", CHANGE, _OUT),
            option("-c --cookie-jar -D --dump-header", CHANGE, _OUT),
            option("--trace --trace-ascii --stderr --hsts --alt-svc --etag-save --libcurl", CHANGE, _OUT),
            option("-K --config", UNSURE, "takes options from a file"),
        ),
    ),
    b"wget": Rule(FETCH, "fetches files", (option("-e --execute --use-askpass --config", UNSURE, _RUNS),)),
    **same("ping dig nslookup host traceroute whois nc netcat ncat socat telnet ftp", Rule(REACH, "wants the network")),
    **same(
        "mount umount losetup insmod rmmod modprobe systemctl service reboot shutdown halt poweroff init telinit swapon"
        " swapoff chroot nsenter unshare docker podman nerdctl crictl ctr runc crontab at batch iptables nft ufw sysctl"
        " useradd userdel usermod groupadd passwd chpasswd visudo mkfs fdisk parted",
        _MACHINE,
    ),
    **same("eval source . trap alias enable complete", _CODE),
}
