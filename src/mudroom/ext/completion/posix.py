"""The bash and zsh completions. Both find words in the same way and differ in how they offer them. The generated part
is functions with ``case`` patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.ext.completion.grammar import VerbLine
from mudroom.ext.completion.shell_table import first_sentence, options_by_value, without_repeats

HEAD = "Written by mudroom completion from mudroom's own parsers."

_BASH = """\
# bash completion for mudroom. {head}
# eval "$(mudroom completion bash)", or a file in ~/.local/share/bash-completion/completions/mudroom

{tables}
__mudroom_reply() {{ # words that begin with the current one
    local word
    while IFS= read -r word; do
        [[ -n $word && $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}}

__mudroom_paths() {{ # an agent named these files, and bash quotes neither ` nor $ of a file that is not in the project
    local word quoted
    while IFS= read -r word; do
        printf -v quoted %q "$word"
        case $cur in
            [\\'\\"]*) [[ $quoted == "$word" && $word == "${{cur:1}}"* ]] && COMPREPLY+=("$word") ;;
            *) [[ -n $word && ($quoted == "$cur"* || $word == "$cur"*) ]] && COMPREPLY+=("$quoted") ;;
        esac
    done
}}

__mudroom_kind() {{
    case $1 in
        files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        '') ;;
        paths) __mudroom_paths < <(mudroom completion --values paths "$fork" 2>/dev/null) ;;
        *) __mudroom_reply < <(mudroom completion --values "$1" 2>/dev/null) ;;
    esac
}}

_mudroom() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local line= fork= word value= at count=0
    COMPREPLY=()
    if [[ $cur == "=" ]]; then cur=
    elif [[ $previous == "=" ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if ((COMP_CWORD == 1)); then __mudroom_reply < <(__mudroom_verbs); return; fi
    line=${{COMP_WORDS[1]}}
    for ((at = 2; at < COMP_CWORD; at++)); do
        word=${{COMP_WORDS[at]}}
        if [[ $word == -- ]]; then
            if declare -F _command_offset >/dev/null; then _command_offset $((at + 1))
            elif ((at + 1 == COMP_CWORD)); then mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); fi
            return
        fi
        if [[ -n $value ]]; then [[ $word == "=" ]] || value=; continue; fi
        if [[ $word == -* ]]; then value=$(__mudroom_value "$line $word"); continue; fi
        if [[ $count == 0 && -n $(__mudroom_is_action "$line $word") ]]; then line="$line $word"; continue; fi
        ((count++)) || fork=$word
    done
    if [[ $previous == -* ]]; then
        value=$(__mudroom_value "$line $previous")
        if [[ $value == words* ]]; then __mudroom_reply < <(printf '%s\\n' ${{value#words}}); return; fi
        if [[ -n $value ]]; then __mudroom_kind "${{value#kind}}"; return; fi
    fi
    if [[ $cur == -* ]]; then __mudroom_reply < <(__mudroom_options "$line"); return; fi
    if ((count == 0)); then __mudroom_reply < <(__mudroom_actions "$line"); fi
    for word in $(__mudroom_argument "$line" $count); do __mudroom_kind "$word"; done
}}
complete -F _mudroom mudroom
"""

_ZSH = """\
#compdef mudroom
# zsh completion for mudroom. {head}
# eval "$(mudroom completion zsh)" after compinit, or a file _mudroom in a directory of $fpath

{tables}
__mudroom_describe() {{ # describe the lines of stdin: a word, then a tab and its help
    local -a rows
    local word help tag=$1
    while IFS=$'\\t' read -r word help; do rows+=("${{word//:/\\\\:}}${{help:+:$help}}"); done
    if [[ $tag == option ]]; then _describe -o $tag rows; else _describe $tag rows; fi
}}

__mudroom_kind() {{
    case $1 in
        files) _files ;;
        directories) _files -/ ;;
        '') ;;
        paths) compadd -- ${{(f)"$(mudroom completion --values paths "$fork" 2>/dev/null)"}} ;;
        *) compadd -- ${{(f)"$(mudroom completion --values $1 2>/dev/null)"}} ;;
    esac
}}

_mudroom() {{
    local line= fork= word value= at count=0 previous=${{words[CURRENT-1]}}
    if ((CURRENT == 2)); then __mudroom_describe verb < <(__mudroom_verbs); return; fi
    line=${{words[2]}}
    for ((at = 3; at < CURRENT; at++)); do
        word=${{words[at]}}
        if [[ $word == -- ]]; then
            words=("${{(@)words[at+1,-1]}}"); ((CURRENT -= at))
            _normal
            return
        fi
        if [[ -n $value ]]; then value=; continue; fi
        if [[ $word == -* ]]; then value=$(__mudroom_value "$line $word"); continue; fi
        if [[ $count == 0 && -n $(__mudroom_is_action "$line $word") ]]; then line="$line $word"; continue; fi
        ((count++)) || fork=$word
    done
    if [[ ${{words[CURRENT]}} == --*=* ]]; then
        previous=${{words[CURRENT]%%=*}}
        compset -P '*='
    fi
    if [[ $previous == -* ]]; then
        value=$(__mudroom_value "$line $previous")
        if [[ $value == words* ]]; then compadd -- ${{=value#words}}; return; fi
        if [[ -n $value ]]; then __mudroom_kind "${{value#kind}}"; return; fi
    fi
    if [[ ${{words[CURRENT]}} == -* ]]; then __mudroom_describe option < <(__mudroom_options "$line"); return; fi
    if ((count == 0)) && [[ -n $(__mudroom_actions "$line") ]]; then
        __mudroom_describe action < <(__mudroom_actions "$line")
    fi
    for word in $(__mudroom_argument "$line" $count); do __mudroom_kind "$word"; done
}}
if [[ ${{funcstack[1]}} == _mudroom ]]; then _mudroom "$@"; else compdef _mudroom mudroom; fi
"""


def bash(lines: Sequence[VerbLine]) -> str:
    return _BASH.format(head=HEAD, tables=_tables(lines, with_help=False))


def zsh(lines: Sequence[VerbLine]) -> str:
    return _ZSH.format(head=HEAD, tables=_tables(lines, with_help=True))


def _tables(lines: Sequence[VerbLine], *, with_help: bool) -> str:
    verbs = [(line.words[0], line.help) for line in lines if len(line.words) == 1]
    return "\n".join(
        [
            "__mudroom_verbs() { " + _printed(verbs, with_help=with_help) + "; }",
            _function("__mudroom_options", '"$1"', _options(lines, with_help=with_help)),
            _function("__mudroom_actions", '"$1"', _actions(lines, with_help=with_help)),
            _function("__mudroom_is_action", '"$1"', _whether_actions(lines)),
            _function("__mudroom_value", '"$1"', _values(lines)),
            _function("__mudroom_argument", '"$1 $2"', _arguments(lines)),
        ]
    )


def _function(name: str, word: str, rows: Iterable[tuple[Sequence[str], str]]) -> str:
    cases = "\n".join(f"        {'|'.join(patterns)}) {body} ;;" for patterns, body in rows)
    return f"{name}() {{\n    case {word} in\n{cases}\n    esac\n}}\n"


def _options(lines: Sequence[VerbLine], *, with_help: bool) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        if without_repeats(line, lines):
            continue
        printed = [(name, first_sentence(option)) for option in line.options for name in option.names]
        name = " ".join(line.words)
        shared = not any(other.words[:-1] == line.words and not without_repeats(other, lines) for other in lines)
        patterns = [_quoted(name), f"{_quoted(name + ' ')}*"] if shared and line.actions else [_quoted(name)]
        rows.append((patterns, _printed(printed, with_help=with_help)))
    return rows


def _actions(lines: Sequence[VerbLine], *, with_help: bool) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        if line.actions:
            printed = [(action, "") for action in line.actions]
            rows.append(([_quoted(line.words[0])], _printed(printed, with_help=with_help)))
    return rows


def _whether_actions(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    return [([_quoted(" ".join(line.words)) for line in lines if len(line.words) > 1], "echo yes")]


def _values(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for (kind, choices), words in options_by_value(lines).items():
        said = "words" + " ".join(choices) if choices else "kind" + kind
        rows.append(([_quoted(word) for word in words], f"echo {_quoted(said)}"))
    return rows


def _arguments(lines: Sequence[VerbLine]) -> list[tuple[Sequence[str], str]]:
    rows: list[tuple[Sequence[str], str]] = []
    for line in lines:
        name = " ".join(line.words)
        kinds = [kind.replace("+", " ") for kind in line.arguments]
        for at, kind in enumerate(kinds):
            pattern = f"{_quoted(name + ' ')}*" if at == len(kinds) - 1 else _quoted(f"{name} {at}")
            if kind and not (at == 0 and line.actions):
                rows.append(([pattern], f"echo {_quoted(kind)}"))
    return rows


def _printed(rows: Sequence[tuple[str, str]], *, with_help: bool) -> str:
    if with_help:
        return r"printf '%s\t%s\n' " + " ".join(f"{_quoted(word)} {_quoted(text)}" for word, text in rows)
    return r"printf '%s\n' " + " ".join(_quoted(word) for word, _text in rows)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
