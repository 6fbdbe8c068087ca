/* The mediator performs or refuses the system calls that sandbox/linux/metadata.py routes to it.
 *
 * It runs in the sandbox's init, which is in the same Landlock domain as the command and has no more rights.
 *
 * Rules:
 * 1. A path is read from the caller's memory once and opened once (O_PATH). It is judged by the opened descriptor's place,
 *    as the kernel reports it (/proc/self/fd/N, proc_pid_fd(5)), and the change is made through that same descriptor. The
 *    caller's own system call never continues, so there is no race (seccomp_unotify(2)).
 * 2. The caller sleeps in the kernel until the call is answered. Its pid, and what is read by that pid, could belong to
 *    another process once it is gone: NOTIF_ID_VALID is asked after each opening.
 * 3. Anything unclear is EPERM. */
#define _GNU_SOURCE
#include "launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NOTIF_ID_VALID 0x40082102UL
#define NOTIF_ADDFD 0x40182103UL
#define ADDFD_SETFD 1
#define CONNECT_PATIENCE 5000 /* milliseconds that a connection to the gate, on the same machine, may take; all other calls
                                 wait meanwhile */
#define LONGEST_NAME 255      /* XATTR_NAME_MAX, XATTR_SIZE_MAX of xattr(7) */
#define LONGEST_VALUE 65536

int install_filter(const void *program, size_t size, unsigned flags)
{
    struct {
        unsigned short length;
        const void *filter;
    } given = {(unsigned short)(size / 8), program}; /* struct sock_fprog */
    if (size / 8 > 4096 /* BPF_MAXINSNS */ || size % 8 != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, flags, &given);
}

/* Whether a value is a filter, rows by system call number, and directories in which changes are allowed. */
bool is_mediation(const struct value *mediation)
{
    if (mediation->kind != SEQUENCE || mediation->size != 3 || mediation->items[0].kind != BYTES ||
        mediation->items[1].kind != MAPPING || mediation->items[2].kind != SEQUENCE)
        return false;
    const struct value *rows = &mediation->items[1], *roots = &mediation->items[2];
    for (size_t index = 0; index < rows->size; index++) {
        const struct value *row = &rows->items[2 * index + 1];
        if (rows->items[2 * index].kind != NUMBER || row->kind != SEQUENCE ||
            !has_shape(row->items, row->size, "piiiiips"))
            return false;
        for (size_t argument = 1; argument < 4; argument++)
            if (row->items[argument].number < -1 || row->items[argument].number > 5)
                return false;
    }
    for (size_t index = 0; index < roots->size; index++)
        if (!is_string(&roots->items[index]))
            return false;
    return true;
}

/* Call ioctl(2), repeated while signals interrupt it: a caller whose answer is lost waits for ever. */
static bool control(int listener, unsigned long operation, void *message)
{
    while (syscall(SYS_ioctl, listener, operation, message) < 0)
        if (errno != EINTR)
            return false;
    return true;
}

/* Return EPERM if the caller no longer waits for the answer. */
int check_waiting(const struct call *call)
{
    uint64_t id = call->from.id;
    return control(call->listener, NOTIF_ID_VALID, &id) ? 0 : EPERM;
}

int open_of_caller(const struct call *call, const char *name, int flags)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%u/%s", call->from.pid, name);
    return open(path, flags | O_CLOEXEC);
}

/* Read at most ``size`` bytes of the caller's memory. Return how many there are, or -1 with an error number. */
static ssize_t read_memory(const struct call *call, uint64_t address, void *data, size_t size)
{
    if (address == 0 || address > INT64_MAX) {
        errno = EFAULT;
        return -1;
    }
    int memory = open_of_caller(call, "mem", O_RDONLY);
    if (memory < 0)
        return -1;
    int error = check_waiting(call);
    ssize_t got = error != 0 ? -1 : pread(memory, data, size, (off_t)address);
    if (error == 0 && got < 0)
        error = errno == EIO ? EFAULT : errno; /* EIO: no memory is mapped there */
    close(memory);
    errno = error;
    return got;
}

static int read_exactly(const struct call *call, uint64_t address, void *data, size_t size)
{
    ssize_t got = read_memory(call, address, data, size);
    return got < 0 ? errno : (size_t)got < size ? EFAULT : 0; /* its end is not mapped */
}

/* Read a text, page by page: the page behind its end may not be mapped. ``text`` has room for the limit, its NUL and a page
   more. Return 0 or an error number. */
int read_string(const struct call *call, uint64_t address, char *text, size_t limit)
{
    size_t size = 0;
    while (size <= limit) {
        size_t part = 4096 - (size_t)((address + size) % 4096);
        ssize_t got = read_memory(call, address + size, text + size, part);
        if (got < 0)
            return errno;
        if (got == 0)
            return EFAULT;
        if (memchr(text + size, '\0', (size_t)got) != NULL)
            return 0; /* what is still too long the kernel refuses */
        size += (size_t)got;
    }
    return ENAMETOOLONG;
}

int open_directory_of(const struct call *call, int number)
{
    char name[32];
    if (number == AT_FDCWD)
        return open_of_caller(call, "cwd", O_PATH);
    snprintf(name, sizeof name, "fd/%d", number);
    int opened = open_of_caller(call, name, O_PATH);
    if (opened < 0 && errno == ENOENT)
        errno = EBADF;
    return opened;
}

/* Open the file that a call is about, as an O_PATH descriptor. Return -1 with an error number. */
static int open_target(const struct call *call)
{
    const uint64_t *arguments = call->from.arguments;
    static char text[LONGEST_PATH], name[LONGEST_PATH + 64];
    int at = call->directory >= 0 ? (int)arguments[call->directory] : AT_FDCWD;
    if (call->path < 0 || (arguments[call->path] == 0 && call->values == 2 && call->directory >= 0)) /* utimensat, no path */
        return open_directory_of(call, at);
    uint64_t flags = call->flags >= 0 ? arguments[call->flags] : 0;
    int error = read_string(call, arguments[call->path], text, PATH_MAX);
    if (error != 0) {
        errno = error;
        return -1;
    }
    if (*text == '\0' && flags & AT_EMPTY_PATH)
        return open_directory_of(call, at);
    int nofollow = call->follows && !(flags & AT_SYMLINK_NOFOLLOW) ? 0 : O_NOFOLLOW;
    if (strncmp(text, "/proc/self/", 11) == 0)
        snprintf(name, sizeof name, "/proc/%u/%s", call->from.pid, text + 11);
    else if (strncmp(text, "/dev/fd/", 8) == 0)
        snprintf(name, sizeof name, "/proc/%u/fd/%s", call->from.pid, text + 8);
    else
        strcpy(name, text);
    int base = open_directory_of(call, *name == '/' ? AT_FDCWD : at); /* an absolute name ignores it: openat(2) */
    if (base < 0)
        return -1;
    int opened = openat(base, name, O_PATH | O_CLOEXEC | nofollow);
    error = errno;
    close(base);
    errno = error;
    return opened;
}

static void show_link(char *path, size_t room, int descriptor) { snprintf(path, room, "/proc/self/fd/%d", descriptor); }

/* ---- changes of metadata: each returns 0 or an error number ---- */

static int change_mode(const struct call *call, int target, const char *link)
{
    (void)target;
    return chmod(link, (mode_t)(call->from.arguments[call->values] & 07777)) < 0 ? errno : 0;
}

static int change_owner(const struct call *call, int target, const char *link)
{
    (void)link;
    const uint64_t *values = &call->from.arguments[call->values];
    return fchownat(target, "", (uid_t)values[0], (gid_t)values[1], AT_EMPTY_PATH) < 0 ? errno : 0;
}

/* Read two times in any of the three formats: utime(2), utimes(2), utimensat(2). */
static int read_times(const struct call *call, uint64_t address, struct timespec *times)
{
    int64_t words[4] = {0};
    bool has_seconds = strcmp(call->clock, "seconds") == 0, has_micro = strcmp(call->clock, "timeval") == 0;
    int error = read_exactly(call, address, words, has_seconds ? 16 : 32);
    if (error != 0)
        return error;
    if (has_seconds) {
        words[2] = words[1];
        words[1] = words[3] = 0;
    }
    for (int index = 0; index < 2; index++) {
        int64_t part = words[2 * index + 1];
        if (has_micro && (part < 0 || part >= 1000000))
            return EINVAL;
        times[index] = (struct timespec){.tv_sec = words[2 * index], .tv_nsec = has_micro ? part * 1000 : part};
    }
    return 0;
}

static int change_times(const struct call *call, int target, const char *link)
{
    struct timespec times[2];
    struct stat status;
    uint64_t address = call->from.arguments[call->values];
    int error = address != 0 ? read_times(call, address, times) : 0;
    if (error != 0)
        return error;
    const struct timespec *given = address != 0 ? times : NULL;
    if (fstat(target, &status) < 0)
        return errno;
    if (S_ISLNK(status.st_mode)) /* utimensat of a libc refuses an empty path */
        return syscall(SYS_utimensat, target, "", given, AT_EMPTY_PATH) < 0 ? errno : 0;
    return utimensat(AT_FDCWD, link, given, 0) < 0 ? errno : 0;
}

static int set_attribute(const struct call *call, int target, const char *link)
{
    (void)target;
    static char name[LONGEST_NAME + 4098], content[LONGEST_VALUE + 1];
    const uint64_t *values = &call->from.arguments[call->values];
    size_t size = values[2] < sizeof content ? (size_t)values[2] : sizeof content;
    int error = read_string(call, values[0], name, LONGEST_NAME);
    if (error == 0 && size > 0)
        error = read_exactly(call, values[1], content, size);
    return error != 0 ? error : setxattr(link, name, content, size, (int)values[3]) < 0 ? errno : 0;
}

static int remove_attribute(const struct call *call, int target, const char *link)
{
    (void)target;
    static char name[LONGEST_NAME + 4098];
    int error = read_string(call, call->from.arguments[call->values], name, LONGEST_NAME);
    return error != 0 ? error : removexattr(link, name) < 0 ? errno : 0;
}

static const struct {
    const char *name;
    int (*change)(const struct call *call, int target, const char *link);
    int values; /* how many arguments it takes from ``values`` on */
} CHANGES[] = {
    {"chmod", change_mode, 1},
    {"chown", change_owner, 2},
    {"times", change_times, 1},
    {"setxattr", set_attribute, 4},
    {"removexattr", remove_attribute, 1},
};

static bool is_within(const char *where, const struct value *roots)
{
    for (size_t index = 0; index < roots->size; index++) {
        const struct value *root = &roots->items[index];
        if (strncmp(where, root->data, root->size) == 0 && (where[root->size] == '\0' || where[root->size] == '/'))
            return true;
    }
    return false;
}

static int change(const struct call *call, const struct value *roots)
{
    char link[40], where[PATH_MAX + 64];
    size_t row = 0;
    while (row < COUNT(CHANGES) && strcmp(CHANGES[row].name, call->action) != 0)
        row++;
    if (row == COUNT(CHANGES) || call->values < 0 || call->values + CHANGES[row].values > 6)
        return EPERM;
    int target = open_target(call), error = 0;
    if (target < 0)
        return errno;
    show_link(link, sizeof link, target);
    ssize_t size = readlink(link, where, sizeof where - 1);
    if (size < 0 || (size_t)size == sizeof where - 1) {
        close(target);
        return EPERM;
    }
    where[size] = '\0';
    if (!is_within(where, roots)) {
        add_named(call->refusals, call->action, where);
        error = EPERM;
    }
    if (error == 0)
        error = check_waiting(call);
    if (error == 0)
        error = CHANGES[row].change(call, target, link);
    close(target);
    return error;
}

/* ---- connect(2) ---- */

/* Find the flags of the caller's socket ``number``, with O_NONBLOCK and O_CLOEXEC: proc_pid_fdinfo(5). */
static int find_flags(const struct call *call, int number, unsigned *flags)
{
    char name[32], path[64], link[64] = "", info[4097];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", call->from.pid, number);
    if (readlink(path, link, sizeof link - 1) < 0)
        return errno == ENOENT ? EBADF : errno;
    if (strncmp(link, "socket:", 7) != 0)
        return ENOTSOCK;
    snprintf(name, sizeof name, "fdinfo/%d", number);
    int opened = open_of_caller(call, name, O_RDONLY);
    if (opened < 0)
        return errno;
    ssize_t size = read(opened, info, sizeof info - 1);
    close(opened);
    info[size > 0 ? size : 0] = '\0';
    const char *at = strstr(info, "flags:");
    if (at == NULL)
        return EPERM;
    *flags = (unsigned)strtoul(at + 6, NULL, 8);
    return 0;
}

/* Parse a struct sockaddr_in or sockaddr_in6 into text and port; another family is "?" and port 0. */
static unsigned show_address(const unsigned char *raw, size_t size, char *text, size_t room)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    char shown[INET6_ADDRSTRLEN];
    uint16_t family = 0;
    const unsigned char *packed = NULL;
    int kind = AF_INET;
    if (size >= 4)
        memcpy(&family, raw, sizeof family);
    if (family == AF_INET && size >= 16) {
        packed = raw + 4;
    } else if (family == AF_INET6 && size >= 24) {
        bool is_mapped = memcmp(raw + 8, mapped, sizeof mapped) == 0;
        packed = is_mapped ? raw + 20 : raw + 8;
        kind = is_mapped ? AF_INET : AF_INET6;
    }
    if (packed == NULL || inet_ntop(kind, packed, shown, sizeof shown) == NULL) {
        snprintf(text, room, "?");
        return 0;
    }
    snprintf(text, room, kind == AF_INET6 ? "[%s]" : "%s", shown);
    return (unsigned)raw[2] << 8 | raw[3];
}

/* Return the gate's port for an address; 0 if it is not allowed. ``call->values`` is the gate's own. */
static unsigned gate_port(const struct call *call, const char *text, unsigned port)
{
    char shown[80];
    if (strcmp(text, "127.0.0.1") == 0 && (int)port == call->values)
        return port;
    for (size_t index = 0; index < call->places->size; index++) {
        const struct value *place = &call->places->items[index];
        if (place->kind != SEQUENCE || !has_shape(place->items, place->size, "pii"))
            continue;
        const char *host = place->items[0].data;
        snprintf(shown, sizeof shown, strchr(host, ':') != NULL ? "[%s]" : "%s", host);
        if (strcmp(shown, text) == 0 && place->items[1].number == (int64_t)port)
            return (unsigned)place->items[2].number;
    }
    return 0;
}

static int connect_within(int made, unsigned port)
{
    struct sockaddr_in gate = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct pollfd look = {.fd = made, .events = POLLOUT};
    int error = 0, ready;
    socklen_t size = sizeof error;
    gate.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(made, (const struct sockaddr *)&gate, sizeof gate) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    while ((ready = poll(&look, 1, CONNECT_PATIENCE)) < 0 && errno == EINTR)
        ;
    if (ready < 1)
        return ready < 0 ? errno : ETIMEDOUT;
    return getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

/* Connect to the gate and to no other address. A place on the host's loopback leads to its gate listener. */
static int connect_to_gate(const struct call *call)
{
    unsigned char raw[28] = {0}; /* struct sockaddr_in6 (ipv6(7)) */
    char text[64], named[96];
    const uint64_t *arguments = call->from.arguments;
    uint32_t size = (uint32_t)arguments[2];
    ssize_t got = read_memory(call, arguments[1], raw, size < sizeof raw ? size : sizeof raw);
    if (got < 0)
        return errno;
    unsigned asked = show_address(raw, (size_t)got, text, sizeof text), port = gate_port(call, text, asked), flags = 0;
    if (port == 0) {
        snprintf(named, sizeof named, "%s:%u", text, asked);
        add_named(call->refusals, "connect", named);
        return EACCES;
    }
    int number = (int)arguments[0], error = find_flags(call, number, &flags);
    if (error != 0)
        return error;
    /* The caller's socket is replaced by one connected here, so it leads to the gate whatever the caller changes meanwhile
       (SECCOMP_ADDFD_FLAG_SETFD, seccomp_unotify(2)). */
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0)
        return errno;
    error = connect_within(made, port);
    if (error == 0 && !(flags & O_NONBLOCK) && fcntl(made, F_SETFL, 0) < 0)
        error = errno;
    if (error == 0) {
        struct { /* struct seccomp_notif_addfd */
            uint64_t id;
            uint32_t flags, ours, theirs, descriptor_flags;
        } given = {call->from.id, ADDFD_SETFD, (uint32_t)made, (uint32_t)number, flags & O_CLOEXEC};
        if (!control(call->listener, NOTIF_ADDFD, &given))
            error = errno;
    }
    close(made);
    return error;
}

/* ---- one call ---- */

static int answer_of(struct call *call, const struct value *mediation)
{
    const struct value *rows = &mediation->items[1], *row = NULL;
    for (size_t index = 0; index < rows->size && row == NULL; index++)
        if (rows->items[2 * index].number == call->from.number)
            row = &rows->items[2 * index + 1];
    if (row == NULL)
        return EPERM;
    call->action = row->items[0].data;
    call->directory = (int)row->items[1].number;
    call->path = (int)row->items[2].number;
    call->flags = (int)row->items[3].number;
    call->values = (int)row->items[4].number;
    call->follows = row->items[5].number != 0;
    call->clock = row->items[6].data;
    call->places = &row->items[7];
    if (strcmp(call->action, "refuse") == 0)
        return ENOSYS;
    return strcmp(call->action, "connect") == 0 ? connect_to_gate(call) : change(call, &mediation->items[2]);
}

/* Answer one waiting call; without an answer if its caller was killed meanwhile. */
void mediate(int listener, const struct value *mediation, struct refusals *refusals)
{
    struct call call = {.listener = listener, .refusals = refusals};
    struct reply reply = {0};
    memset(&call.from, 0, sizeof call.from); /* the kernel refuses another content */
    if (syscall(SYS_ioctl, listener, NOTIF_RECV, &call.from) < 0)
        return;
    reply.id = call.from.id;
    reply.error = -answer_of(&call, mediation);
    control(listener, NOTIF_SEND, &reply);
}
