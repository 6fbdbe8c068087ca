/* The launcher: a small resident process that performs plans.
 *
 * A host starts it with a socket, and sends requests. For each one the launcher clones a child into new namespaces, performs
 * the plan's steps there, drops every privilege and runs the command.
 *
 * Rules of these files:
 * 1. They decide nothing. A plan is a sequence of steps (op, *arguments); a table in step.c maps each op to a function. An
 *    act that is not in the plan does not happen.
 * 2. An unknown step, a wrong argument, any failure before the exec ends the child and is reported with the step's index;
 *    the command has not run.
 * 3. Requests are the host's: they never come from a sandbox. Their sizes and kinds are checked all the same.
 * 4. No library but libc, and one thread. Each descriptor is closed by an exec; the standard ones are the command's.
 * 5. Until its exec each process in a sandbox is a clone of the launcher, so this program is in its reach by /proc/self/exe
 *    (compare CVE-2019-5736). So it runs from a sealed copy in memory, memfd_create(2), whose content nobody can change; it
 *    makes no sandbox with mounts otherwise. No other launcher has that copy: a command may take its mode away.
 *
 * A change of what it is sent, or of how it is started, needs a new PROTOCOL.
 *
 * Processes: launcher (host namespaces) -> init (pid 1 of the sandbox: performs the plan, then reaps) -> command. When its
 * init ends, the kernel kills every process left in a pid namespace (pid_namespaces(7)).
 *
 * From its second command on, a session has a template between launcher and init. A template is a launcher in its own user
 * and mount namespace, where the plan's first steps, which do not depend on the command, have been performed. Every init is
 * cloned from it with a copy of its mount namespace, and performs the rest. The template also knows the steps that every
 * command shares, at the start and at the end: a request to it carries only the command's own steps. The template clones one
 * init in advance, the spare, so that the next command does not wait for its namespaces.
 *
 * A standing template belongs to one fork. It has also mounted the fork's overlays, each over a host directory, and its
 * spare is ready for the command: it has its root, no capabilities, and its filter. It never runs a command itself, and its
 * mounts are moved nowhere: a spare moves the copies that it is cloned with. Without a command for a while, it ends its
 * spare. A request with "refresh" makes it drop the kernel's caches of an overlay's files, so that the command sees the
 * project as it is now. It has a socket in the fork's directory, the door. At the first connection it ends every process
 * that it has cloned, and its mounts, answers one byte, and ends. The holder of the fork's lock connects; no command runs
 * then.
 *
 * Messages, in both directions little-endian: 4 bytes length, then that many bytes of Python's marshal, version 2.
 * Descriptors travel with the length (SCM_RIGHTS). Only the host process and this one ever hold the socket.
 *
 * A command's request is a head, which contains the complete request as bytes ("whole"): a template reads the head, and
 * passes on the bytes.
 *
 * A run's descriptors are, in this order: its stdin, stdout and stderr; the sockets that its host asks for (the request's
 * "sockets" names them); those for its control groups ("into": a directory to clone init into; "join": the number of files
 * by which init moves itself); the report pipe. Over the socket "view" init sends the view's descriptor, over "left" the
 * command's own directories, over "gate" the gate's listeners, over "channel" the pseudo-terminal's master. On "channel" it
 * then waits for a byte before it starts the command, and sends a byte whenever the command has been stopped.
 *
 * A run that is "held" has no command: init writes ("ready",) to the report pipe and receives commands over the socket
 * "door" (init.c). "clear" names overlay work directories (clear.c). It is not answered. "pause" and "resume" carry a pipe
 * for the answer, ("done",) or ("failed", why).
 *
 * A run's report pipe carries one tuple, ("failed", step index, op, errno, detail) or ("exited", wait status, user s, system
 * s, max RSS KiB, refused calls, start, empty). "start" is the CLOCK_MONOTONIC_COARSE time when the command started, or 0 if
 * the request's "after" is 0. "empty" says that init is the only process left in the sandbox. End of file on the pipe means
 * that init has ended, too.
 *
 * Sources: clone(2), pid_namespaces(7), user_namespaces(7), capabilities(7), seccomp_unotify(2), signalfd(2),
 * mount_setattr(2), fsopen(2), landlock(7), netlink(7), unix(7), Python/marshal.c of CPython.
 */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWUSER | CLONE_NEWCGROUP)
#define INTO_CGROUP 0x200000000ULL /* CLONE_INTO_CGROUP */
#define SEALS 0x000f               /* F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE */
enum { CLONE3 = 435, FSCONFIG = 431, FSPICK = 433, PIDFD_OPEN = 434, RECONFIGURE = 7 };

#define QUIET 50 /* milliseconds without an event after which a template clones the next spare while the command that took
                    the last one still runs: when it starts, that command needs the processors, and a spare's fifty mounts
                    slow path look-ups in a short one (mount_lock in fs/namespace.c). */

struct run { /* an init or a template, as known to the launcher that cloned it */
    int64_t identity;
    pid_t pid;
    int pidfd, report; /* report: -1 for a spare */
    bool leaves_orphans;
    struct pids stopped; /* by a pause */
};

struct spare { /* a template's spare init, with the plan parts that all commands share */
    struct shared shared;
    int64_t namespaces; /* clone flags of each init */
    pid_t init;         /* 0: there is none */
    int channel;        /* to it */
    bool has_failed;    /* it could not be made, and is not tried again for every command */
    bool rests;         /* a standing template has none until its next command */
    const struct value *mounts; /* host directories over which a standing template has mounted its overlays */
    int door;           /* of a standing template, or -1 */
    int rest;           /* milliseconds without a command after which a standing template lets its spare go */
};

static struct loop {
    int control;
    struct spare *spare; /* NULL in the launcher itself */
    struct run *runs;
    size_t count, room;
    bool is_sealed; /* rule 5 */
    int life;       /* of this process, for its children: pidfd_open(2) */
} loop;

static const int IGNORED[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGHUP, SIGTERM, SIGPIPE};

static _Noreturn void serve(int control, struct spare *spare);

/* ---- children ---- */

/* Clone with new namespaces, into a control group if there is one: with a null stack as fork(2) does. The child has
   the signals blocked that it will read. Return the pid; 0 in the child. */
static pid_t clone_child(int64_t flags, int group)
{
    sigset_t before;
    sigprocmask(SIG_BLOCK, NULL, &before);
    block_signals();
    long pid;
    if (group < 0) {
        pid = syscall(SYS_clone, (unsigned long)flags | SIGCHLD, 0, 0, 0, 0);
    } else {
        uint64_t arguments[11] = {(uint64_t)flags | INTO_CGROUP, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, (uint64_t)group};
        pid = syscall(CLONE3, arguments, sizeof arguments); /* struct clone_args in clone(2). Linux 5.7 */
    }
    if (pid != 0) {
        int error = errno;
        sigprocmask(SIG_SETMASK, &before, NULL);
        errno = error;
    }
    return (pid_t)pid;
}

/* A cloned child's first instructions: arrange to die with the launcher, leave the terminal's session, wait for the id
   maps, and forbid tracing. */
static void begin_child(int ready)
{
    char word = 'g';
    close(loop.control); /* first: by its end the host learns that this process's parent has ended */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setsid();
    /* A parent that has ended before the arrangement sends no signal: this process would run on alone. Asked after setsid(2),
       which waits for a parent that is about to end (tasklist_lock in kernel/exit.c). */
    struct pollfd parent = {.fd = loop.life, .events = POLLIN};
    if (poll(&parent, 1, 0) > 0)
        _exit(FAILED);
    discard_terminal_signals();
    if (ready >= 0 && (read(ready, &word, 1) != 1 || word != 'g'))
        _exit(FAILED); /* the launcher is gone, or could not write the id maps and has reported that */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* not earlier: it gives root this process's /proc files, and the id maps */
}

#define MOST_NUMBERS 24

/* Have newuidmap(1) or newgidmap(1) write a map: a user's subordinate numbers. */
static bool map_by(const char *program, pid_t pid, const struct value *map)
{
    char number[16], *words[MOST_NUMBERS + 3] = {(char *)program, number}, *rest = NULL, *none[] = {NULL};
    char *numbers = strdup(map->data);
    size_t count = 2;
    int status = 0;
    snprintf(number, sizeof number, "%d", (int)pid);
    for (char *word = numbers == NULL ? NULL : strtok_r(numbers, " \n", &rest); word != NULL && count < MOST_NUMBERS + 2;
         word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    pid_t child = fork();
    if (child == 0) {
        sigset_t open_set;
        sigemptyset(&open_set);
        sigprocmask(SIG_SETMASK, &open_set, NULL);
        execve(program, words, none);
        _exit(FAILED);
    }
    free(numbers);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    errno = child < 0 ? EAGAIN : EPERM;
    return child > 0 && status == 0;
}

/* Write the maps of a child's user namespace. An ordinary user may map only itself (user_namespaces(7)): more is written by
   the programs that the fourth of ``maps`` names. */
static bool map_ids(pid_t pid, const struct value *maps)
{
    char path[48];
    static const char *const names[] = {"uid_map", "gid_map"};
    if (maps != NULL && has_shape(maps->items, maps->size, "bbis") && maps->items[3].size == 2 &&
        is_string(&maps->items[3].items[0]) && is_string(&maps->items[3].items[1]))
        return map_by(maps->items[3].items[0].data, pid, &maps->items[0]) &&
               map_by(maps->items[3].items[1].data, pid, &maps->items[1]);
    if (maps == NULL || !has_shape(maps->items, maps->size, "bbi")) {
        errno = EINVAL;
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/setgroups", (int)pid);
    if (maps->items[2].number && !write_file(path, "deny", 4))
        return false;
    for (size_t index = 0; index < COUNT(names); index++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, names[index]);
        if (!write_file(path, maps->items[index].data, maps->items[index].size))
            return false;
    }
    return true;
}

static struct run *add_run(int64_t identity, pid_t pid, int report, int64_t namespaces)
{
    if (loop.count == loop.room) {
        struct run *grown = realloc(loop.runs, (loop.room * 2 + 16) * sizeof *grown);
        if (grown == NULL)
            _exit(FAILED); /* its sandboxes end with it */
        loop.runs = grown;
        loop.room = loop.room * 2 + 16;
    }
    int pidfd = (int)syscall(PIDFD_OPEN, pid, 0);
    if (pidfd < 0)
        _exit(FAILED); /* no descriptor is left: it could never tell the end */
    loop.runs[loop.count] = (struct run){identity, pid, pidfd, report, !(namespaces & CLONE_NEWPID), {0}};
    return &loop.runs[loop.count++];
}

static _Noreturn void be_template(const struct value *request, struct descriptors *descriptors)
{
    static struct spare spare;
    static struct context context;
    int report = descriptors->numbers[descriptors->count - 1], door = descriptors->count > 2 ? descriptors->numbers[1] : -1;
    int control = descriptors->numbers[0], kept[] = {report, control, door < 0 ? control : door};
    const struct value *plan = find_of(request, "plan", SEQUENCE), *mounts = find_of(request, "mounts", SEQUENCE);
    spare = (struct spare){.shared = {find_of(request, "ahead", SEQUENCE), find_of(request, "last", SEQUENCE)},
                           .namespaces = number_of(request, "each"), .channel = -1, .mounts = mounts, .door = -1,
                           .rest = (int)number_of(request, "rest")};
    if (descriptors->count < 2 || plan == NULL || mounts == NULL || spare.shared.ahead == NULL ||
        spare.shared.last == NULL || (spare.namespaces & ~(int64_t)NAMESPACES) != 0 || (mounts->size > 0 && door < 0)) {
        report_failure(report, NOWHERE, "init", EINVAL, "the request of a template");
        _exit(FAILED);
    }
    keep_only(kept, COUNT(kept));
    begin_context(&context, number_of(request, "namespaces"));
    if (!perform(&context, plan, 0, report))
        _exit(FAILED);
    if (fchdir(context.root) < 0) { /* a clone's working directory is its copy of this mount, in its own namespace */
        report_failure(report, NOWHERE, "init", errno, "the new root");
        _exit(FAILED);
    }
    close(context.root);
    report_word(report, "prepared");
    close(report);
    if (mounts->size > 0)
        spare.door = door;
    serve(control, &spare);
}

/* Clone a sandbox's init, or a template. If that fails, report it. Takes all descriptors; the last is the report pipe. */
static void start(const struct value *request, struct descriptors *descriptors, const struct shared *shared)
{
    static struct context context;
    const struct value *op = find(request, "op");
    bool is_template = op != NULL && is_text(op, "prepare"), is_into = number_of(request, "into") != 0;
    int64_t flags = number_of(request, "namespaces");
    int report = descriptors->numbers[descriptors->count - 1], ready[2];
    int group = is_into && descriptors->count > 4 ? descriptors->numbers[descriptors->count - 2] : -1;
    bool is_valid = (flags & ~(int64_t)NAMESPACES) == 0 && (!is_into || group >= 0);
    if (!is_valid || pipe2(ready, O_CLOEXEC) < 0) {
        report_failure(report, NOWHERE, "clone", is_valid ? errno : EINVAL, "");
        close_all(descriptors);
        return;
    }
    pid_t pid = clone_child(flags, group);
    if (pid < 0) {
        report_failure(report, NOWHERE, group < 0 ? "clone" : "cgroup", errno, "");
        close_all(descriptors);
        close(ready[0]);
        close(ready[1]);
        return;
    }
    if (pid == 0) {
        close(ready[1]);
        begin_child(ready[0]);
        if (is_template)
            be_template(request, descriptors);
        begin_context(&context, flags);
        be_init(&context, request, descriptors, shared, false);
    }
    close(ready[0]);
    for (size_t index = 0; index + 1 < descriptors->count; index++)
        close(descriptors->numbers[index]);
    const char *go = "g";
    /* After the clone: where no namespace can be made, that is the failure to report, and another mode is tried. Without a
       mount namespace the program is in sight by its path as well. */
    if (flags & CLONE_NEWNS && !loop.is_sealed) {
        report_failure(report, NOWHERE, "program", EROFS, "");
        go = "n";
    } else if (flags & CLONE_NEWUSER && !map_ids(pid, find_of(request, "maps", SEQUENCE))) {
        report_failure(report, NOWHERE, "map_ids", errno, "");
        go = "n";
    }
    while (write(ready[1], go, 1) < 0 && errno == EINTR)
        ;
    close(ready[1]);
    add_run(number_of(request, "id"), pid, report, flags);
}

/* ---- the spare ---- */

/* Run an init that has no command yet: perform the steps that need none, then wait for the command. */
static _Noreturn void be_spare(const struct spare *spare, int channel)
{
    static struct context context;
    struct descriptors descriptors;
    struct pool pool = {0};
    struct value request;
    begin_child(-1);
    keep_only(&channel, 1);
    begin_context(&context, spare->namespaces);
    /* the template sees this end and starts the next command without a spare; that command reports the error */
    if (!perform(&context, spare->shared.ahead, 0, -1) || !receive(&pool, channel, &request, &descriptors))
        _exit(FAILED);
    close(channel);
    be_init(&context, &request, &descriptors, &spare->shared, true);
}

static void refill(struct spare *spare)
{
    int pair[2];
    if (spare == NULL || spare->rests || spare->init != 0 || spare->has_failed ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    pid_t pid = clone_child(spare->namespaces, -1);
    if (pid == 0)
        be_spare(spare, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]); /* the next command is cloned when it comes, and reports the error */
        return;
    }
    spare->init = pid;
    spare->channel = pair[0];
    add_run(0, pid, -1, spare->namespaces);
}

/* End the spare. The loop waits for it as for any other run. */
static void let_go(struct spare *spare)
{
    spare->rests = true;
    if (spare->channel >= 0)
        close(spare->channel);
    spare->channel = -1;
    spare->init = 0;
}

/* Hand a command to the spare. Return false if there is none, or if the command's init has to be cloned into a control
   group: a spare could only be moved, which costs more than it saves. */
static bool take_spare(struct spare *spare, const struct value *head, const struct value *whole,
                       struct descriptors *descriptors)
{
    if (spare->init == 0 || number_of(head, "into") ||
        !send_message(spare->channel, whole->data, whole->size, descriptors->numbers, descriptors->count))
        return false; /* if it has ended, its pidfd tells the loop */
    close(spare->channel);
    spare->channel = -1;
    for (size_t index = 0; index < loop.count; index++)
        if (loop.runs[index].pid == spare->init) {
            loop.runs[index].identity = number_of(head, "id");
            loop.runs[index].report = descriptors->numbers[descriptors->count - 1];
        }
    spare->init = 0;
    for (size_t index = 0; index + 1 < descriptors->count; index++)
        close(descriptors->numbers[index]);
    return true;
}

/* Drop the kernel's caches of the overlays' files: reconfigure_super in fs/super.c begins with shrink_dcache_sb. */
static int refresh(const struct spare *spare)
{
    for (size_t index = 0; index < spare->mounts->size; index++) {
        const struct value *mount = &spare->mounts->items[index];
        int picked = is_string(mount) ? (int)syscall(FSPICK, AT_FDCWD, mount->data, 1 /* FSPICK_CLOEXEC */) : -1;
        if (picked < 0)
            return errno;
        int error = syscall(FSCONFIG, picked, RECONFIGURE, NULL, NULL, 0) < 0 ? errno : 0;
        close(picked);
        if (error != 0)
            return error;
    }
    return 0;
}

/* ---- requests ---- */

static void start_in_template(struct spare *spare, const struct value *head, const struct value *whole,
                              struct descriptors *descriptors)
{
    struct pool pool = {0};
    struct value request;
    int report = descriptors->numbers[descriptors->count - 1];
    int error = number_of(head, "refresh") ? refresh(spare) : 0;
    spare->rests = false;
    if (error != 0) {
        report_failure(report, NOWHERE, "refresh", error, "");
        close_all(descriptors);
        return;
    }
    if (take_spare(spare, head, whole, descriptors))
        return;
    if (parse(&pool, (const unsigned char *)whole->data, whole->size, &request)) {
        start(&request, descriptors, &spare->shared);
    } else {
        report_failure(report, NOWHERE, "init", EINVAL, "the request of a command");
        close_all(descriptors);
    }
    free_pool(&pool);
}

static struct run *run_of(int64_t identity)
{
    for (size_t index = 0; index < loop.count; index++)
        if (loop.runs[index].report >= 0 && loop.runs[index].identity == identity)
            return &loop.runs[index];
    return NULL;
}

/* Pause or resume a sandbox, and report when that is done. A sandbox that has ended counts as stopped. */
static void pause_or_resume(bool is_pause, int64_t identity, int answer)
{
    struct run *run = run_of(identity);
    const char *why = run == NULL ? NULL : (is_pause ? pause_all : resume_all)(run->pid, &run->stopped);
    if (why == NULL)
        report_word(answer, "done");
    else
        report_why(answer, why);
}

static void handle(const struct value *request, struct descriptors *descriptors)
{
    const struct value *op = find(request, "op"), *whole = find_of(request, "whole", BYTES);
    int64_t identity = number_of(request, "id");
    if (op == NULL) {
        close_all(descriptors);
    } else if (is_text(op, "signal")) {
        const struct run *run = run_of(identity);
        if (run != NULL)
            kill(run->pid, (int)number_of(request, "signal"));
        close_all(descriptors);
    } else if (is_text(op, "pause") || is_text(op, "resume")) {
        if (descriptors->count == 1)
            pause_or_resume(is_text(op, "pause"), identity, descriptors->numbers[0]);
        close_all(descriptors);
    } else if (is_text(op, "clear")) {
        clear(find_of(request, "works", SEQUENCE));
        close_all(descriptors);
    } else if (descriptors->count == 0) {
        return; /* nobody would hear of it */
    } else if (whole == NULL) {
        start(request, descriptors, NULL);
    } else if (loop.spare != NULL) {
        start_in_template(loop.spare, request, whole, descriptors);
    } else {
        struct pool pool = {0};
        struct value complete;
        if (parse(&pool, (const unsigned char *)whole->data, whole->size, &complete)) {
            start(&complete, descriptors, NULL);
        } else {
            report_failure(descriptors->numbers[descriptors->count - 1], NOWHERE, "init", EINVAL, "the request of a command");
            close_all(descriptors);
        }
        free_pool(&pool);
    }
}

/* ---- the loop ---- */

static void finish(size_t index)
{
    struct run run = loop.runs[index];
    loop.runs[index] = loop.runs[--loop.count];
    waitpid(run.pid, NULL, 0);
    if (loop.spare != NULL && loop.spare->init == run.pid) {
        close(loop.spare->channel);
        loop.spare->channel = -1;
        loop.spare->init = 0;
        loop.spare->has_failed = true;
    }
    if (run.leaves_orphans) {
        struct pids others = {0};
        for (size_t other = 0; other < loop.count; other++)
            add_pid(&others, loop.runs[other].pid);
        end_children(&others);
        free(others.items);
    }
    close(run.pidfd);
    if (run.report >= 0)
        close(run.report);
    free(run.stopped.items);
    refill(loop.spare);
}

static void end_all(void)
{
    for (size_t index = 0; index < loop.count; index++)
        kill(loop.runs[index].pid, SIGKILL);
    for (size_t index = 0; index < loop.count; index++)
        waitpid(loop.runs[index].pid, NULL, 0);
    end_children(NULL);
}

/* End the mounts, after the last process that has copies of them, and answer.

   A process is reaped after it has given up its mount namespace, and an unmount is done when the call returns (cleanup_mnt in
   fs/namespace.c runs before the return to user mode). */
static void dissolve(const struct spare *spare)
{
    int peer = accept4(spare->door, NULL, NULL, SOCK_CLOEXEC);
    for (size_t index = 0; index < spare->mounts->size; index++)
        if (!is_string(&spare->mounts->items[index]) || umount2(spare->mounts->items[index].data, 0) < 0)
            _exit(FAILED); /* the peer hears nothing */
    if (peer >= 0)
        send_with(peer, "g", 1, NULL, 0); /* it may not have waited */
}

/* Return the milliseconds without an event after which there is work to do, or -1. */
static int patience(void)
{
    const struct spare *spare = loop.spare;
    if (spare == NULL)
        return -1;
    if (spare->init == 0 && !spare->has_failed && !spare->rests)
        return QUIET;
    return spare->door >= 0 && spare->init != 0 && loop.count == 1 ? spare->rest : -1;
}

/* Serve requests until the other end of ``control`` is closed; then kill the remaining children. */
static _Noreturn void serve(int control, struct spare *spare)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    size_t room = 0;
    struct pollfd *watched = NULL;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    /* It ends with its host. A service manager signals every process in a control group (systemd.kill(5)), including this
       one, which must not die before the host has collected a command's changes. */
    for (size_t index = 0; index < COUNT(IGNORED); index++)
        sigaction(IGNORED[index], &ignore, NULL);
    sigaction(SIGCHLD, &usual, NULL); /* children of a process that ignores it cannot be waited for (wait(2)) */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* the host had them blocked while this process started; pending ones are dropped */
    loop = (struct loop){.control = control, .spare = spare, .is_sealed = loop.is_sealed,
                         .life = (int)syscall(PIDFD_OPEN, getpid(), 0)};
    refill(spare);
    for (;;) {
        if (watched == NULL || room < loop.count + 2) {
            room = loop.count * 2 + 16;
            watched = realloc(watched, room * sizeof *watched);
            if (watched == NULL)
                _exit(FAILED);
        }
        watched[0] = (struct pollfd){.fd = control, .events = POLLIN};
        watched[1] = (struct pollfd){.fd = spare != NULL ? spare->door : -1, .events = POLLIN};
        for (size_t index = 0; index < loop.count; index++)
            watched[2 + index] = (struct pollfd){.fd = loop.runs[index].pidfd, .events = POLLIN};
        size_t count = loop.count;
        int ready = poll(watched, count + 2, patience());
        if (ready < 0)
            continue;
        if (ready == 0 && spare != NULL) {
            if (spare->init == 0)
                refill(spare);
            else
                let_go(spare);
        }
        /* from the last: the one that takes an ended run's place has been looked at */
        for (size_t index = count; index > 0; index--)
            if (watched[1 + index].revents != 0)
                finish(index - 1);
        if (watched[1].revents != 0 && spare != NULL) {
            end_all();
            close(control); /* before the answer: a request would be lost */
            dissolve(spare);
            _exit(0);
        }
        if (watched[0].revents != 0) {
            struct pool pool = {0};
            struct value request;
            struct descriptors descriptors;
            if (!receive(&pool, control, &request, &descriptors)) {
                end_all();
                _exit(0);
            }
            handle(&request, &descriptors);
            free_pool(&pool);
        }
    }
}

/* ---- the start ---- */

/* Whether this program's file can be changed by nobody. */
static bool is_sealed(void)
{
    int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int seals = own < 0 ? -1 : fcntl(own, 1034 /* F_GET_SEALS */);
    if (own >= 0)
        close(own);
    return seals >= 0 && (seals & SEALS) == SEALS;
}

/* In a container: become a sealed copy of this program, which is started by its path. */
static void become_sealed(char **words)
{
    static char *none[] = {NULL};
    char buffer[1 << 16];
    int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), copy;
    ssize_t size = -1;
    /* MFD_CLOEXEC, MFD_ALLOW_SEALING, and MFD_EXEC, which Linux before 6.3 refuses */
    if ((copy = (int)syscall(SYS_memfd_create, "mudroom-launcher", 3U | 0x10U)) < 0)
        copy = (int)syscall(SYS_memfd_create, "mudroom-launcher", 3U);
    while (own >= 0 && copy >= 0 && (size = read(own, buffer, sizeof buffer)) > 0)
        if (write(copy, buffer, (size_t)size) != size) {
            size = -1;
            break;
        }
    if (own >= 0)
        close(own);
    if (size == 0 && fcntl(copy, 1033 /* F_ADD_SEALS */, SEALS) == 0)
        syscall(SYS_execveat, copy, "", words, none, AT_EMPTY_PATH);
    if (copy >= 0)
        close(copy); /* ``start`` refuses a sandbox with mounts */
}

/* Connect to the host's socket at ``path``. Return -1 if that fails. */
static int connect_to_host(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0 || strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    return connect(made, (const struct sockaddr *)&address, sizeof address) == 0 ? made : -1;
}

/* Words: the number of the socket to the host; or, in a container, "connect" and its path, with "unreadable" where a command
   without its own pid namespace sees this process and has the same user (prctl(2)); or "try". */
int main(int count, char **words)
{
    for (int number = 0; number < 3; number++)
        if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDWR) != number)
            return FAILED;
    if (count == 2 && strcmp(words[1], "try") == 0)
        return try_container();
    if (count > 4 && strcmp(words[1], "probe") == 0)
        return probe_overlays(strtod(words[2], NULL), words[3], words + 4, count - 4);
    loop.is_sealed = is_sealed();
    prctl(PR_SET_NAME, "mudroom-init", 0, 0, 0); /* it was started by a descriptor */
    if (count >= 3 && strcmp(words[1], "connect") == 0) {
        if (!loop.is_sealed)
            become_sealed(words);
        if (count > 3)
            prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        int control = connect_to_host(words[2]);
        if (control < 0)
            return FAILED;
        serve(control, NULL);
    }
    char *end;
    long control = count == 2 ? strtol(words[1], &end, 10) : -1;
    if (control < 3 || *end != '\0' || fcntl((int)control, F_SETFD, FD_CLOEXEC) < 0) {
        static const char text[] = "mudroom starts this program itself: it has no use of its own\n";
        if (write(2, text, sizeof text - 1) < 0)
            return FAILED; /* there is no other place to say it */
        return FAILED;
    }
    int kept = (int)control;
    keep_only(&kept, 1);
    serve(kept, NULL);
}
