/* Messages of the launcher's processes: wire.py. */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGEST (64u << 20)

union rights {
    struct cmsghdr head;
    char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
};

static bool read_all(int channel, unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t count = read(channel, data, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        data += count;
        size -= (size_t)count;
    }
    return true;
}

/* Receive a value with its descriptors, all of which are closed by an exec. Return false at the end of file, and for a
   message that is cut off. ``descriptors`` has room for MOST_DESCRIPTORS. */
bool receive(int channel, struct value *value, int *descriptors, size_t *count)
{
    unsigned char head[4];
    union rights rights;
    struct iovec part = {head, sizeof head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
    ssize_t got;
    do
        got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    *count = 0;
    if (got <= 0 || (message.msg_flags & MSG_CTRUNC) != 0)
        return false;
    const struct cmsghdr *rest = CMSG_FIRSTHDR(&message); /* there is at most one of descriptors (unix(7)) */
    if (rest != NULL && rest->cmsg_level == SOL_SOCKET && rest->cmsg_type == SCM_RIGHTS) {
        *count = (rest->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(descriptors, CMSG_DATA(rest), *count * sizeof(int));
    }
    if (!read_all(channel, head + got, sizeof head - (size_t)got))
        return false;
    size_t size = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    unsigned char *data = size > LARGEST ? NULL : malloc(size + 1);
    if (data == NULL || !read_all(channel, data, size))
        return false;
    bool is_valid = parse(data, size, value);
    free(data);
    return is_valid;
}

bool send_with(int channel, const void *data, size_t size, const int *descriptors, size_t count)
{
    union rights rights;
    struct iovec part = {(void *)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > MOST_DESCRIPTORS) {
        errno = E2BIG;
        return false;
    }
    if (count > 0) {
        memset(&rights, 0, sizeof rights);
        message.msg_control = &rights;
        message.msg_controllen = (socklen_t)CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = (socklen_t)CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), descriptors, count * sizeof(int));
    }
    return sendmsg(channel, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/* ---- reports, in the format of marshal ---- */

struct record {
    unsigned char data[1 << 14]; /* 100 refusals take 5,000 bytes */
    size_t size;
};

static void put(struct record *record, const void *data, size_t size)
{
    if (size > sizeof record->data - record->size)
        _exit(FAILED);
    memcpy(record->data + record->size, data, size);
    record->size += size;
}

static void put_number(struct record *record, char kind, uint32_t number)
{
    unsigned char bytes[5] = {(unsigned char)kind};
    for (size_t place = 0; place < 4; place++)
        bytes[1 + place] = (unsigned char)(number >> (8 * place));
    put(record, bytes, sizeof bytes);
}

static void put_data(struct record *record, char kind, const char *data)
{
    size_t size = strnlen(data, 4096);
    put_number(record, kind, (uint32_t)size);
    put(record, data, size);
}

/* A text that names a file. Bytes that are not printable ASCII are written as \\xNN: a name may be no UTF-8. */
static void put_shown(struct record *record, const char *data)
{
    static const char digits[] = "0123456789abcdef";
    char shown[4097];
    size_t size = 0;
    for (; *data != '\0' && size + 4 < sizeof shown; data++) {
        unsigned char byte = (unsigned char)*data;
        if (byte >= 0x20 && byte < 0x7f && byte != '\\') {
            shown[size++] = *data;
            continue;
        }
        memcpy(shown + size, "\\x", 2);
        shown[size + 2] = digits[byte >> 4];
        shown[size + 3] = digits[byte & 15];
        size += 4;
    }
    shown[size] = '\0';
    put_data(record, 'u', shown);
}

static void put_real(struct record *record, double number)
{
    put(record, "g", 1);
    put(record, &number, sizeof number); /* little-endian, as all machines that the launcher knows */
}

static void put_long(struct record *record, int64_t number)
{
    put_number(record, 'l', 5);
    for (int place = 0; place < 5; place++) {
        uint64_t digit = (uint64_t)number >> (15 * place) & 0x7fff;
        unsigned char bytes[] = {digit & 0xff, digit >> 8 & 0xff};
        put(record, bytes, sizeof bytes);
    }
}

static void write_record(int report, const struct record *record)
{
    while (write(report, record->data, record->size) < 0 && errno == EINTR)
        ;
}

void report_failure(int report, size_t index, const char *op, int error, const char *detail)
{
    struct record record = {.size = 0};
    put_number(&record, '(', 5);
    put_data(&record, 'u', "failed");
    put_number(&record, 'i', (uint32_t)index);
    put_data(&record, 'u', op);
    put_number(&record, 'i', (uint32_t)error);
    put_shown(&record, detail);
    write_record(report, &record);
}

static size_t decimal(uint64_t number, char *text)
{
    char digits[24];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    for (size_t index = 0; index < count; index++)
        text[index] = digits[count - 1 - index];
    text[count] = '\0';
    return count;
}

void report_exit(int report, const struct exited *exited, const struct refusal *refusals, size_t count)
{
    struct record record = {.size = 0};
    put_number(&record, '(', 8);
    put_data(&record, 'u', "exited");
    put_number(&record, 'i', (uint32_t)exited->status);
    put_real(&record, exited->user);
    put_real(&record, exited->system);
    put_number(&record, 'i', (uint32_t)exited->max_rss);
    put_number(&record, '(', (uint32_t)count);
    for (size_t index = 0; index < count; index++) {
        char text[80] = "call ";
        size_t size = strlen(text);
        if (refusals[index].rule < 0)
            text[size++] = '-';
        size += decimal((uint64_t)(refusals[index].rule < 0 ? -refusals[index].rule : refusals[index].rule), text + size);
        text[size++] = ' ';
        decimal(refusals[index].count, text + size);
        put_data(&record, 's', text);
    }
    put_long(&record, exited->started);
    put(&record, exited->is_empty ? "T" : "F", 1);
    write_record(report, &record);
}
