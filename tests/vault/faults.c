/*
 * A process watched by the kernel itself: every system call that changes something on disk stops it, before and, where
 * wanted, after. Used by faults.py.
 *
 * The child installs a seccomp filter that lets the calls below that change nothing (HARMLESS) pass and stops at
 * every other one, whether it comes from glibc, from ctypes or from a bare syscall(). The parent traces the child
 * (ptrace), tells what the call is, asks what to do, and does it: let it pass, kill before or after it, have it fail,
 * have it write only half, send SIGINT. A call that is in neither of the two lists is reported as unknown, so nothing
 * can be missed for want of a name. Stores into a shared mapping are no calls; the mapping itself is reported.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <elf.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "only x86_64 and aarch64"
#endif

#define END 0x6d726f6f /* prctl: from here on nothing is counted */
#define OPENS (O_CREAT | O_TRUNC | 020000000 /* __O_TMPFILE */)
#define TCGETS_ 0x5401
#define FIONREAD_ 0x541b
#define FIONBIO_ 0x5421
#define FIOCLEX_ 0x5451

enum { SPACE = 1, SHORT = 2, NOTED = 4, UNKNOWN = 8, ENDED = 16 };            /* what decide is told of a call */
/* Its answer; negative: an errno. ASK_AGAIN: once more when the call has ended (ENDED). */
enum { PASS = 0, KILL_BEFORE = 1, KILL_AFTER = 2, HALF = 3, INTERRUPT = 4, ASK_AGAIN = 5 };

struct call {
    int number;
    const char *name;
    const char *arguments; /* d: directory of the path after it, p: path, f: descriptor, -: not shown */
    int traits;
    int count; /* which argument says how many bytes to write */
};

static const struct call CHANGES[] = {
#ifdef SYS_open
    {SYS_open, "open", "p", SPACE, 0},
    {SYS_creat, "creat", "p", SPACE, 0},
    {SYS_rename, "rename", "pp", SPACE, 0},
    {SYS_link, "link", "pp", SPACE, 0},
    {SYS_unlink, "unlink", "p", 0, 0},
    {SYS_symlink, "symlink", "-p", SPACE, 0},
    {SYS_mkdir, "mkdir", "p", SPACE, 0},
    {SYS_rmdir, "rmdir", "p", 0, 0},
    {SYS_mknod, "mknod", "p", SPACE, 0},
    {SYS_chmod, "chmod", "p", 0, 0},
    {SYS_chown, "chown", "p", 0, 0},
    {SYS_lchown, "lchown", "p", 0, 0},
    {SYS_utime, "utime", "p", 0, 0},
    {SYS_utimes, "utimes", "p", 0, 0},
    {SYS_futimesat, "futimesat", "dp", 0, 0},
    {SYS_renameat, "renameat", "dpdp", SPACE, 0},
#endif
    {SYS_openat, "openat", "dp", SPACE, 0},
    {SYS_openat2, "openat2", "dp", SPACE, 0},
    {SYS_write, "write", "f", SPACE, 2},
    {SYS_pwrite64, "pwrite", "f", SPACE, 2},
    {SYS_writev, "writev", "f", SPACE, 0},
    {SYS_pwritev, "pwritev", "f", SPACE, 0},
    {SYS_pwritev2, "pwritev2", "f", SPACE, 0},
    {SYS_copy_file_range, "copy_file_range", "--f", SPACE, 4},
    {SYS_sendfile, "sendfile", "f", SPACE, 3},
    {SYS_splice, "splice", "--f", SPACE, 4},
    {SYS_ioctl, "ioctl", "f", SPACE, 0},
    {SYS_renameat2, "renameat2", "dpdp", SPACE, 0},
    {SYS_linkat, "linkat", "dpdp", SPACE, 0},
    {SYS_unlinkat, "unlinkat", "dp", 0, 0},
    {SYS_symlinkat, "symlinkat", "-dp", SPACE, 0},
    {SYS_mkdirat, "mkdirat", "dp", SPACE, 0},
    {SYS_mknodat, "mknodat", "dp", SPACE, 0},
    {SYS_fchmod, "fchmod", "f", 0, 0},
    {SYS_fchmodat, "fchmodat", "dp", 0, 0},
#ifdef SYS_fchmodat2
    {SYS_fchmodat2, "fchmodat2", "dp", 0, 0},
#endif
    {SYS_fchown, "fchown", "f", 0, 0},
    {SYS_fchownat, "fchownat", "dp", 0, 0},
    {SYS_utimensat, "utimensat", "dp", 0, 0},
    {SYS_truncate, "truncate", "p", 0, 0},
    {SYS_ftruncate, "ftruncate", "f", 0, 0},
    {SYS_fallocate, "fallocate", "f", SPACE, 0},
    {SYS_fsync, "fsync", "f", 0, 0},
    {SYS_fdatasync, "fdatasync", "f", 0, 0},
    {SYS_syncfs, "syncfs", "f", 0, 0},
    {SYS_sync, "sync", "", 0, 0},
    {SYS_sync_file_range, "sync_file_range", "f", 0, 0},
    {SYS_msync, "msync", "", 0, 0},
    {SYS_setxattr, "setxattr", "p", SPACE, 0},
    {SYS_lsetxattr, "lsetxattr", "p", SPACE, 0},
    {SYS_fsetxattr, "fsetxattr", "f", SPACE, 0},
    {SYS_removexattr, "removexattr", "p", 0, 0},
    {SYS_lremovexattr, "lremovexattr", "p", 0, 0},
    {SYS_fremovexattr, "fremovexattr", "f", 0, 0},
    {SYS_mount, "mount", "-p", 0, 0},
    {SYS_umount2, "umount2", "p", 0, 0},
    {SYS_mmap, "mmap", "----f", NOTED, 0},
};

static const int HARMLESS[] = {
#ifdef SYS_stat
    SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_getdents, SYS_dup2, SYS_pipe, SYS_poll, SYS_select,
    SYS_epoll_wait, SYS_arch_prctl, SYS_time, SYS_alarm, SYS_pause, SYS_getpgrp,
#endif
    SYS_read, SYS_pread64, SYS_readv, SYS_preadv, SYS_close, SYS_close_range, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_lseek, SYS_getdents64, SYS_readlinkat, SYS_faccessat, SYS_faccessat2, SYS_fcntl,
    SYS_flock, SYS_dup, SYS_dup3, SYS_pipe2, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl,
    SYS_epoll_pwait, SYS_eventfd2, SYS_fadvise64, SYS_readahead, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_umask,
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_brk, SYS_munmap,
    SYS_mprotect, SYS_mremap, SYS_madvise, SYS_mincore, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_rt_sigtimedwait, SYS_sigaltstack, SYS_kill, SYS_tgkill, SYS_futex, SYS_set_robust_list, SYS_rseq,
    SYS_set_tid_address, SYS_membarrier, SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getgid,
    SYS_getegid, SYS_getgroups, SYS_getpgid, SYS_getsid, SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep,
    SYS_nanosleep, SYS_gettimeofday, SYS_getitimer, SYS_setitimer, SYS_times, SYS_getrusage, SYS_getrandom, SYS_memfd_create,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler, SYS_getpriority,
    SYS_prlimit64, SYS_getrlimit, SYS_sysinfo, SYS_uname, SYS_wait4, SYS_waitid, SYS_exit, SYS_exit_group,
    SYS_restart_syscall,
};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define BITS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, value, yes, no)

static int install_filter(void) {
    struct sock_filter code[64 + 2 * sizeof HARMLESS / sizeof *HARMLESS];
    size_t size = 0;
#define ADD(...) code[size++] = (struct sock_filter)__VA_ARGS__
    ADD(LOAD(nr));
    for (size_t i = 0; i < sizeof HARMLESS / sizeof *HARMLESS; i++) {
        ADD(EQUAL(HARMLESS[i], 0, 1));
        ADD(RETURN(SECCOMP_RET_ALLOW));
    }
    /* open and openat: only those that make or empty a file */
    ADD(EQUAL(SYS_openat, 0, 4));
    ADD(LOAD(args[2]));
    ADD(BITS(OPENS, 1, 0));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(RETURN(SECCOMP_RET_TRACE));
#ifdef SYS_open
    ADD(EQUAL(SYS_open, 0, 4));
    ADD(LOAD(args[1]));
    ADD(BITS(OPENS, 1, 0));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(RETURN(SECCOMP_RET_TRACE));
#endif
    /* mmap: only what can be written to and is shared with a file */
    ADD(EQUAL(SYS_mmap, 0, 8));
    ADD(LOAD(args[3]));
    ADD(BITS(0x20 /* MAP_ANONYMOUS */, 4, 0));
    ADD(BITS(0x01 /* MAP_SHARED */, 0, 3));
    ADD(LOAD(args[2]));
    ADD(BITS(0x02 /* PROT_WRITE */, 0, 1));
    ADD(RETURN(SECCOMP_RET_TRACE));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(EQUAL(SYS_ioctl, 0, 6));
    ADD(LOAD(args[1]));
    ADD(EQUAL(TCGETS_, 3, 0));
    ADD(EQUAL(FIONREAD_, 2, 0));
    ADD(EQUAL(FIONBIO_, 1, 0));
    ADD(EQUAL(FIOCLEX_, 0, 1));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(LOAD(nr));
    ADD(EQUAL(SYS_prctl, 0, 3));
    ADD(LOAD(args[0]));
    ADD(EQUAL(END, 1, 0));
    ADD(RETURN(SECCOMP_RET_ALLOW));
    ADD(RETURN(SECCOMP_RET_TRACE));
#undef ADD
    struct sock_fprog program = {(unsigned short)size, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -errno;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return -errno;
    return 0;
}

/* In the child: be watched from here on. Returns 0 or a negative errno. */
int faults_begin(void) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) return -errno;
    raise(SIGSTOP);
    return install_filter();
}

/* In the child: from here on every call passes. */
void faults_end(void) { prctl(END, 0, 0, 0, 0); }

/* --- the parent --- */

typedef int (*decider)(long number, const char *name, const char *what, int traits);

static void read_string(pid_t pid, uint64_t address, char *text, size_t size) {
    size_t done = 0;
    while (done + 1 < size) {
        size_t step = 4096 - (address + done) % 4096; /* never past a page that may be the last */
        if (step > size - 1 - done) step = size - 1 - done;
        struct iovec mine = {text + done, step}, theirs = {(void *)(uintptr_t)(address + done), step};
        ssize_t got = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
        if (got <= 0) break;
        if (memchr(text + done, 0, (size_t)got)) return;
        done += (size_t)got;
    }
    text[done] = 0;
}

static void descriptor_path(pid_t pid, int descriptor, char *text, size_t size) {
    char link[64];
    if (descriptor == AT_FDCWD) snprintf(link, sizeof link, "/proc/%d/cwd", pid);
    else snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, descriptor);
    ssize_t got = readlink(link, text, size - 1);
    text[got < 0 ? 0 : got] = 0;
}

static void describe(pid_t pid, const struct call *call, const uint64_t *arguments, char *text, size_t size) {
    char directory[4096] = "", path[4096];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; call->arguments[i] && used < size; i++) {
        char kind = call->arguments[i];
        const char *between = used ? " " : "";
        if (kind == 'd') descriptor_path(pid, (int)arguments[i], directory, sizeof directory);
        if (kind == 'f') {
            descriptor_path(pid, (int)arguments[i], path, sizeof path);
            used += (size_t)snprintf(text + used, size - used, "%s%s", between, path);
        }
        if (kind == 'p') {
            read_string(pid, arguments[i], path, sizeof path);
            if (path[0] == '/' || !directory[0]) used += (size_t)snprintf(text + used, size - used, "%s%s", between, path);
            else used += (size_t)snprintf(text + used, size - used, "%s%s/%s", between, directory, path);
            directory[0] = 0;
        }
    }
}

static int is_on_disk(const char *path) {
    return path[0] == '/' && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) && strncmp(path, "/memfd:", 7);
}

/* Whether this very call, one of the CHANGES, changes something. */
static int changes(pid_t pid, const struct call *call, const uint64_t *arguments, const char *what) {
    if (call->number == SYS_openat2) {
        uint64_t flags = 0;
        struct iovec mine = {&flags, sizeof flags}, theirs = {(void *)(uintptr_t)arguments[2], sizeof flags};
        if (process_vm_readv(pid, &mine, 1, &theirs, 1, 0) != sizeof flags) return 1;
        return (flags & OPENS) != 0;
    }
    if (strpbrk(call->arguments, "f")) {
        if (!strncmp(what, "/dev/shm/", 9)) return 1;
        return is_on_disk(what); /* not a pipe, a socket, a terminal */
    }
    return 1;
}

#if defined(__x86_64__)
static int fail(pid_t pid, int number) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, 0, &registers)) return -1;
    registers.orig_rax = (unsigned long long)-1;
    registers.rax = (unsigned long long)(long long)-number;
    return (int)ptrace(PTRACE_SETREGS, pid, 0, &registers);
}

static int halve(pid_t pid, int which) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, 0, &registers)) return -1;
    unsigned long long *place[] = {&registers.rdi, &registers.rsi, &registers.rdx,
                                   &registers.r10, &registers.r8,  &registers.r9};
    *place[which] /= 2;
    return (int)ptrace(PTRACE_SETREGS, pid, 0, &registers);
}
#else
static int fail(pid_t pid, int number) {
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    int none = -1;
    struct iovec one = {&none, sizeof none};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all)) return -1;
    registers.regs[0] = (unsigned long long)(long long)-number;
    if (ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all)) return -1;
    return (int)ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &one);
}

static int halve(pid_t pid, int which) {
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all)) return -1;
    registers.regs[which] /= 2;
    return (int)ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &all);
}
#endif

static const struct call *find(uint64_t number) {
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++)
        if ((uint64_t)CHANGES[i].number == number) return &CHANGES[i];
    return NULL;
}

static int counting;
static long counted;
static int kill_at_end;     /* what to do when the call that is under way has ended */
static const char *ending; /* its name */

/* At a stop before a call: returns how to go on (a ptrace request), or 0 if the child has been killed. */
static int at_call(pid_t pid, decider decide) {
    struct __ptrace_syscall_info info;
    char what[3 * 4096];
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) < 0) return 0;
    if (info.seccomp.nr == SYS_prctl && info.seccomp.args[0] == END) counting = 0;
    if (!counting) return PTRACE_CONT;
    const struct call *call = find(info.seccomp.nr);
    if (!call) {
        snprintf(what, sizeof what, "%llu", (unsigned long long)info.seccomp.nr);
        decide(0, "unknown", what, UNKNOWN);
        return PTRACE_CONT;
    }
    const uint64_t *arguments = (const uint64_t *)info.seccomp.args;
    describe(pid, call, arguments, what, sizeof what);
    if (!changes(pid, call, arguments, what)) return PTRACE_CONT;
    int traits = call->traits | (call->count && arguments[call->count] > 1 ? SHORT : 0);
    int action = decide(traits & NOTED ? 0 : ++counted, call->name, what, traits);
    if (action < 0) fail(pid, -action);
    if (action == HALF) halve(pid, call->count);
    if (action == INTERRUPT) kill(pid, SIGINT);
    if (action == KILL_BEFORE) {
        kill(pid, SIGKILL);
        return 0;
    }
    kill_at_end = action == KILL_AFTER;
    ending = call->name;
    return action == KILL_AFTER || action == ASK_AGAIN ? PTRACE_SYSCALL : PTRACE_CONT;
}

/* Watch the child until it ends. Returns how it did (waitpid), or a negative errno; -EINTR: call again. */
int faults_watch(pid_t pid, int begin, decider decide) {
    int status;
    if (begin) {
        counting = 1;
        counted = 0;
        if (waitpid(pid, &status, 0) < 0) return -errno;
        if (!WIFSTOPPED(status)) return status;
        long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
        if (ptrace(PTRACE_SETOPTIONS, pid, 0, options)) return -errno;
        if (ptrace(PTRACE_CONT, pid, 0, 0)) return -errno;
    }
    while (1) {
        if (waitpid(pid, &status, 0) < 0) return -errno;
        if (WIFEXITED(status) || WIFSIGNALED(status)) return status;
        int request = PTRACE_CONT, signal = 0;
        if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_SECCOMP << 8))) {
            request = at_call(pid, decide);
        } else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (kill_at_end || decide(counted, ending, "", ENDED) != PASS) {
                kill(pid, SIGKILL);
                request = 0;
            }
        } else {
            signal = WSTOPSIG(status);
        }
        if (request && ptrace(request, pid, 0, signal) && errno != ESRCH) return -errno;
    }
}
