# bash completion for mudroom. Written by dev/completion from mudroom's own parsers; do not edit.
# eval "$(mudroom completion bash)", or a file in ~/.local/share/bash-completion/completions/mudroom

__mudroom_verbs() { printf '%s\n' 'run' 'exec' 'try' 'proxy' 'hook' 'shell-shim' 'ps' 'fork' 'checkpoint' 'rollback' 'shell' 'mount' 'unmount' 'ls' 'status' 'diff' 'review' 'apply' 'resolve' 'discard' 'undo' 'redo' 'recover' 'log' 'vault' 'agent' 'acp' 'approve' 'policy' 'net' 'serve' 'mcp' 'fleet' 'worker' 'image' 'keeper' 'doctor' 'certify' 'setup' 'completion'; }
__mudroom_options() {
    case "$1" in
        'run') printf '%s\n' '-h' '--help' '--json' '--project' '--yes' '-y' '--no' '-n' '--keep' '-k' '--git' '--ask' '--on' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' '--explain' ;;
        'exec') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--card' '--agent' '--ask' '--background' '--on' '--stream' '--quiet' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'try'|'try '*) printf '%s\n' '-h' '--help' '--json' '--project' '-n' '--jobs' '--judge' '--score' '--until' '--budget' '--from' '--combine' '--all' '--card' '--agent' '--ask' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'proxy'|'proxy '*) printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--agent' '--from' '--at' '--snapshot' '--mark' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'hook'|'hook '*) printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--allow-tool' '--prefix' ;;
        'shell-shim') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' ;;
        'ps') printf '%s\n' '-h' '--help' '--json' '--project' '--end' '--output' '--all' '--grace' ;;
        'fork'|'fork '*) printf '%s\n' '-h' '--help' '--json' '--project' '--from' '--snapshot' '--yes' '-y' ;;
        'checkpoint') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' ;;
        'rollback') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--yes' '-y' '--no' '-n' '--end' ;;
        'shell') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--card' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'mount') printf '%s\n' '-h' '--help' '--json' '--project' '--read-only' '-r' '--kind' ;;
        'unmount') printf '%s\n' '-h' '--help' '--json' '--project' '--lost' ;;
        'ls') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'status') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'diff') printf '%s\n' '-h' '--help' '--json' '--project' '--conflicts' '--commits' '--patch' '-p' '--stat' '--repository' '--fork' ;;
        'review') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'apply') printf '%s\n' '-h' '--help' '--json' '--project' '--yes' '-y' '--patch' '-p' '--git' '--markers' '--bak' '--reviewed' '--commits' '--commit' '--message' '-m' '--branch' ;;
        'resolve') printf '%s\n' '-h' '--help' '--json' '--project' '--mine' '--ours' '--theirs' '--both' '--hunk' '--edit' '--tool' '--show' '--all' '--undecide' ;;
        'discard') printf '%s\n' '-h' '--help' '--json' '--project' '--yes' '-y' '--end' ;;
        'undo') printf '%s\n' '-h' '--help' '--json' '--project' '--yes' '-y' ;;
        'redo') printf '%s\n' '-h' '--help' '--json' '--project' '--yes' '-y' ;;
        'recover') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'log'|'log '*) printf '%s\n' '-h' '--help' '--json' '--project' '-n' '--last' '--kind' '--fork' '--agent' '--since' '--until' '--verdict' '--grep' '--follow' '--format' '-o' '--output' '--against' ;;
        'vault'|'vault '*) printf '%s\n' '-h' '--help' '--json' '--project' '--dry-run' '-n' '--forks' '--all' '--yes' '-y' '--limit' ;;
        'agent') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'agent run') printf '%s\n' '-h' '--help' '--json' '--project' '--on' '--fork' '--branch' '--artifacts' '--checked' '--allow-card-network' '--ask' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'agent ls') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'agent show') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'agent settings') printf '%s\n' '-h' '--help' '--json' '--project' '--diff' '--land' '--all' '--undo' ;;
        'agent check') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'agent card') printf '%s\n' '-h' '--help' '--json' '--project' '--url' ;;
        'acp') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--outside' '--ask' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'approve') printf '%s\n' '-h' '--help' '--json' '--project' '--deny' '--always' '--preset' '--reason' '--follow' '-f' '--all' ;;
        'policy'|'policy '*) printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--agent' '--level' '--yes' '-y' ;;
        'net'|'net '*) printf '%s\n' '-h' '--help' '--json' '--project' '--private' '--follow' '--fork' '--har' '--header' '--from' '--foreign' '--remove' '--as' '--all-users' '--denied' '-n' '--last' ;;
        'serve') printf '%s\n' '-h' '--help' '--json' '--project' '--card' '--root' '--port' '--url-prefix' '--host-name' '--open' '--link' '--forget' '--token' ;;
        'mcp') printf '%s\n' '-h' '--help' '--json' '--project' '--fork' '--card' '--agent' '--ask' '--http' '--level' '--net' '--image' '--timeout' '--memory' '--processes' '--cpus' '--io' '--open-files' '--tmp' '--inotify' '--file-size' '--view' '--env' '--show' '--read' ;;
        'fleet'|'fleet '*) printf '%s\n' '-h' '--help' '--json' '--project' '--replace' '--jobs' '-n' '--count' '--each' '--on' '--judge' '--retry' '--fetch' '--through-origin' '--any-arch' '--git' '--level' '--timeout' '--quiet' '-q' ;;
        'worker') printf '%s\n' '-h' '--help' '--json' '--project' '--stdio' '--engine' '--jobs' ;;
        'image'|'image '*) printf '%s\n' '-h' '--help' '--json' '--project' '--engine' '--from' '--name' '--suite' '--include' '--mirror' '--file' '--context' '--network' ;;
        'keeper'|'keeper '*) printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'doctor') printf '%s\n' '-h' '--help' '--json' '--project' '--all' '--table' ;;
        'certify') printf '%s\n' '-h' '--help' '--json' '--project' '--all' '--send' ;;
        'setup') printf '%s\n' '-h' '--help' '--json' '--project' ;;
        'completion') printf '%s\n' '-h' '--help' '--json' '--project' '--values' ;;
    esac
}

__mudroom_actions() {
    case "$1" in
        'try') printf '%s\n' 'ls' 'show' 'discard' ;;
        'proxy') printf '%s\n' 'prepare' 'inspect' 'rollback' ;;
        'hook') printf '%s\n' 'install' ;;
        'fork') printf '%s\n' 'new' 'ls' 'rename' 'rm' ;;
        'log') printf '%s\n' 'verify' 'export' ;;
        'vault') printf '%s\n' 'ls' 'init' 'gc' 'check' 'export' 'import' ;;
        'agent') printf '%s\n' 'run' 'ls' 'show' 'settings' 'check' 'card' ;;
        'policy') printf '%s\n' 'why' 'check' 'init' 'schema' 'show' 'trust' 'distrust' ;;
        'net') printf '%s\n' 'allow' 'deny' 'rm' 'ls' 'presets' 'why' 'log' 'open' 'show' 'reach' 'credential' ;;
        'fleet') printf '%s\n' 'add' 'ls' 'rm' 'run' 'runs' 'logs' 'cancel' 'resume' 'fetch' ;;
        'image') printf '%s\n' 'build' 'ls' 'rm' ;;
        'keeper') printf '%s\n' 'status' 'stop' ;;
    esac
}

__mudroom_is_action() {
    case "$1" in
        'try ls'|'try show'|'try discard'|'proxy prepare'|'proxy inspect'|'proxy rollback'|'hook install'|'fork new'|'fork ls'|'fork rename'|'fork rm'|'log verify'|'log export'|'vault ls'|'vault init'|'vault gc'|'vault check'|'vault export'|'vault import'|'agent run'|'agent ls'|'agent show'|'agent settings'|'agent check'|'agent card'|'policy why'|'policy check'|'policy init'|'policy schema'|'policy show'|'policy trust'|'policy distrust'|'net allow'|'net deny'|'net rm'|'net ls'|'net presets'|'net why'|'net log'|'net open'|'net show'|'net reach'|'net credential'|'fleet add'|'fleet ls'|'fleet rm'|'fleet run'|'fleet runs'|'fleet logs'|'fleet cancel'|'fleet resume'|'fleet fetch'|'image build'|'image ls'|'image rm'|'keeper status'|'keeper stop') echo yes ;;
    esac
}

__mudroom_value() {
    case "$1" in
        'run --project'|'exec --project'|'try --project'|'try ls --project'|'try show --project'|'try discard --project'|'proxy --project'|'proxy prepare --project'|'proxy inspect --project'|'proxy rollback --project'|'hook --project'|'hook install --project'|'shell-shim --project'|'ps --project'|'fork --project'|'fork new --project'|'fork ls --project'|'fork rename --project'|'fork rm --project'|'checkpoint --project'|'rollback --project'|'shell --project'|'mount --project'|'unmount --project'|'ls --project'|'status --project'|'diff --project'|'diff --repository'|'review --project'|'apply --project'|'resolve --project'|'discard --project'|'undo --project'|'redo --project'|'recover --project'|'log --project'|'log verify --project'|'log export --project'|'vault --project'|'vault ls --project'|'vault init --project'|'vault gc --project'|'vault check --project'|'vault export --project'|'vault import --project'|'agent --project'|'agent run --project'|'agent run --artifacts'|'agent ls --project'|'agent show --project'|'agent settings --project'|'agent check --project'|'agent card --project'|'acp --project'|'approve --project'|'policy --project'|'policy why --project'|'policy check --project'|'policy init --project'|'policy schema --project'|'policy show --project'|'policy trust --project'|'policy distrust --project'|'net --project'|'net allow --project'|'net deny --project'|'net rm --project'|'net ls --project'|'net presets --project'|'net why --project'|'net log --project'|'net open --project'|'net show --project'|'net reach --project'|'net credential --project'|'serve --project'|'serve --root'|'mcp --project'|'fleet --project'|'fleet add --project'|'fleet ls --project'|'fleet rm --project'|'fleet run --project'|'fleet runs --project'|'fleet logs --project'|'fleet cancel --project'|'fleet resume --project'|'fleet fetch --project'|'worker --project'|'image --project'|'image --context'|'image build --project'|'image build --context'|'image ls --project'|'image ls --context'|'image rm --project'|'image rm --context'|'keeper --project'|'keeper status --project'|'keeper stop --project'|'doctor --project'|'certify --project'|'setup --project'|'completion --project') echo 'kinddirectories' ;;
        'run --ask') echo 'wordsterminal queue never' ;;
        'run --on'|'exec --on'|'agent run --on'|'fleet --on'|'fleet add --on'|'fleet ls --on'|'fleet rm --on'|'fleet run --on'|'fleet runs --on'|'fleet logs --on'|'fleet cancel --on'|'fleet resume --on'|'fleet fetch --on') echo 'kindworkers' ;;
        'run --level'|'exec --level'|'try --level'|'try ls --level'|'try show --level'|'try discard --level'|'proxy --level'|'proxy prepare --level'|'proxy inspect --level'|'proxy rollback --level'|'shell --level'|'agent run --level'|'acp --level'|'policy --level'|'policy why --level'|'policy check --level'|'policy init --level'|'policy schema --level'|'policy show --level'|'policy trust --level'|'policy distrust --level'|'mcp --level'|'fleet --level'|'fleet add --level'|'fleet ls --level'|'fleet rm --level'|'fleet run --level'|'fleet runs --level'|'fleet logs --level'|'fleet cancel --level'|'fleet resume --level'|'fleet fetch --level') echo 'words0 1 2' ;;
        'run --net'|'exec --net'|'try --net'|'try ls --net'|'try show --net'|'try discard --net'|'proxy --net'|'proxy prepare --net'|'proxy inspect --net'|'proxy rollback --net'|'shell --net'|'agent run --net'|'acp --net'|'mcp --net') echo 'wordsgate none open' ;;
        'run --image'|'run --timeout'|'run --memory'|'run --processes'|'run --cpus'|'run --io'|'run --open-files'|'run --tmp'|'run --inotify'|'run --file-size'|'run --env'|'exec --agent'|'exec --image'|'exec --timeout'|'exec --memory'|'exec --processes'|'exec --cpus'|'exec --io'|'exec --open-files'|'exec --tmp'|'exec --inotify'|'exec --file-size'|'exec --env'|'try -n'|'try --jobs'|'try --judge'|'try --until'|'try --budget'|'try --agent'|'try --image'|'try --timeout'|'try --memory'|'try --processes'|'try --cpus'|'try --io'|'try --open-files'|'try --tmp'|'try --inotify'|'try --file-size'|'try --env'|'try ls -n'|'try ls --jobs'|'try ls --judge'|'try ls --until'|'try ls --budget'|'try ls --agent'|'try ls --image'|'try ls --timeout'|'try ls --memory'|'try ls --processes'|'try ls --cpus'|'try ls --io'|'try ls --open-files'|'try ls --tmp'|'try ls --inotify'|'try ls --file-size'|'try ls --env'|'try show -n'|'try show --jobs'|'try show --judge'|'try show --until'|'try show --budget'|'try show --agent'|'try show --image'|'try show --timeout'|'try show --memory'|'try show --processes'|'try show --cpus'|'try show --io'|'try show --open-files'|'try show --tmp'|'try show --inotify'|'try show --file-size'|'try show --env'|'try discard -n'|'try discard --jobs'|'try discard --judge'|'try discard --until'|'try discard --budget'|'try discard --agent'|'try discard --image'|'try discard --timeout'|'try discard --memory'|'try discard --processes'|'try discard --cpus'|'try discard --io'|'try discard --open-files'|'try discard --tmp'|'try discard --inotify'|'try discard --file-size'|'try discard --env'|'proxy --agent'|'proxy --at'|'proxy --mark'|'proxy --image'|'proxy --timeout'|'proxy --memory'|'proxy --processes'|'proxy --cpus'|'proxy --io'|'proxy --open-files'|'proxy --tmp'|'proxy --inotify'|'proxy --file-size'|'proxy --env'|'proxy prepare --agent'|'proxy prepare --at'|'proxy prepare --mark'|'proxy prepare --image'|'proxy prepare --timeout'|'proxy prepare --memory'|'proxy prepare --processes'|'proxy prepare --cpus'|'proxy prepare --io'|'proxy prepare --open-files'|'proxy prepare --tmp'|'proxy prepare --inotify'|'proxy prepare --file-size'|'proxy prepare --env'|'proxy inspect --agent'|'proxy inspect --at'|'proxy inspect --mark'|'proxy inspect --image'|'proxy inspect --timeout'|'proxy inspect --memory'|'proxy inspect --processes'|'proxy inspect --cpus'|'proxy inspect --io'|'proxy inspect --open-files'|'proxy inspect --tmp'|'proxy inspect --inotify'|'proxy inspect --file-size'|'proxy inspect --env'|'proxy rollback --agent'|'proxy rollback --at'|'proxy rollback --mark'|'proxy rollback --image'|'proxy rollback --timeout'|'proxy rollback --memory'|'proxy rollback --processes'|'proxy rollback --cpus'|'proxy rollback --io'|'proxy rollback --open-files'|'proxy rollback --tmp'|'proxy rollback --inotify'|'proxy rollback --file-size'|'proxy rollback --env'|'hook --allow-tool'|'hook --prefix'|'hook install --allow-tool'|'hook install --prefix'|'ps --grace'|'shell --image'|'shell --timeout'|'shell --memory'|'shell --processes'|'shell --cpus'|'shell --io'|'shell --open-files'|'shell --tmp'|'shell --inotify'|'shell --file-size'|'shell --env'|'apply --reviewed'|'apply --message'|'apply -m'|'apply --branch'|'resolve --hunk'|'resolve --tool'|'log -n'|'log --last'|'log --kind'|'log --agent'|'log --since'|'log --until'|'log --grep'|'log --against'|'log verify -n'|'log verify --last'|'log verify --kind'|'log verify --agent'|'log verify --since'|'log verify --until'|'log verify --grep'|'log verify --against'|'log export -n'|'log export --last'|'log export --kind'|'log export --agent'|'log export --since'|'log export --until'|'log export --grep'|'log export --against'|'vault --forks'|'vault --limit'|'vault ls --forks'|'vault ls --limit'|'vault init --forks'|'vault init --limit'|'vault gc --forks'|'vault gc --limit'|'vault check --forks'|'vault check --limit'|'vault export --forks'|'vault export --limit'|'vault import --forks'|'vault import --limit'|'agent run --branch'|'agent run --checked'|'agent run --image'|'agent run --timeout'|'agent run --memory'|'agent run --processes'|'agent run --cpus'|'agent run --io'|'agent run --open-files'|'agent run --tmp'|'agent run --inotify'|'agent run --file-size'|'agent run --env'|'agent card --url'|'acp --image'|'acp --timeout'|'acp --memory'|'acp --processes'|'acp --cpus'|'acp --io'|'acp --open-files'|'acp --tmp'|'acp --inotify'|'acp --file-size'|'acp --env'|'approve --reason'|'policy --agent'|'policy why --agent'|'policy check --agent'|'policy init --agent'|'policy schema --agent'|'policy show --agent'|'policy trust --agent'|'policy distrust --agent'|'net --header'|'net --from'|'net --remove'|'net --as'|'net -n'|'net --last'|'net allow --header'|'net allow --from'|'net allow --remove'|'net allow --as'|'net allow -n'|'net allow --last'|'net deny --header'|'net deny --from'|'net deny --remove'|'net deny --as'|'net deny -n'|'net deny --last'|'net rm --header'|'net rm --from'|'net rm --remove'|'net rm --as'|'net rm -n'|'net rm --last'|'net ls --header'|'net ls --from'|'net ls --remove'|'net ls --as'|'net ls -n'|'net ls --last'|'net presets --header'|'net presets --from'|'net presets --remove'|'net presets --as'|'net presets -n'|'net presets --last'|'net why --header'|'net why --from'|'net why --remove'|'net why --as'|'net why -n'|'net why --last'|'net log --header'|'net log --from'|'net log --remove'|'net log --as'|'net log -n'|'net log --last'|'net open --header'|'net open --from'|'net open --remove'|'net open --as'|'net open -n'|'net open --last'|'net show --header'|'net show --from'|'net show --remove'|'net show --as'|'net show -n'|'net show --last'|'net reach --header'|'net reach --from'|'net reach --remove'|'net reach --as'|'net reach -n'|'net reach --last'|'net credential --header'|'net credential --from'|'net credential --remove'|'net credential --as'|'net credential -n'|'net credential --last'|'serve --port'|'serve --url-prefix'|'serve --host-name'|'mcp --agent'|'mcp --http'|'mcp --image'|'mcp --timeout'|'mcp --memory'|'mcp --processes'|'mcp --cpus'|'mcp --io'|'mcp --open-files'|'mcp --tmp'|'mcp --inotify'|'mcp --file-size'|'mcp --env'|'fleet --jobs'|'fleet -n'|'fleet --count'|'fleet --judge'|'fleet --retry'|'fleet --fetch'|'fleet --timeout'|'fleet add --jobs'|'fleet add -n'|'fleet add --count'|'fleet add --judge'|'fleet add --retry'|'fleet add --fetch'|'fleet add --timeout'|'fleet ls --jobs'|'fleet ls -n'|'fleet ls --count'|'fleet ls --judge'|'fleet ls --retry'|'fleet ls --fetch'|'fleet ls --timeout'|'fleet rm --jobs'|'fleet rm -n'|'fleet rm --count'|'fleet rm --judge'|'fleet rm --retry'|'fleet rm --fetch'|'fleet rm --timeout'|'fleet run --jobs'|'fleet run -n'|'fleet run --count'|'fleet run --judge'|'fleet run --retry'|'fleet run --fetch'|'fleet run --timeout'|'fleet runs --jobs'|'fleet runs -n'|'fleet runs --count'|'fleet runs --judge'|'fleet runs --retry'|'fleet runs --fetch'|'fleet runs --timeout'|'fleet logs --jobs'|'fleet logs -n'|'fleet logs --count'|'fleet logs --judge'|'fleet logs --retry'|'fleet logs --fetch'|'fleet logs --timeout'|'fleet cancel --jobs'|'fleet cancel -n'|'fleet cancel --count'|'fleet cancel --judge'|'fleet cancel --retry'|'fleet cancel --fetch'|'fleet cancel --timeout'|'fleet resume --jobs'|'fleet resume -n'|'fleet resume --count'|'fleet resume --judge'|'fleet resume --retry'|'fleet resume --fetch'|'fleet resume --timeout'|'fleet fetch --jobs'|'fleet fetch -n'|'fleet fetch --count'|'fleet fetch --judge'|'fleet fetch --retry'|'fleet fetch --fetch'|'fleet fetch --timeout'|'worker --jobs'|'image --name'|'image --suite'|'image --include'|'image --mirror'|'image build --name'|'image build --suite'|'image build --include'|'image build --mirror'|'image ls --name'|'image ls --suite'|'image ls --include'|'image ls --mirror'|'image rm --name'|'image rm --suite'|'image rm --include'|'image rm --mirror') echo 'kind' ;;
        'run --view'|'exec --view'|'try --view'|'try ls --view'|'try show --view'|'try discard --view'|'proxy --view'|'proxy prepare --view'|'proxy inspect --view'|'proxy rollback --view'|'shell --view'|'agent run --view'|'acp --view'|'mcp --view') echo 'wordsauto overlay copy' ;;
        'run --show'|'run --read'|'exec --card'|'exec --show'|'exec --read'|'try --card'|'try --show'|'try --read'|'try ls --card'|'try ls --show'|'try ls --read'|'try show --card'|'try show --show'|'try show --read'|'try discard --card'|'try discard --show'|'try discard --read'|'proxy --show'|'proxy --read'|'proxy prepare --show'|'proxy prepare --read'|'proxy inspect --show'|'proxy inspect --read'|'proxy rollback --show'|'proxy rollback --read'|'shell --card'|'shell --show'|'shell --read'|'resolve --show'|'log -o'|'log --output'|'log verify -o'|'log verify --output'|'log export -o'|'log export --output'|'agent run --show'|'agent run --read'|'agent settings --land'|'acp --show'|'acp --read'|'net --har'|'net allow --har'|'net deny --har'|'net rm --har'|'net ls --har'|'net presets --har'|'net why --har'|'net log --har'|'net open --har'|'net show --har'|'net reach --har'|'net credential --har'|'serve --card'|'mcp --card'|'mcp --show'|'mcp --read'|'fleet --each'|'fleet add --each'|'fleet ls --each'|'fleet rm --each'|'fleet run --each'|'fleet runs --each'|'fleet logs --each'|'fleet cancel --each'|'fleet resume --each'|'fleet fetch --each'|'image --file'|'image build --file'|'image ls --file'|'image rm --file'|'certify --send') echo 'kindfiles' ;;
        'exec --fork'|'try --from'|'try ls --from'|'try show --from'|'try discard --from'|'proxy --fork'|'proxy --from'|'proxy prepare --fork'|'proxy prepare --from'|'proxy inspect --fork'|'proxy inspect --from'|'proxy rollback --fork'|'proxy rollback --from'|'hook --fork'|'hook install --fork'|'shell-shim --fork'|'fork --from'|'fork new --from'|'fork ls --from'|'fork rename --from'|'fork rm --from'|'checkpoint --fork'|'rollback --fork'|'shell --fork'|'diff --fork'|'log --fork'|'log verify --fork'|'log export --fork'|'agent run --fork'|'acp --fork'|'policy --fork'|'policy why --fork'|'policy check --fork'|'policy init --fork'|'policy schema --fork'|'policy show --fork'|'policy trust --fork'|'policy distrust --fork'|'net --fork'|'net allow --fork'|'net deny --fork'|'net rm --fork'|'net ls --fork'|'net presets --fork'|'net why --fork'|'net log --fork'|'net open --fork'|'net show --fork'|'net reach --fork'|'net credential --fork'|'mcp --fork') echo 'kindforks' ;;
        'exec --ask'|'try --ask'|'try ls --ask'|'try show --ask'|'try discard --ask'|'agent run --ask') echo 'wordsterminal queue later never' ;;
        'try --score'|'try ls --score'|'try show --score'|'try discard --score') echo 'wordsexit json -lines' ;;
        'mount --kind') echo 'wordsoverlay fuse copy' ;;
        'log --verdict'|'log verify --verdict'|'log export --verdict') echo 'wordsallow allow_with_checkpoint require_approval deny' ;;
        'log --format'|'log verify --format'|'log export --format') echo 'wordsjsonl otlp csv' ;;
        'acp --ask') echo 'wordseditor queue later never' ;;
        'net --foreign'|'net allow --foreign'|'net deny --foreign'|'net rm --foreign'|'net ls --foreign'|'net presets --foreign'|'net why --foreign'|'net log --foreign'|'net open --foreign'|'net show --foreign'|'net reach --foreign'|'net credential --foreign') echo 'wordsrefuse strip allow' ;;
        'mcp --ask') echo 'wordsclient queue never' ;;
        'worker --engine') echo 'wordslocal ray' ;;
        'image --engine'|'image build --engine'|'image ls --engine'|'image rm --engine') echo 'wordsdocker podman container' ;;
        'image --from'|'image build --from'|'image ls --from'|'image rm --from') echo 'wordshost debootstrap containerfile' ;;
        'completion --values') echo 'wordsforks paths presets profiles tries workers' ;;
    esac
}

__mudroom_argument() {
    case "$1 $2" in
        'try show '*) echo 'tries' ;;
        'try discard '*) echo 'tries' ;;
        'hook install '*) echo 'profiles' ;;
        'shell-shim '*) echo 'directories' ;;
        'fork rename '*) echo 'forks' ;;
        'fork rm '*) echo 'forks' ;;
        'mount 0') echo 'forks' ;;
        'mount '*) echo 'directories' ;;
        'unmount '*) echo 'forks' ;;
        'diff 0') echo 'forks' ;;
        'diff '*) echo 'paths' ;;
        'review '*) echo 'forks tries' ;;
        'apply 0') echo 'forks' ;;
        'apply '*) echo 'paths' ;;
        'resolve 0') echo 'forks' ;;
        'resolve '*) echo 'paths' ;;
        'discard '*) echo 'forks' ;;
        'vault export 0') echo 'forks' ;;
        'vault export '*) echo 'files' ;;
        'vault import '*) echo 'files' ;;
        'agent run '*) echo 'files' ;;
        'agent show '*) echo 'profiles' ;;
        'agent settings '*) echo 'forks' ;;
        'agent check '*) echo 'files' ;;
        'agent card '*) echo 'files' ;;
        'policy check '*) echo 'files' ;;
        'policy trust '*) echo 'files' ;;
        'net allow '*) echo 'presets' ;;
        'net deny '*) echo 'presets' ;;
        'net rm '*) echo 'presets' ;;
        'fleet rm '*) echo 'workers' ;;
        'certify '*) echo 'files' ;;
    esac
}

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
