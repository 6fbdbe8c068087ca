"""What stands in for git's test library and for git itself, so that git's own scripts of tests tell the merges of
contents that they ask for. Files of a project, by name; ``record.sh`` runs them.

The scripts are run by ``sh``, without a build of git: functions of theirs that need one fail, and so do their tests,
which does not matter here. Every merge of contents is done by a merge driver (gitattributes(5)) that first keeps its
three files in ``triples/SCRIPT.HASH/{base,ours,theirs}``.
"""

from __future__ import annotations

RECORD = """\
#!/bin/sh
# keep OURS BASE THEIRS, as git merge-file has them
hash=$(cat "$2" "$1" "$3" | sha1sum | cut -c1-12)
place="$RECORDS/$SCRIPT.$hash"
[ -d "$place" ] || { mkdir -p "$place" && cp "$1" "$place/ours" && cp "$2" "$place/base" && cp "$3" "$place/theirs"; }
"""

GIT = """\
#!/bin/sh
for word in "$@"; do
    [ "$word" = merge-file ] || continue
    first= second= third=
    for name in "$@"; do first=$second second=$third third=$name; done
    [ ! -f "$third" ] || [ ! -f "$second" ] || [ ! -f "$first" ] || keep "$first" "$second" "$third"
    break
done
exec /usr/bin/git "$@"
"""

DRIVER = """\
#!/bin/sh
# %O %A %B %L
keep "$2" "$1" "$3"
exec /usr/bin/git merge-file -q --marker-size="$4" "$2" "$1" "$3"
"""

LIBRARY = """\
# sourced by git's scripts of tests instead of their own library
[ -z "$LIBRARY_READ" ] || return 0
LIBRARY_READ=1
exec 3>/dev/null 4>/dev/null 5>&1 6</dev/null 7>&2 # its functions write to these
. "$TEST_DIRECTORY/test-lib-functions.sh"
EMPTY_TREE=4b825dc642cb6eb9a060e54bf8d69288fbee4904 EMPTY_BLOB=e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
ZERO_OID=0000000000000000000000000000000000000000 _z40=$ZERO_OID SQ="'" LF='
'
export EMPTY_TREE EMPTY_BLOB ZERO_OID LF
GIT_AUTHOR_NAME='A U Thor' GIT_AUTHOR_EMAIL=author@example.com
GIT_COMMITTER_NAME='C O Mitter' GIT_COMMITTER_EMAIL=committer@example.com
GIT_MERGE_VERBOSITY=5 GIT_MERGE_AUTOEDIT=no EDITOR=: VISUAL=: GIT_TRACE_BARE=1
: "${GIT_TEST_DEFAULT_INITIAL_BRANCH_NAME:=master}"
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_MERGE_VERBOSITY GIT_MERGE_AUTOEDIT
export EDITOR VISUAL GIT_TEST_DEFAULT_INITIAL_BRANCH_NAME
test_have_prereq() { case $1 in '!'*|*,*|MINGW|CYGWIN|CASE_INSENSITIVE_FS|GPG*|JGIT|P4*) false;; *) true;; esac; }
test_set_prereq() { :; }
test_lazy_prereq() { :; }
test_oid_init() { :; }
test_oid_cache() { cat >/dev/null; }
test_oid() { echo $ZERO_OID; }
say() { :; }
error() { exit 1; }
skip_all=
test_when_finished() { test_cleanup="{ $*
} && (exit \\"\\$eval_ret\\"); eval_ret=\\$?; $test_cleanup"; }
test_expect_success() {
    if [ $# = 3 ]; then test_have_prereq "$1" || return 0; shift; fi
    case $2 in -) set -- "$1" "$(cat)";; esac
    test_cleanup=: eval_ret=0
    eval "$2" </dev/null >/dev/null 2>&1
    eval_ret=$?
    eval "$test_cleanup" </dev/null >/dev/null 2>&1
    [ "$eval_ret" != 0 ] || echo "ok $SCRIPT" >>"$RECORDS/passed"
    cd "$TRASH_DIRECTORY"
}
test_expect_failure() { test_expect_success "$@"; }
test_expect_merge_algorithm() { shift; [ $# = 2 ] || [ $# = 3 ] || return 0; shift; test_expect_success "$@"; }
test_done() { exit 0; }
mkdir -p "$TRASH_DIRECTORY" && cd "$TRASH_DIRECTORY" && git init -q . >/dev/null 2>&1
"""

ALL = """\
#!/bin/sh
# record.sh TESTS SCRIPT…
tests=$1; shift
here=$PWD
export PATH="$here/tools:/usr/bin:/bin" TEST_DIRECTORY="$tests" RECORDS="$here/triples" LC_ALL=C TZ=UTC
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=merge.default GIT_CONFIG_VALUE_0=recorder
export GIT_CONFIG_KEY_1=merge.recorder.driver GIT_CONFIG_VALUE_1='driver %O %A %B %L'
mkdir -p "$RECORDS"
for script in "$@"; do
    SCRIPT=${script%%-*}
    TRASH_DIRECTORY="$here/trash/$SCRIPT" HOME="$here/trash/$SCRIPT" TEST_NAME=$SCRIPT
    export SCRIPT TRASH_DIRECTORY HOME TEST_NAME
    mkdir -p "$here/run/$SCRIPT" && cd "$here/run/$SCRIPT" || exit 1
    cp "$tests"/lib-*.sh "$tests"/diff-lib.sh . 2>/dev/null
    cp "$here/tools/test-lib.sh" .
    timeout 60 sh "$tests/$script" >/dev/null 2>&1 </dev/null
    cd "$here" && rm -rf "$here/trash/$SCRIPT" "$here/run/$SCRIPT"
done
tar -C "$here" -cf "$here/triples.tar" triples
"""

FILES = {"tools/keep": RECORD, "tools/git": GIT, "tools/driver": DRIVER, "tools/test-lib.sh": LIBRARY, "record.sh": ALL}
