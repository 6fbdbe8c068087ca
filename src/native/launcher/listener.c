/* The steps that leave one way out of a network namespace: to the gate. Its listeners are made here and sent to the host. The
 * messages for the kernel come ready-made with the plan (sandbox/linux/netlink.py). No program such as ip or nft is run: it may
 * be missing inside, or be the agent's.
 *
 * A socket belongs to the network namespace in which it was made, whichever process holds it. So the gate, outside, accepts
 * connections made inside. The namespace needs no interface but lo and no mudroom process. The listeners are made before the
 * command and listen from then on: a connection made before the gate has them waits in their queue. */
#define _GNU_SOURCE
#include "launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE 4096
#define DNS 53
#define ROUTE 0
#define NETFILTER 12
#define MOST_ANSWERS 32

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct answers {
    int errors[MOST_ANSWERS];
    size_t count;
};

static uint32_t number_at(const unsigned char *data, size_t width)
{
    uint32_t number = 0; /* in the machine's byte order: little-endian, as all machines that the launcher knows */
    memcpy(&number, data, width);
    return number;
}

/* Send messages of netlink(7), and collect the acknowledgements. Return 0 or an error number. */
static int ask(int protocol, const struct value *batch, struct answers *answers)
{
    const unsigned char *data = (const unsigned char *)batch->data;
    unsigned char buffer[1 << 15];
    struct sockaddr kernel = {.sa_family = AF_NETLINK};
    char room[12] = {0};
    size_t awaited = 0;
    bool has_failed = false;
    for (size_t at = 0; at + 16 <= batch->size;) {
        size_t length = number_at(data + at, 4);
        if (length < 16 || length > batch->size - at)
            return EINVAL;
        awaited += (number_at(data + at + 6, 2) & 4) != 0; /* NLM_F_ACK */
        at += length;
    }
    if (awaited > MOST_ANSWERS)
        return EINVAL;
    int channel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), error = 0;
    if (channel < 0)
        return errno;
    memcpy(room, &kernel.sa_family, sizeof kernel.sa_family); /* struct sockaddr_nl: 12 bytes */
    answers->count = 0;
    if (sendto(channel, data, batch->size, 0, (void *)room, sizeof room) < 0)
        error = errno;
    while (error == 0 && answers->count < awaited && !(protocol == NETFILTER && has_failed)) {
        ssize_t size = recv(channel, buffer, sizeof buffer, 0);
        if (size < 0) {
            error = errno;
            break;
        }
        for (size_t at = 0; at + 20 <= (size_t)size;) {
            size_t length = number_at(buffer + at, 4);
            if (length < 16) {
                error = EIO;
                break;
            }
            if (number_at(buffer + at + 4, 2) == 2 && answers->count < MOST_ANSWERS) { /* NLMSG_ERROR */
                int answer = -(int)number_at(buffer + at + 16, 4);
                has_failed = has_failed || answer != 0;
                answers->errors[answers->count++] = answer;
            }
            at += (length + 3) & ~(size_t)3;
        }
    }
    close(channel);
    return error;
}

int step_routes(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)count;
    struct answers answers;
    int error = ask(ROUTE, &arguments[0], &answers);
    if (error != 0)
        return error;
    if (answers.count != 3)
        return EIO;
    for (size_t index = 0; index < answers.count; index++) {
        int answer = answers.errors[index];
        bool lacks_ipv6 = index == 2 && (answer == EAFNOSUPPORT || answer == EOPNOTSUPP);
        if (answer != 0 && !lacks_ipv6)
            return answer;
    }
    return 0;
}

static bool add(struct context *context, const char *kind, int descriptor)
{
    if (descriptor < 0)
        return false;
    if (context->count == MOST_DESCRIPTORS || strlen(kind) >= sizeof context->listeners[0].kind) {
        errno = E2BIG;
        return false;
    }
    strcpy(context->listeners[context->count].kind, kind);
    context->listeners[context->count++].descriptor = descriptor;
    return true;
}

static int close_failed(int socket)
{
    int error = errno;
    close(socket);
    errno = error;
    return -1;
}

static int bind_tcp(const union address *address, socklen_t size)
{
    int on = 1, made = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return -1;
    if (setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 || bind(made, &address->any, size) < 0 ||
        listen(made, QUEUE) < 0)
        return close_failed(made);
    return made;
}

/* Bind a socket to every address of both families; a stream socket listens. Return -1 if that fails. */
static int bind_everywhere(int kind, uint16_t port)
{
    union address address = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    int off = 0, on = 1, made = socket(AF_INET6, kind | SOCK_CLOEXEC, 0);
    if (made >= 0 && (setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ||
                      (kind == SOCK_DGRAM && setsockopt(made, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) < 0) ||
                      bind(made, &address.any, sizeof address.v6) < 0))
        made = close_failed(made);
    if (made < 0) {
        if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)
            return -1;
        address = (union address){.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
        if ((made = socket(AF_INET, kind | SOCK_CLOEXEC, 0)) < 0)
            return -1;
        if ((kind == SOCK_DGRAM && setsockopt(made, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) < 0) ||
            bind(made, &address.any, sizeof address.v4) < 0)
            return close_failed(made);
    }
    return kind == SOCK_STREAM && listen(made, QUEUE) < 0 ? close_failed(made) : made;
}

static bool redirects(const struct value *batch)
{
    struct answers answers = {.count = 0};
    if (ask(NETFILTER, batch, &answers) != 0)
        return false;
    for (size_t index = 0; index < answers.count; index++)
        if (answers.errors[index] != 0)
            return false;
    return true;
}

int step_listen(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    union address proxy = {.v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)arguments[0].number)}};
    proxy.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    uint16_t redirected = (uint16_t)arguments[1].number;
    const struct value *ports = &arguments[2];
    context->count = 0;
    if (!add(context, "proxy", bind_tcp(&proxy, sizeof proxy.v4)) ||
        !add(context, "dns-udp", bind_everywhere(SOCK_DGRAM, DNS)) ||
        !add(context, "dns-tcp", bind_everywhere(SOCK_STREAM, DNS)))
        return errno;
    if (redirected && redirects(&arguments[3])) {
        if (!add(context, "redirected", bind_everywhere(SOCK_STREAM, redirected)))
            return errno;
        context->is_redirected = true;
    } else {
        for (size_t index = 0; index < ports->size; index++)
            if (ports->items[index].kind != NUMBER)
                return EINVAL;
            else if (!add(context, "transparent", bind_everywhere(SOCK_STREAM, (uint16_t)ports->items[index].number)))
                return errno;
    }
    if (!add(context, "user", open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC)) ||
        !add(context, "net", open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)))
        return errno;
    return 0;
}

int step_listen_on_loopback(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *places = &arguments[0];
    for (size_t index = 0; index < places->size; index++) {
        const struct value *pair = &places->items[index];
        if (pair->kind != SEQUENCE || !has_shape(pair->items, pair->size, "pi"))
            return EINVAL;
        const char *text = pair->items[0].data;
        uint16_t port = (uint16_t)pair->items[1].number;
        bool is_ipv6 = strchr(text, ':') != NULL;
        union address address = {0};
        if (is_ipv6)
            address.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        else
            address.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        void *number = is_ipv6 ? (void *)&address.v6.sin6_addr : (void *)&address.v4.sin_addr;
        if (strlen(text) > 45 || inet_pton(address.any.sa_family, text, number) != 1)
            return EINVAL;
        int made = bind_tcp(&address, is_ipv6 ? sizeof address.v6 : sizeof address.v4);
        if (made < 0 && (errno == EADDRINUSE || (is_ipv6 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))))
            continue;
        char kind[80];
        snprintf(kind, sizeof kind, is_ipv6 ? "loopback=[%s]:%u" : "loopback=%s:%u", text, (unsigned)port);
        if (!add(context, kind, made))
            return errno;
    }
    return 0;
}

int step_hand_over(struct context *context, const struct value *arguments, size_t count)
{
    (void)arguments, (void)count;
    static char kinds[MOST_DESCRIPTORS * 81];
    int descriptors[MOST_DESCRIPTORS], error = 0;
    size_t size = 0;
    for (size_t index = 0; index < context->count; index++) {
        const char *kind = context->listeners[index].kind;
        if (index > 0)
            kinds[size++] = ' ';
        memcpy(kinds + size, kind, strlen(kind));
        size += strlen(kind);
        descriptors[index] = context->listeners[index].descriptor;
    }
    if (context->gate >= 0) {
        if (!send_with(context->gate, kinds, size, descriptors, context->count))
            error = errno;
        close(context->gate);
        context->gate = -1;
    }
    for (size_t index = 0; index < context->count; index++)
        close(descriptors[index]);
    context->count = 0;
    return error;
}
