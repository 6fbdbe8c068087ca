/* The nursery of a template: a small process that clones its inits, so that no interpreter is cloned for a command.
 *
 * A template (template.py) starts it when the shared steps of a plan are performed, with the template's namespaces and
 * privileges, and asks it for each init. The init is the template's child (CLONE_PARENT), as one that the template has
 * cloned itself; it performs the rest of the plan and runs one command.
 *
 * With words it is another program, the start of the launcher: program.c.
 *
 * A change of what it is sent, or of how it is started, needs a new PROTOCOL.
 *
 * Rules of these files:
 * 1. The same as the rules at the top of launcher.py: they decide nothing, and an act that is not in the plan does not
 *    happen. The steps are those of step.py, in their order; a test compares what a command finds in its sandbox.
 * 2. An unknown step, a wrong argument, any failure before the exec ends the init. It is reported with the index of the
 *    step; the command has not run.
 * 3. It serves commands without a terminal, without mediation, in a pid namespace of their own. All others, and all
 *    where this program is missing or fails, get an init of Python.
 * 4. Requests are the host's: they come by way of the template, never from a sandbox. Their sizes and kinds are checked
 *    all the same.
 * 5. No library but libc, and one thread. Each descriptor is closed by an exec; the standard ones are the command's.
 *
 * Sources: clone(2), pid_namespaces(7), capabilities(7), seccomp_unotify(2), signalfd(2), mount_setattr(2), fsopen(2),
 * landlock(7), netlink(7), unix(7), Python/marshal.c of CPython.
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TEMPLATE 3 /* the socket to the template */
#define NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWUSER | CLONE_NEWCGROUP)

/* Whether a request is one that rule 3 names. The template has asked; this is its proof. */
static bool is_served(const struct value *request)
{
    const struct value *mediation = find(request, "mediation"), *terminal = find(request, "terminal");
    const struct value *held = find(request, "held"), *join = find(request, "join"), *into = find(request, "into");
    return mediation != NULL && mediation->kind == NONE && terminal != NULL && terminal->kind == SEQUENCE &&
           terminal->size == 0 && held != NULL && held->kind == NUMBER && held->number == 0 && join != NULL &&
           join->kind == NUMBER && join->number == 0 && into != NULL && into->kind == NUMBER && into->number == 0;
}

/* Take the descriptors of a request: the standard ones, the host's sockets, and the report pipe, which is returned;
   -1 if they are not as ``sockets`` of the request says. */
static int take_descriptors(struct context *context, const struct value *request, const int *descriptors, size_t count)
{
    const struct value *sockets = find(request, "sockets");
    if (sockets == NULL || sockets->kind != SEQUENCE || count != sockets->size + 4)
        return -1;
    for (size_t index = 0; index < sockets->size; index++) {
        if (is_text(&sockets->items[index], "gate"))
            context->gate = descriptors[3 + index];
        else if (is_text(&sockets->items[index], "view"))
            context->view = descriptors[3 + index];
        else if (is_text(&sockets->items[index], "left"))
            context->left = descriptors[3 + index];
        else
            return -1;
    }
    for (int target = 0; target < 3; target++) {
        if (dup2(descriptors[target], target) < 0)
            return -1;
        close(descriptors[target]);
    }
    return descriptors[count - 1];
}

/* Be an init: perform the steps that need no command, wait for the command, perform the rest and run it. */
static _Noreturn void be_init(const struct value *ahead, const struct value *last, int channel)
{
    static struct context context = {.root = -1, .view = -1, .gate = -1, .left = -1, .listener = -1};
    int descriptors[MOST_DESCRIPTORS];
    size_t count;
    struct value request;
    close(TEMPLATE);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    setsid();
    if (!perform(&context, ahead, 0, -1) || !receive(channel, &request, descriptors, &count))
        _exit(FAILED); /* the template starts the next command without a spare; that one reports the error */
    close(channel);
    int report = is_served(&request) ? take_descriptors(&context, &request, descriptors, count) : -1;
    if (report < 0) {
        if (count > 0)
            report_failure(descriptors[count - 1], (size_t)-1, "init", EINVAL, "the request of a command");
        _exit(FAILED);
    }
    const struct value *own = find(&request, "plan");
    if (!perform(&context, own, ahead->size, report) || !perform(&context, last, ahead->size + own->size, report))
        _exit(FAILED);
    run_command(&context, &request, report);
    _exit(0);
}

/* Clone an init for the other end of ``channel``. Return its pid, or a negative error number. */
static int32_t clone_init(const struct value *begin, int channel)
{
    unsigned long flags = (unsigned long)find(begin, "each")->number | CLONE_PARENT | SIGCHLD;
    long pid = syscall(SYS_clone, flags, 0, 0, 0, 0); /* a null stack: as fork(2) */
    if (pid == 0)
        be_init(find(begin, "ahead"), find(begin, "last"), channel);
    return pid < 0 ? -errno : (int32_t)pid;
}

/* Whether the first message is one of this protocol. Each init has a pid namespace: the template kills no orphans. */
static bool is_valid(const struct value *begin)
{
    const struct value *protocol = find(begin, "protocol"), *each = find(begin, "each");
    const struct value *ahead = find(begin, "ahead"), *last = find(begin, "last");
    return protocol != NULL && is_text(protocol, PROTOCOL) && each != NULL && each->kind == NUMBER &&
           (each->number & CLONE_NEWPID) != 0 && (each->number & CLONE_NEWNS) != 0 &&
           (each->number & ~(int64_t)NAMESPACES) == 0 && ahead != NULL &&
           ahead->kind == SEQUENCE && last != NULL && last->kind == SEQUENCE;
}

int main(int count_of_words, char **words)
{
    struct value begin, none;
    int descriptors[MOST_DESCRIPTORS];
    size_t count;
    if (count_of_words > 1)
        return become_program(words + 1);
    prctl(PR_SET_NAME, "mudroom-init", 0, 0, 0); /* it was started by a descriptor of its file: nursery.py */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* an exec has set it; clones inherit it */
    for (int number = 0; number < 3; number++)
        if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDWR) != number)
            return FAILED;
    if (fcntl(TEMPLATE, F_SETFD, FD_CLOEXEC) < 0 || syscall(436 /* close_range */, TEMPLATE + 1, ~0U, 0) < 0)
        return FAILED;
    block_signals();
    if (!receive(TEMPLATE, &begin, descriptors, &count) || count != 0 || !is_valid(&begin))
        return FAILED;
    while (receive(TEMPLATE, &none, descriptors, &count)) {
        int32_t answer = count == 1 ? clone_init(&begin, descriptors[0]) : -EINVAL;
        for (size_t index = 0; index < count; index++)
            close(descriptors[index]);
        if (!send_with(TEMPLATE, &answer, sizeof answer, NULL, 0))
            break;
    }
    return 0;
}
