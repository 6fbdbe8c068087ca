# fish completion for mudroom. Written by mudroom completion from mudroom's own parsers.
# mudroom completion fish > ~/.config/fish/completions/mudroom.fish

function __mudroom_line # the verb, and its action, of the words before the cursor; fails behind --
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    set -l line $words[2]
    for word in $words[3..]
        if contains -- "$line $word" @ACTIONS@
            set line "$line $word"
            break
        end
    end
    echo $line
end

function __mudroom_in # whether the line is of these verbs, or of actions of these
    set -l line (__mudroom_line); or return 1
    contains -- $line $argv; or contains -- (string split ' ' -- $line)[1] $argv
end

function __mudroom_is # whether the line is exactly one of these
    set -l line (__mudroom_line); or return 1
    contains -- $line $argv
end

function __mudroom_fork # the first word that is no verb, action or option
    set -l line (string split ' ' -- (__mudroom_line))
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $word; or contains -- $word $line; or begin
            echo $word
            return
        end
    end
end

function __mudroom_paths # after the name of a fork: its paths
    set -l fork (__mudroom_fork)
    test -n "$fork"; and mudroom completion --values paths $fork 2>/dev/null
end

function __mudroom_rest # the completions of the command behind --
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    set -l command (string escape -- $words[(math $at + 1)..] 2>/dev/null)
    complete -C "$command "(commandline -ct)
end

complete -c mudroom -f
complete -c mudroom -n 'contains -- -- (commandline -opc)' -a '(__mudroom_rest)'
@ROWS@
