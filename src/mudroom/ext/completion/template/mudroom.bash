# bash completion for mudroom. Written by mudroom completion from mudroom's own parsers.
# eval "$(mudroom completion bash)", or a file in ~/.local/share/bash-completion/completions/mudroom

@TABLES@
__mudroom_reply() { # words that begin with the current one
    local word
    while IFS= read -r word; do
        [[ -n $word && $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}

__mudroom_paths() { # an agent named these files, and bash quotes neither ` nor $ of a file that is not in the project
    local word quoted
    while IFS= read -r word; do
        printf -v quoted %q "$word"
        case $cur in
            [\'\"]*) [[ $quoted == "$word" && $word == "${cur:1}"* ]] && COMPREPLY+=("$word") ;;
            *) [[ -n $word && ($quoted == "$cur"* || $word == "$cur"*) ]] && COMPREPLY+=("$quoted") ;;
        esac
    done
}

__mudroom_kind() {
    case $1 in
        files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        '') ;;
        paths) __mudroom_paths < <(mudroom completion --values paths "$fork" 2>/dev/null) ;;
        *) __mudroom_reply < <(mudroom completion --values "$1" 2>/dev/null) ;;
    esac
}

_mudroom() {
    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local line= fork= word value= at count=0
    COMPREPLY=()
    if [[ $cur == "=" ]]; then cur=
    elif [[ $previous == "=" ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
    if ((COMP_CWORD == 1)); then __mudroom_reply < <(__mudroom_verbs); return; fi
    line=${COMP_WORDS[1]}
    for ((at = 2; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
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
        if [[ $value == words* ]]; then __mudroom_reply < <(printf '%s\n' ${value#words}); return; fi
        if [[ -n $value ]]; then __mudroom_kind "${value#kind}"; return; fi
    fi
    if [[ $cur == -* ]]; then __mudroom_reply < <(__mudroom_options "$line"); return; fi
    if ((count == 0)); then __mudroom_reply < <(__mudroom_actions "$line"); fi
    for word in $(__mudroom_argument "$line" $count); do __mudroom_kind "$word"; done
}
complete -F _mudroom mudroom
