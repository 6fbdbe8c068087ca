/* Pid 1 of a sandbox: it performs a plan, starts the command, reaps orphans and reports the end. All code here runs in a
 * clone of the launcher or of a template, in the sandbox's namespaces.
 *
 * A held sandbox has no command of its own: several share it, one after the other or side by side. Its rules:
 * 1. A command joins by being forked from init, after init has given up all privileges. It has init's namespaces, root,
 *    control group, limits, system call filter, Landlock domain and empty capability sets, because no process can shed them
 *    after inheriting them (seccomp(2), landlock(7), capabilities(7), PR_SET_NO_NEW_PRIVS). No process enters from outside
 *    (setns(2)), so there is no privilege to drop again and none to forget.
 * 2. Init receives requests over the socket ``door``, from its host alone. At the socket's end of file init ends, and with
 *    it every process in the sandbox.
 * 3. Between init and each command is a ``warden``, the leader of the command's session. It inherits the command's orphans
 *    (PR_SET_CHILD_SUBREAPER), kills them when the command has ended, and tells init. No process may trace it
 *    (PR_SET_DUMPABLE is inherited over fork), and none of another command may open its command's (set_apart). Other
 *    processes in the sandbox can kill it: its orphans then become init's children, and init kills them.
 * 4. A command that "keeps" its orphans, and ended by itself, leaves its warden with them. Init reports the command's end,
 *    and keeps the warden until its last process, or the sandbox, ends.
 *
 * Before the first request, init sends one byte over the door; if the view is an overlay, with a descriptor that
 * reconfigures it (the step "view"). A request is {"op": "command", "id", "argv", "env", "proxies", "search", "cwd",
 * "terminal"} or {"op": "signal", "id", "signal"}. "proxies": the variables in "env" that are left out where
 * every connection is redirected to the gate. A command's descriptors are stdin, stdout and stderr, a socket if
 * "terminal" is not empty (as "channel" in launcher.c), and the report pipe. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PTMX "dev/pts/ptmx"

static const struct value NO_STEPS = {.kind = SEQUENCE};

/* Enter the command's control groups before any other step, and make them a cgroup namespace's root, so that the groups
   above stay invisible. ``groups``: descriptors, by the last ``joined`` of which this process moves itself. */
static int enter_groups(const int *groups, size_t count, size_t joined, int64_t namespaces)
{
    if (count == 0)
        return 0;
    for (size_t index = count - joined; index < count; index++)
        if (write(groups[index], "0", 1) < 0)
            return errno;
    return namespaces & CLONE_NEWCGROUP && unshare(CLONE_NEWCGROUP) < 0 ? errno : 0;
}

static int *socket_of(struct context *context, const struct value *name)
{
    return is_text(name, "view")      ? &context->view
           : is_text(name, "left")    ? &context->left
           : is_text(name, "channel") ? &context->channel
           : is_text(name, "gate")    ? &context->gate
           : is_text(name, "door")    ? &context->door
                                      : NULL;
}

/* Take the descriptors of a request: the standard ones, the host's sockets, those of control groups and the report pipe.
   Close all others but those of ``context``. Return 0 or an error number. */
static int take_descriptors(struct context *context, const struct value *request, struct descriptors *given)
{
    const struct value *sockets = find_of(request, "sockets", SEQUENCE);
    int64_t into = number_of(request, "into"), joined = number_of(request, "join");
    int kept[MOST_DESCRIPTORS + 8];
    size_t count = 0;
    if (sockets == NULL || into < 0 || into > 1 || joined < 0 || joined > MOST_DESCRIPTORS ||
        given->count != 4 + sockets->size + (size_t)into + (size_t)joined)
        return EINVAL;
    for (int target = 0; target < 3; target++)
        if (dup2(given->numbers[target], target) < 0)
            return errno;
    for (size_t index = 0; index < sockets->size; index++) {
        int *socket = socket_of(context, &sockets->items[index]);
        if (socket == NULL)
            return EINVAL;
        *socket = kept[count++] = given->numbers[3 + index];
    }
    kept[count++] = given->numbers[given->count - 1];
    if (context->root >= 0)
        kept[count++] = context->root;
    if (context->listener >= 0)
        kept[count++] = context->listener;
    for (size_t index = 0; index < context->count && count < COUNT(kept); index++)
        kept[count++] = context->listeners[index].descriptor;
    keep_only(kept, count);
    return 0;
}

static _Noreturn void hold(struct context *context, const struct value *request, int report);

/* Be an init: perform the plan, of which ``shared`` has the first and the last steps, and run the command. */
_Noreturn void be_init(struct context *context, const struct value *request, struct descriptors *descriptors,
                       const struct shared *shared, bool is_ahead_done)
{
    static struct command command;
    struct exited exited = {0};
    const struct value *ahead = shared != NULL ? shared->ahead : &NO_STEPS;
    const struct value *last = shared != NULL ? shared->last : &NO_STEPS;
    const struct value *own = find_of(request, "plan", SEQUENCE), *terminal = find_of(request, "terminal", SEQUENCE);
    int64_t namespaces = number_of(request, "namespaces"), joined = number_of(request, "join");
    int report = descriptors->count > 0 ? descriptors->numbers[descriptors->count - 1] : -1, error = 0;
    context->namespaces = namespaces;
    if (!(namespaces & CLONE_NEWPID))
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    size_t groups = (size_t)(number_of(request, "into") != 0) + (size_t)joined;
    if (joined >= 0 && joined <= MOST_DESCRIPTORS && groups + 4 <= descriptors->count)
        error = enter_groups(descriptors->numbers + descriptors->count - 1 - groups, groups, (size_t)joined, namespaces);
    if (error != 0) {
        report_failure(report, NOWHERE, "cgroup", error, "");
        _exit(FAILED);
    }
    error = own == NULL || terminal == NULL ? EINVAL : take_descriptors(context, request, descriptors);
    if (error != 0) {
        report_failure(report, NOWHERE, "init", error, "the request of a command");
        _exit(FAILED);
    }
    if ((!is_ahead_done && !perform(context, ahead, 0, report)) || !perform(context, own, ahead->size, report) ||
        !perform(context, last, ahead->size + own->size, report))
        _exit(FAILED);
    if (number_of(request, "held"))
        hold(context, request, report);
    error = renew_null();
    if (error == 0 && terminal->size > 0)
        error = take_terminal(context, terminal);
    if (error != 0) {
        report_failure(report, NOWHERE, "init", error, strerror(error));
        _exit(FAILED);
    }
    bool has_terminal = terminal->size > 0;
    command.request = request; /* field by field: its refusals are pages that no other process has written */
    command.context = context;
    command.report = report;
    command.signals = watch_signals(has_terminal);
    command.channel = has_terminal ? context->channel : -1;
    command.answers = true;
    command.ends_children = !(namespaces & CLONE_NEWPID);
    if (run_command(&command, &exited))
        report_exit(report, &exited, &command.refusals);
    _exit(0);
}

/* ---- a held sandbox ---- */

struct result { /* what a warden tells init, in memory of both; nothing if it has reported a failure itself, or was killed.
                   Not by a pipe: those of the user's other processes may leave it too little room (pipe(7)). */
    struct exited exited;
    struct refusals refusals;
    bool is_complete;
};

struct member { /* a running command, as init knows it */
    pid_t warden;
    int64_t identity;
    int report;
    struct result *result; /* NULL: the end is reported, and the warden stays with orphans */
    struct refusals before; /* the counts in the sandbox when it began */
};

struct holder {
    struct context *context;
    const struct value *mediation;
    struct refusals refusals;
    struct member *members;
    size_t count, room;
};

/* Run a command in its warden: start it, wait for it, kill its orphans, and tell init. */
static _Noreturn void be_warden(struct context *context, const struct value *request, struct descriptors *given,
                                struct result *result)
{
    static struct command command;
    const struct value *terminal = find_of(request, "terminal", SEQUENCE), *cwd = find(request, "cwd");
    size_t sockets = terminal != NULL && terminal->size > 0;
    if (terminal == NULL || cwd == NULL || !is_string(cwd) || given->count != 4 + sockets) {
        report_failure(given->numbers[given->count - 1], NOWHERE, "init", EINVAL, "the request of a command");
        _exit(FAILED);
    }
    int report = given->numbers[3 + sockets], kept[] = {report, sockets ? given->numbers[3] : report};
    int error = set_apart(context);
    bool is_redirected = context->is_redirected;
    const char *op = error == 0 ? "init" : "landlock";
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (int target = 0; target < 3 && error == 0; target++)
        error = dup2(given->numbers[target], target) < 0 ? errno : 0;
    keep_only(kept, COUNT(kept));
    begin_context(context, 0);
    context->is_redirected = is_redirected;
    if (error == 0)
        error = renew_null();
    if (error == 0 && chdir(cwd->data) < 0) {
        error = errno;
        op = "cwd";
    }
    if (error == 0 && sockets) {
        /* The sandbox's own devpts, which the command cannot have replaced: no process in it can change its mounts. */
        struct value path = {.kind = BYTES, .data = PTMX, .size = strlen(PTMX)};
        context->channel = given->numbers[3];
        context->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        op = "terminal";
        error = step_terminal(context, &path, 1);
        close(context->root);
        if (error == 0)
            error = take_terminal(context, terminal);
    }
    if (error != 0) {
        report_failure(report, NOWHERE, op, error, "");
        _exit(FAILED);
    }
    command = (struct command){.request = request, .context = context, .report = report,
                               .signals = watch_signals(sockets > 0), .channel = sockets ? context->channel : -1,
                               .ends_children = !number_of(request, "keeps")};
    if (!run_command(&command, &result->exited))
        _exit(FAILED);
    if (!WIFEXITED(result->exited.status))
        end_children(NULL);
    result->refusals = command.refusals;
    result->is_complete = true;
    if (!command.ends_children) {
        keep_only(NULL, 0); /* the host reads the report to its end */
        kill(getppid(), SIGCHLD);
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
            ;
    }
    _exit(0);
}

/* Put the mediation of the sandbox into a command's request. */
static struct value with_mediation(const struct value *request, const struct value *mediation)
{
    static const char key[] = "mediation";
    struct value more = *request;
    struct value *items = malloc((2 * request->size + 2) * sizeof *items);
    if (items == NULL)
        _exit(FAILED);
    items[0] = (struct value){.kind = TEXT, .data = key, .size = sizeof key - 1};
    items[1] = *mediation;
    memcpy(items + 2, request->items, 2 * request->size * sizeof *items);
    more.items = items; /* ``find`` takes the first */
    more.size++;
    return more;
}

static void start_member(struct holder *holder, const struct value *request, struct descriptors *given)
{
    if (given->count < 4) {
        close_all(given);
        return;
    }
    int report = given->numbers[given->count - 1];
    if (holder->count == holder->room) {
        struct member *grown = realloc(holder->members, (holder->room * 2 + 8) * sizeof *grown);
        if (grown == NULL) {
            report_failure(report, NOWHERE, "clone", ENOMEM, "");
            close_all(given);
            return;
        }
        holder->members = grown;
        holder->room = holder->room * 2 + 8;
    }
    struct result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED) {
        report_failure(report, NOWHERE, "clone", errno, "");
        close_all(given);
        return;
    }
    pid_t warden = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, 0, 0, 0, 0);
    if (warden == 0) {
        struct value whole = with_mediation(request, holder->mediation);
        be_warden(holder->context, &whole, given, result);
    }
    if (warden < 0) {
        report_failure(report, NOWHERE, "clone", errno, "");
        munmap(result, sizeof *result);
        close_all(given);
        return;
    }
    for (size_t index = 0; index + 1 < given->count; index++)
        close(given->numbers[index]);
    const struct value *identity = find_of(request, "id", NUMBER);
    struct member *member = &holder->members[holder->count++];
    *member = (struct member){.warden = warden, .identity = identity != NULL ? identity->number : 0, .report = report,
                              .result = result, .before = holder->refusals};
}

static void handle(struct holder *holder, const struct value *request, struct descriptors *given)
{
    const struct value *op = find(request, "op"), *identity = find_of(request, "id", NUMBER);
    if (op != NULL && is_text(op, "command")) {
        start_member(holder, request, given);
        return;
    }
    close_all(given);
    for (size_t index = 0; identity != NULL && index < holder->count; index++)
        if (holder->members[index].identity == identity->number && holder->members[index].result != NULL)
            /* The warden forwards the signal; SIGKILL ends the warden, and init kills its orphans. */
            kill(holder->members[index].warden, (int)number_of(request, "signal"));
}

static void end_orphans(const struct holder *holder)
{
    struct pids spared = {0};
    for (size_t index = 0; index < holder->count; index++)
        add_pid(&spared, holder->members[index].warden);
    for (size_t index = 0; index < holder->context->moving; index++)
        add_pid(&spared, holder->context->movers[index].pid);
    if (holder->context->engine_pid > 0)
        add_pid(&spared, holder->context->engine_pid);
    end_children(&spared);
    free(spared.items);
}

static unsigned long count_of(const struct refusals *refusals, int64_t rule)
{
    for (size_t index = 0; index < refusals->count; index++)
        if (refusals->counted[index].rule == rule)
            return refusals->counted[index].count;
    return 0;
}

/* Report a command's end. Its refused calls have been counted: each of its processes has had its answer, or was killed. */
static void finish(struct holder *holder, struct member *member, int status)
{
    struct result *result = member->result;
    end_orphans(holder);
    bool is_told = result->is_complete || WIFSIGNALED(status); /* else it has reported why the command was not started */
    if (!result->is_complete)
        *result = (struct result){.exited = {.status = status}};
    for (size_t index = 0; index < holder->refusals.count; index++) {
        int64_t rule = holder->refusals.counted[index].rule;
        unsigned long by = holder->refusals.counted[index].count - count_of(&member->before, rule);
        if (by > 0)
            count_refusal(&result->refusals, rule, by);
    }
    if (result->refusals.names == 0) { /* else they are of a mediator, and no mover exists */
        memcpy(result->refusals.named, holder->refusals.named, holder->refusals.size);
        result->refusals.size = holder->refusals.size;
        result->refusals.names = holder->refusals.names;
        holder->refusals.size = holder->refusals.names = 0;
    }
    result->exited.started = 0;
    result->exited.is_empty = true;
    if (is_told)
        report_exit(member->report, &result->exited, &result->refusals);
    munmap(result, sizeof *result);
    close(member->report);
}

static void reap_wardens(struct holder *holder)
{
    int status;
    pid_t pid;
    for (size_t index = 0; index < holder->count; index++)
        if (holder->members[index].result != NULL && holder->members[index].result->is_complete) {
            finish(holder, &holder->members[index], 0);
            holder->members[index].result = NULL;
        }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t index = 0; index < holder->count; index++)
            if (holder->members[index].warden == pid) {
                struct member ended = holder->members[index];
                holder->members[index] = holder->members[--holder->count];
                if (ended.result != NULL)
                    finish(holder, &ended, status);
                break;
            }
        finish_rename(holder->context, pid, status, &holder->refusals);
        end_orphans(holder); /* those of a killed warden */
    }
}

/* Serve commands until the door's other end is closed. */
static _Noreturn void hold(struct context *context, const struct value *request, int report)
{
    static struct holder holder;
    static const struct value nothing = {.kind = NONE};
    const struct value *mediation = find(request, "mediation");
    int door = context->door, listener = context->listener, signals = watch_signals(false);
    holder.context = context;
    holder.mediation = mediation != NULL ? mediation : &nothing;
    if (door < 0 || signals < 0 || door >= FD_SETSIZE || signals >= FD_SETSIZE || listener >= FD_SETSIZE) {
        report_failure(report, NOWHERE, "init", EINVAL, "the request of a held sandbox");
        _exit(FAILED);
    }
    report_word(report, "ready");
    for (;;) {
        struct pool pool = {0};
        struct value value;
        struct descriptors given;
        fd_set ready;
        reap_wardens(&holder);
        FD_ZERO(&ready);
        FD_SET((unsigned)door, &ready);
        FD_SET((unsigned)signals, &ready);
        if (listener >= 0)
            FD_SET((unsigned)listener, &ready);
        int highest = door > signals ? door : signals;
        if (select((listener > highest ? listener : highest) + 1, &ready, NULL, NULL, NULL) < 0)
            continue;
        if (FD_ISSET((unsigned)signals, &ready)) {
            char received[1024];
            while (read(signals, received, sizeof received) > 0)
                ; /* only SIGCHLD means something, and it is looked for in any case */
        }
        if (listener >= 0 && FD_ISSET((unsigned)listener, &ready))
            answer_refusal(context, &holder.refusals);
        if (FD_ISSET((unsigned)door, &ready)) {
            if (!receive(&pool, door, &value, &given))
                break;
            handle(&holder, &value, &given);
            free_pool(&pool);
        }
    }
    if (!(context->namespaces & CLONE_NEWPID)) /* in a pid namespace the kernel kills them */
        end_children(NULL);
    _exit(0);
}
