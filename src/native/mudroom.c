/* The native client of the keeper: the same as src/mudroom/keeper/client.py, without an interpreter.
 *
 * Rules of this file:
 * 1. Each doubt leads to the console script of Python beside this program (SCRIPT), which is always right: no keeper,
 *    another verb, an unusual variable, any error. The script gets the same words, environment and descriptors.
 * 2. It decides nothing about a command. VERBS and the other tables are those of client.py; a test compares them.
 * 3. Nothing is sent before the other end is known to be this user's (connect_to_keeper).
 * 4. A command runs once. Until the keeper's process has acknowledged the start, it has not started, and the script is
 *    executed; afterwards it never is.
 * 5. No library but libc, one thread, no locale, no file is written. Sizes are checked where they are used: words and
 *    environment are those of any caller. Memory is not given back: the process ends or becomes another one.
 * 6. Not for a caller with more rights than its user: a setuid copy is refused.
 *
 * The name of the keeper (name_of) is a number of facts that client.py knows, too, where the script runs it. They name
 * the interpreter and the script by their files. The keeper itself checks that its code is what such an interpreter
 * would load (code.py).
 *
 * Sources: unix(7), socket(7), cmsg(3), signal(7), signal-safety(7), execve(2), environ(7), proc(5),
 * getauxval(3), Python/marshal.c and Python/initconfig.c of CPython.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#define PROTOCOL "mudroom-native-1" /* PROTOCOL of client.py: another one has another name, and is not found */
#define SCRIPT "mudroom-python"     /* SCRIPT of client.py */
#define DIRECTORY "/keeper"         /* below the state directory */
#define PATIENCE 500000             /* microseconds to wait for a process of the keeper, or for a place in its queue */
#define STARTED 's'
#define ENDED 'e'
#define FAILED 125        /* exit code: mudroom failed */
#define FACT_SIZE 65536   /* bytes of a file in /proc that are read, as by client.py */
#define SHEBANG_SIZE 4096 /* bytes of the script that are looked at */

extern char **environ;

/* ---- the tables of client.py ---- */

/* A verb that a keeper runs; the beginning of an option that leads in-process, or NULL; whether it may write to a
 * terminal. */
static const struct {
    const char *name, *in_process;
    bool on_terminal;
} VERBS[] = {
    {"apply", NULL, false},   {"checkpoint", NULL, false}, {"diff", NULL, false},     {"discard", NULL, false},
    {"exec", "--b", false},   {"fork", NULL, false},       {"hook", NULL, false},     {"log", "--fol", false},
    {"ls", NULL, true},       {"policy", NULL, false},     {"proxy", NULL, false},    {"ps", NULL, false},
    {"recover", NULL, false}, {"redo", NULL, false},       {"resolve", NULL, false},  {"rollback", NULL, false},
    {"run", NULL, false},     {"status", NULL, true},      {"undo", NULL, false},
};
static const char *const HELP[] = {"-h", "--h"};
static const char *const OF_THE_PROCESS[] = {"/fd/", "/proc/"};
static const char *const AT_START[] = {"PYTHON", "LC_", "LANG", "LOCPATH", "LD_", "GLIBC_", "MALLOC_", "OPENSSL_"};
static const int RELAYED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/* Variables of the interpreter that change no flag at which client.py looks. With any other the script is executed. */
static const char *const PYTHON_VARIABLES[] = {
    "PYTHONPATH",       "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONHASHSEED",
    "PYTHONNOUSERSITE", "PYTHONUTF8",              "PYTHONSTARTUP",    "PYTHONUSERBASE",
};

/* Options of an interpreter in the first line of SCRIPT, as pipx writes one. */
static const char *const OPTIONS[] = {"-E", "-I", "-s", "-Es", "-sE"};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* ---- bytes ---- */

struct bytes {
    unsigned char *data;
    size_t size, room;
    bool has_failed; /* no memory: the content is not to be used */
};

static void append(struct bytes *bytes, const void *data, size_t size)
{
    if (bytes->has_failed)
        return;
    if (size > bytes->room - bytes->size) {
        if (size > SIZE_MAX / 4 || bytes->size > SIZE_MAX / 4) {
            bytes->has_failed = true;
            return;
        }
        size_t room = (bytes->size + size) * 2 + 1024;
        unsigned char *grown = realloc(bytes->data, room);
        if (grown == NULL) {
            bytes->has_failed = true;
            return;
        }
        bytes->data = grown;
        bytes->room = room;
    }
    if (size > 0)
        memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

static void append_text(struct bytes *bytes, const char *text) { append(bytes, text, strlen(text)); }

static bool starts_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool starts_with_any(const char *text, const char *const *beginnings, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (starts_with(text, beginnings[at]))
            return true;
    return false;
}

static bool is_among(const char *text, const char *const *texts, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (strcmp(text, texts[at]) == 0)
            return true;
    return false;
}

static void write_error(const char *first, const char *second, const char *third)
{
    struct bytes text = {0};
    append_text(&text, "mudroom: ");
    append_text(&text, first);
    append_text(&text, second);
    append_text(&text, third);
    append_text(&text, "\n");
    if (!text.has_failed && write(2, text.data, text.size) < 0)
        return; /* there is no other place to report to */
}

/* ---- the script ---- */

/* Write the path of the script into PATH (PATH_MAX bytes). Return false if this program's own path is not known. */
static bool find_script(char *path)
{
    ssize_t size = readlink("/proc/self/exe", path, PATH_MAX);
    if (size < 0) { /* /proc is not mounted */
        const char *given = (const char *)getauxval(AT_EXECFN);
        if (given == NULL || realpath(given, path) == NULL)
            return false;
        size = (ssize_t)strlen(path);
    }
    if (size <= 0 || size >= PATH_MAX || path[0] != '/')
        return false;
    path[size] = '\0';
    size_t end = (size_t)(strrchr(path, '/') + 1 - path);
    if (end + sizeof SCRIPT > PATH_MAX)
        return false;
    memcpy(path + end, SCRIPT, sizeof SCRIPT);
    return true;
}

/* Become the script, with the words of this process. Return never. */
static _Noreturn void execute_script(const char *script, int argc, char **argv)
{
    char *alone[] = {(char *)script, NULL};
    char **words = argc > 0 ? argv : alone;
    words[0] = (char *)script;
    execv(script, words);
    if (errno == ENOENT)
        write_error(script, " or its interpreter is missing", ": pip install --force-reinstall mudroom");
    else
        write_error(script, ": ", strerror(errno));
    _exit(FAILED);
}

/* Return whether this file gives its caller more rights than its user has (execve(2), capabilities(7)). */
static bool is_privileged(void)
{
    struct stat found;
    if (getauxval(AT_SECURE) == 0)
        return false;
    if (stat("/proc/self/exe", &found) < 0)
        return true;
    return (found.st_mode & (S_ISUID | S_ISGID)) != 0 ||
           getxattr("/proc/self/exe", "security.capability", NULL, 0) >= 0;
}

/* ---- whether a keeper may run the words ---- */

static bool are_terminals_right(bool on_terminal)
{
    pid_t group = getpgrp();
    for (int number = 0; number < 3; number++)
        if (isatty(number) && (!on_terminal || tcgetpgrp(number) != group))
            return false;
    return true;
}

/* Return whether the descriptors are those with which an interpreter starts as usual. */
static bool are_descriptors_right(void)
{
    struct stat found;
    for (int number = 0; number < 3; number++)
        if (fstat(number, &found) < 0 || S_ISDIR(found.st_mode))
            return false;
    return true;
}

static bool are_words_right(int argc, char **argv)
{
    if (argc < 2)
        return false;
    for (size_t at = 0; at < COUNT(VERBS); at++) {
        if (strcmp(argv[1], VERBS[at].name) != 0)
            continue;
        for (int word = 2; word < argc && strcmp(argv[word], "--") != 0; word++) {
            if (starts_with_any(argv[word], HELP, COUNT(HELP)))
                return false;
            if (VERBS[at].in_process != NULL && starts_with(argv[word], VERBS[at].in_process))
                return false;
            for (size_t part = 0; part < COUNT(OF_THE_PROCESS); part++)
                if (strstr(argv[word], OF_THE_PROCESS[part]) != NULL)
                    return false;
        }
        return are_terminals_right(VERBS[at].on_terminal);
    }
    return false;
}

/* Return whether each part of a PYTHONPATH is absolute. */
static bool is_absolute(const char *path)
{
    for (;;) {
        if (*path != '/')
            return false;
        path = strchr(path, ':');
        if (path == NULL)
            return true;
        path++;
    }
}

static bool is_variable_right(const char *variable)
{
    const char *equals = strchr(variable, '=');
    if (equals == NULL || equals == variable)
        return false; /* an interpreter has none such */
    if (starts_with(variable, "LD_PRELOAD=") || starts_with(variable, "LD_AUDIT="))
        return equals[1] == '\0';
    if (starts_with(variable, "MUDROOM_KEEPER="))
        return strcmp(equals + 1, "0") != 0;
    if (!starts_with(variable, "PYTHON"))
        return true;
    if (starts_with(variable, "PYTHONPATH="))
        return is_absolute(equals + 1);
    size_t size = (size_t)(equals - variable);
    for (size_t at = 0; at < COUNT(PYTHON_VARIABLES); at++)
        if (strlen(PYTHON_VARIABLES[at]) == size && strncmp(variable, PYTHON_VARIABLES[at], size) == 0)
            return true;
    return false;
}

static int compare_texts(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Return the variables in order; NULL if one is unusual, or there twice. Two of one name are neighbours then. */
static char **sorted_environment(size_t *count)
{
    size_t variables = 0;
    while (environ != NULL && environ[variables] != NULL)
        variables++;
    char **sorted = calloc(variables + 1, sizeof *sorted);
    if (sorted == NULL)
        return NULL;
    for (size_t at = 0; at < variables; at++)
        sorted[at] = environ[at];
    qsort(sorted, variables, sizeof *sorted, compare_texts);
    for (size_t at = 0; at < variables; at++) {
        if (!is_variable_right(sorted[at]))
            return NULL;
        size_t name = (size_t)(strchr(sorted[at], '=') + 1 - sorted[at]);
        if (at > 0 && strncmp(sorted[at - 1], sorted[at], name) == 0)
            return NULL;
    }
    *count = variables;
    return sorted;
}

/* ---- the name of the keeper ---- */

/* Append the file and a NUL. Return false if it cannot be read. */
static bool append_file(struct bytes *facts, const char *path)
{
    static unsigned char content[FACT_SIZE];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, content, sizeof content);
    close(file);
    if (size < 0)
        return false;
    append(facts, content, (size_t)size);
    append(facts, "", 1);
    return true;
}

static long long nanoseconds(struct timespec time) { return time.tv_sec * 1000000000LL + time.tv_nsec; }

/* Append what names the content of a file, as ``_stamp`` of client.py. Return false if it is no regular file. */
static bool append_stamp(struct bytes *facts, const char *path)
{
    struct stat found;
    char text[128];
    if (stat(path, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    snprintf(text, sizeof text, "%llu %llu %llu %lld %lld", (unsigned long long)found.st_dev,
             (unsigned long long)found.st_ino, (unsigned long long)found.st_size, nanoseconds(found.st_mtim),
             nanoseconds(found.st_ctim));
    append(facts, text, strlen(text) + 1);
    return true;
}

/* Append the first line of the script, which names its interpreter, and the stamp of that. Return false if the line is
 * another one than "#!PATH" or "#!PATH OPTION", as where a path is too long for the kernel, or holds a space: then it
 * names a shell. */
static bool append_interpreter(struct bytes *facts, const char *script)
{
    static char line[SHEBANG_SIZE];
    int file = open(script, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size < 3 || memcmp(line, "#!/", 3) != 0)
        return false;
    line[size] = '\0';
    size_t end = strcspn(line, "\n"), path = strcspn(line, " \n");
    if (line[end] != '\n')
        return false;
    line[end] = '\0';
    append(facts, line, end + 1);
    if (path < end && !is_among(line + path + 1, OPTIONS, COUNT(OPTIONS)))
        return false;
    line[path] = '\0';
    return starts_with(strrchr(line, '/') + 1, "python") && append_stamp(facts, line + 2);
}

/* Write the hexadecimal remainder of a number of little-endian bytes by 2**127 - 1 into NAME (33 bytes). The product
 * of such a remainder and 256 is its 127 bits, rotated by 8. */
static void write_name(const struct bytes *facts, char *name)
{
    uint64_t high = 0, low = 0; /* 63 and 64 bits */
    for (size_t at = facts->size; at-- > 0;) {
        uint64_t over = high >> 55;
        high = ((high << 8) | (low >> 56)) & (UINT64_MAX >> 1);
        low = (low << 8) | over;
        low += facts->data[at];
        high += low < facts->data[at];
        if (high >> 63) { /* 2**127 is 1 */
            high &= UINT64_MAX >> 1;
            low++;
        }
        if (high == UINT64_MAX >> 1 && low == UINT64_MAX)
            high = low = 0;
    }
    snprintf(name, 33, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
}

/* Write the name of the keeper for this process. Return false if a fact is not known. */
static bool name_of(const char *script, char **variables, size_t count, char *name)
{
    static char space[PATH_MAX];
    struct bytes facts = {0};
    struct utsname machine;
    const char *home = getenv("HOME");
    ssize_t size = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (size < 0 || uname(&machine) < 0)
        return false;
    space[size] = '\0';
    if (!append_file(&facts, "/proc/self/cgroup") || !append_file(&facts, "/proc/self/personality"))
        return false;
    append(&facts, machine.nodename, strlen(machine.nodename) + 1);
    append(&facts, space, strlen(space) + 1);
    append(&facts, PROTOCOL, sizeof PROTOCOL);
    append(&facts, script, strlen(script) + 1);
    if (!append_stamp(&facts, script) || !append_interpreter(&facts, script))
        return false;
    append_text(&facts, "HOME="); /* the user's own modules are below it */
    append_text(&facts, home != NULL ? home : "");
    for (size_t at = 0; at < count; at++) {
        if (!starts_with_any(variables[at], AT_START, COUNT(AT_START)))
            continue;
        append(&facts, "", 1);
        append_text(&facts, variables[at]);
    }
    write_name(&facts, name);
    return !facts.has_failed;
}

/* ---- the connection ---- */

/* Open the directory of the keepers' sockets. Return -1 if there is none that is this user's alone. */
static int open_directory(void)
{
    struct bytes path = {0};
    struct stat found;
    const char *state = getenv("MUDROOM_STATE"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state != NULL && state[0] != '\0') {
        append_text(&path, state);
    } else if (home != NULL && home[0] == '/') {
        bool has_xdg = xdg != NULL && xdg[0] == '/';
        append_text(&path, has_xdg ? xdg : home);
        append_text(&path, has_xdg ? "/mudroom" : "/.local/state/mudroom");
    }
    append(&path, DIRECTORY, sizeof DIRECTORY);
    if (path.has_failed || path.data[0] != '/' || strcmp((char *)path.data, DIRECTORY) == 0)
        return -1;
    int directory = open((char *)path.data, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return -1;
    if (fstat(directory, &found) < 0 || found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
        close(directory);
        return -1;
    }
    return directory;
}

static bool set_patience(int connection, int option, long microseconds)
{
    struct timeval patience = {.tv_sec = 0, .tv_usec = microseconds};
    return setsockopt(connection, SOL_SOCKET, option, &patience, sizeof patience) == 0;
}

/* Connect to the keeper of this name, of this user. The path leads through a descriptor: a socket's path has at most
 * 107 bytes (unix(7)), and what was checked is what is used. Return -1 if there is none. */
static int connect_to_keeper(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred owner; /* of the process that called listen(2) */
    socklen_t size = sizeof owner;
    int directory = open_directory();
    if (directory < 0)
        return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && set_patience(connection, SO_SNDTIMEO, PATIENCE) &&
        connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0 && size == sizeof owner &&
        owner.uid == geteuid()) {
        close(directory);
        return connection;
    }
    if (connection >= 0)
        close(connection);
    close(directory);
    return -1;
}

/* Return the next byte, or -1 at the end, after an error, or when the patience has ended. */
static int receive_byte(int connection)
{
    unsigned char byte;
    ssize_t size;
    do
        size = recv(connection, &byte, 1, 0);
    while (size < 0 && errno == EINTR);
    return size == 1 ? byte : -1;
}

static bool send_all(int connection, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(connection, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static void append_size(struct bytes *bytes, size_t size)
{
    unsigned char four[4] = {(unsigned char)size, (unsigned char)(size >> 8), (unsigned char)(size >> 16),
                             (unsigned char)(size >> 24)};
    if (size > INT32_MAX)
        bytes->has_failed = true; /* marshal has signed sizes */
    append(bytes, four, sizeof four);
}

static void append_string(struct bytes *bytes, const char *data, size_t size)
{
    append(bytes, "s", 1);
    append_size(bytes, size);
    append(bytes, data, size);
}

/* Return ``marshal.dumps((argv, environ))`` with words of bytes (Python/marshal.c: TYPE_TUPLE, TYPE_LIST, TYPE_STRING,
 * TYPE_DICT, TYPE_NULL). The first word is the script, as it is for an interpreter. Each variable has a sign of equality
 * (``is_variable_right``). */
static struct bytes make_request(const char *script, int argc, char **argv)
{
    struct bytes request = {0};
    append(&request, "(", 1);
    append_size(&request, 2);
    append(&request, "[", 1);
    append_size(&request, (size_t)argc);
    append_string(&request, script, strlen(script));
    for (int at = 1; at < argc; at++)
        append_string(&request, argv[at], strlen(argv[at]));
    append(&request, "{", 1);
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        const char *equals = strchr(*variable, '=');
        append_string(&request, *variable, (size_t)(equals - *variable));
        append_string(&request, equals + 1, strlen(equals + 1));
    }
    append(&request, "0", 1);
    return request;
}

/* Send the size of the request with the descriptors 0 to 2 and READER (cmsg(3)), then the request. */
static bool send_request(int connection, const struct bytes *request, int reader)
{
    int rights[] = {0, 1, 2, reader};
    union {
        char data[CMSG_SPACE(sizeof rights)];
        struct cmsghdr align;
    } control = {0};
    struct bytes head = {0};
    append_size(&head, request->size);
    if (head.has_failed)
        return false;
    struct iovec part = {.iov_base = head.data, .iov_len = head.size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.data, .msg_controllen = sizeof control.data};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof rights);
    memcpy(CMSG_DATA(header), rights, sizeof rights);
    ssize_t sent;
    do
        sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)head.size && send_all(connection, request->data, request->size);
}

/* ---- signals ---- */

static volatile sig_atomic_t wakeup = -1, first_signal, last_signal;

/* Pass a signal on to the keeper's process. A full pipe holds enough of them. */
static void relay(int number)
{
    int before = errno;
    unsigned char byte = (unsigned char)number;
    if (write(wakeup, &byte, 1) < 0)
        byte = 0;
    if (first_signal == 0)
        first_signal = number;
    last_signal = number;
    errno = before;
}

/* Have signals that would end this process handled in this way. One that is ignored stays so. */
static void handle_signals(void (*handler)(int))
{
    struct sigaction before, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t at = 0; at < COUNT(RELAYED); at++)
        if (sigaction(RELAYED[at], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(RELAYED[at], &action, NULL);
}

/* Be ended by a signal. Return only if that is not possible. */
static void end_by(int number)
{
    signal(number, SIG_DFL);
    kill(getpid(), number);
}

/* ---- the command ---- */

/* Hand the command over. Return whether it has started; otherwise it will not. */
static bool start(int connection, const struct bytes *request)
{
    int ends[2];
    if (!set_patience(connection, SO_RCVTIMEO, PATIENCE))
        return false;
    if (receive_byte(connection) < 0) /* a process of the keeper is there, and looks at this one */
        return false;
    if (!set_patience(connection, SO_RCVTIMEO, 0) || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    wakeup = ends[1];
    signal(SIGPIPE, SIG_IGN); /* ``relay`` may write when the other process has gone; an interpreter ignores it, too */
    handle_signals(relay);
    bool is_sent = send_request(connection, request, ends[0]);
    close(ends[0]);
    return is_sent && receive_byte(connection) == STARTED;
}

/* Wait for the end of the command, and end in the same way. */
static _Noreturn void wait_for_end(int connection)
{
    if (receive_byte(connection) == ENDED) {
        int code = receive_byte(connection);
        if (code >= 0)
            _exit(code);
    }
    if (last_signal != 0) /* it was ended by a signal that would have ended this process */
        end_by(last_signal);
    write_error("the process that ran the command was killed", " (the next mudroom collects its changes)", "");
    _exit(FAILED);
}

/* Have the keeper run the command, and end as it ended. Return if the keeper cannot: the command has not run then. */
static void hand_over(const char *script, int argc, char **argv)
{
    char name[33];
    size_t count;
    if (getauxval(AT_SECURE) != 0 || !are_descriptors_right() || !are_words_right(argc, argv))
        return;
    struct sigaction broken_pipe;
    char **variables = sorted_environment(&count);
    if (variables == NULL || sigaction(SIGPIPE, NULL, &broken_pipe) < 0 || !name_of(script, variables, count, name))
        return;
    int connection = connect_to_keeper(name);
    if (connection < 0)
        return;
    struct bytes request = make_request(script, argc, argv);
    if (!request.has_failed && start(connection, &request))
        wait_for_end(connection);
    close(connection);
    handle_signals(SIG_DFL);
    sigaction(SIGPIPE, &broken_pipe, NULL);
    if (first_signal != 0)
        end_by(first_signal);
}

int main(int argc, char **argv)
{
    static char script[PATH_MAX + 1];
    if (is_privileged()) {
        write_error("refuses to run with the rights of its file", ": chmod ug-s mudroom; setcap -r mudroom", "");
        return FAILED;
    }
    if (!find_script(script)) {
        write_error("the path of this program is not known", ": mount /proc, or run ", SCRIPT);
        return FAILED;
    }
    hand_over(script, argc, argv);
    execute_script(script, argc, argv);
}
