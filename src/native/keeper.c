/* The connection to a keeper, the request, the signals, and the end of the command. */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define DIRECTORY "/keeper" /* below the state directory */
#define PATIENCE 500000     /* microseconds to wait for a process of the keeper, or for a place in its queue */
#define START_PATIENCE 5000000 /* the same, to hear that the command starts */
#define STARTED 's'
#define ENDED 'e'
#define ELSEWHERE 'a' /* for APART */
#define UNLIKE 'v'    /* for OWN */

extern char **environ;

static const int RELAYED[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/* Open the directory of the keepers' sockets, which the state directory contains (policy/config.py), and return SERVED.
 * Return NONE if there is none yet, EXCLUDED if no absolute path is known or it is not this user's alone. */
static enum answer open_directory(int *directory)
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
        return EXCLUDED;
    *directory = open((char *)path.data, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*directory < 0)
        return NONE;
    if (fstat(*directory, &found) == 0 && found.st_uid == geteuid() && (found.st_mode & 077) == 0)
        return SERVED;
    close(*directory);
    return EXCLUDED;
}

static bool set_patience(int connection, int option, long microseconds)
{
    struct timeval patience = {.tv_sec = microseconds / 1000000, .tv_usec = microseconds % 1000000};
    return setsockopt(connection, SOL_SOCKET, option, &patience, sizeof patience) == 0;
}

/* Connect a socket to a name in a directory. The path leads through a descriptor: a socket's path has at most 107 bytes
 * (unix(7)), and what was checked is what is used. */
static bool connect_at(int connection, int directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
    return connect(connection, (struct sockaddr *)&address, sizeof address) == 0;
}

/* Return whether the process that called listen(2) is this user's. */
static bool is_own(int connection)
{
    struct ucred owner;
    socklen_t size = sizeof owner;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0 && size == sizeof owner &&
           owner.uid == geteuid();
}

/* Connect to the first of these keepers that there is, and return SERVED. */
enum answer connect_to_keeper(char names[KINDS][NAME_SIZE], int *connection)
{
    int directory;
    enum answer answer = open_directory(&directory);
    if (answer != SERVED)
        return answer;
    *connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int kind = *connection < 0 || !set_patience(*connection, SO_SNDTIMEO, PATIENCE) ? KINDS : 0;
    while (kind < KINDS && !connect_at(*connection, directory, names[kind]))
        kind++;
    if (kind == KINDS)
        answer = NONE;
    else if (!is_own(*connection))
        answer = EXCLUDED;
    close(directory);
    if (answer != SERVED && *connection >= 0)
        close(*connection);
    return answer;
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
struct bytes make_request(const char *script, int argc, char **argv)
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

static volatile sig_atomic_t wakeup = -1, first_signal, last_signal, is_waiting;
static struct sigaction broken_pipe; /* as it was */

/* Be ended by a signal. Return only if that is not possible. */
static void end_by(int number)
{
    signal(number, SIG_DFL);
    kill(getpid(), number);
}

/* Pass a signal on to the keeper's process. A full pipe holds enough of them. A second one ends this process if the
 * command has not started, and it never will: the keeper's process may be stopped. */
static void relay(int number)
{
    int before = errno;
    unsigned char byte = (unsigned char)number;
    if (is_waiting && first_signal != 0)
        end_by(number); /* when this handler returns: the signal is blocked in it (sigaction(2)) */
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

/* Return SERVED if the command starts. If the keeper's process does not say so in time, it cannot any more: what it sends
 * after the shutdown fails (unix_stream_sendmsg in net/unix/af_unix.c), and it starts nothing then. What it has sent
 * before is read. */
static enum answer await_start(int connection)
{
    int answer = receive_byte(connection);
    if (answer < 0) {
        shutdown(connection, SHUT_RDWR);
        answer = receive_byte(connection);
    }
    is_waiting = 0;
    if (answer == STARTED) {
        set_patience(connection, SO_RCVTIMEO, 0);
        return SERVED;
    }
    return answer == ELSEWHERE ? APART : answer == UNLIKE ? OWN : REFUSED;
}

/* Hand the command over. Return SERVED if it has started; otherwise it will not. */
enum answer start(int connection, const struct bytes *request)
{
    int ends[2];
    if (!set_patience(connection, SO_RCVTIMEO, PATIENCE))
        return REFUSED;
    if (receive_byte(connection) < 0) /* a process of the keeper is there, and looks at this one */
        return REFUSED;
    if (!set_patience(connection, SO_RCVTIMEO, START_PATIENCE) || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return REFUSED;
    wakeup = ends[1];
    is_waiting = 1;
    /* ``relay`` may write when the other process has gone; an interpreter ignores it, too */
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignored, &broken_pipe);
    handle_signals(relay);
    bool is_sent = send_request(connection, request, ends[0]);
    close(ends[0]);
    return is_sent ? await_start(connection) : REFUSED;
}

/* Handle signals as before ``start``. One that has come meanwhile ends this process. */
void take_signals_back(void)
{
    if (wakeup < 0)
        return;
    handle_signals(SIG_DFL);
    sigaction(SIGPIPE, &broken_pipe, NULL);
    if (first_signal != 0)
        end_by(first_signal);
}

/* Wait for the end of the command, and end in the same way. */
_Noreturn void wait_for_end(int connection)
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
