/* Messages of the launcher's processes: wire.py. */
#define _GNU_SOURCE
#include "launcher.h"

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
   message that is cut off. */
bool receive(struct pool *pool, int channel, struct value *value, struct descriptors *descriptors)
{
    unsigned char head[4];
    union rights rights;
    struct iovec part = {head, sizeof head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
    ssize_t got;
    do
        got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    descriptors->count = 0;
    if (got <= 0 || (message.msg_flags & MSG_CTRUNC) != 0)
        return false;
    const struct cmsghdr *rest = CMSG_FIRSTHDR(&message); /* there is at most one of descriptors (unix(7)) */
    if (rest != NULL && rest->cmsg_level == SOL_SOCKET && rest->cmsg_type == SCM_RIGHTS) {
        descriptors->count = (rest->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(descriptors->numbers, CMSG_DATA(rest), descriptors->count * sizeof(int));
    }
    if (!read_all(channel, head + got, sizeof head - (size_t)got))
        return false;
    size_t size = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    unsigned char *data = size > LARGEST ? NULL : malloc(size + 1);
    bool is_valid = data != NULL && read_all(channel, data, size) && parse(pool, data, size, value);
    free(data);
    return is_valid;
}

void close_all(const struct descriptors *descriptors)
{
    for (size_t index = 0; index < descriptors->count; index++)
        close(descriptors->numbers[index]);
}

/* Send bytes with descriptors. Return how many bytes were sent, or -1. */
static ssize_t send_part(int channel, const void *data, size_t size, const int *descriptors, size_t count)
{
    union rights rights;
    struct iovec part = {(void *)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > MOST_DESCRIPTORS) {
        errno = E2BIG;
        return -1;
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
    ssize_t sent;
    do
        sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

bool send_with(int channel, const void *data, size_t size, const int *descriptors, size_t count)
{
    return send_part(channel, data, size, descriptors, count) == (ssize_t)size;
}

/* Receive a message of one byte and its descriptor, or -1 if it has none. ``flags``: recvmsg(2). Return false if none came. */
bool receive_one(int channel, int flags, int *descriptor)
{
    char word;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec part = {&word, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC | flags) <= 0)
        return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *descriptor = -1;
    if (head != NULL && head->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
    return true;
}

/* Send a message as ``receive`` reads it. Return false if the other end is gone. */
bool send_message(int channel, const void *data, size_t size, const int *descriptors, size_t count)
{
    unsigned char *whole = size > LARGEST ? NULL : malloc(size + 4), *at = whole;
    if (whole == NULL)
        return false;
    for (int place = 0; place < 4; place++)
        whole[place] = (unsigned char)(size >> (8 * place));
    memcpy(whole + 4, data, size);
    ssize_t sent = send_part(channel, at, size + 4, descriptors, count);
    while (sent >= 0 && at + sent < whole + size + 4) {
        at += sent;
        sent = send_part(channel, at, (size_t)(whole + size + 4 - at), NULL, 0);
    }
    free(whole);
    return sent >= 0;
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
    put_shown(&record, op);
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

/* Report ``word`` alone. */
void report_word(int report, const char *word)
{
    struct record record = {.size = 0};
    put_number(&record, '(', 1);
    put_data(&record, 'u', word);
    write_record(report, &record);
}

/* Report that a request without a command has failed. */
void report_why(int report, const char *why)
{
    struct record record = {.size = 0};
    put_number(&record, '(', 2);
    put_data(&record, 'u', "failed");
    put_data(&record, 'u', why);
    write_record(report, &record);
}

/* Keep a refused call with the file or address that it is about, if there is room. */
void add_named(struct refusals *refusals, const char *action, const char *name)
{
    size_t size = strlen(action) + 1 + strlen(name) + 1;
    if (refusals->names == MOST_NAMED || size > sizeof refusals->named - refusals->size)
        return;
    char *at = refusals->named + refusals->size;
    strcpy(at, action);
    strcat(at, " ");
    strcat(at, name);
    refusals->size += size;
    refusals->names++;
}

void report_exit(int report, const struct exited *exited, const struct refusals *refusals)
{
    struct record record = {.size = 0};
    put_number(&record, '(', 8);
    put_data(&record, 'u', "exited");
    put_number(&record, 'i', (uint32_t)exited->status);
    put_real(&record, exited->user);
    put_real(&record, exited->system);
    put_number(&record, 'i', (uint32_t)exited->max_rss);
    put_number(&record, '(', (uint32_t)(refusals->names + refusals->count));
    const char *named = refusals->named;
    for (size_t index = 0; index < refusals->names; index++, named += strlen(named) + 1)
        put_data(&record, 's', named);
    for (size_t index = 0; index < refusals->count; index++) {
        char text[80] = "call ";
        size_t size = strlen(text);
        int64_t rule = refusals->counted[index].rule;
        if (rule < 0)
            text[size++] = '-';
        size += decimal((uint64_t)(rule < 0 ? -rule : rule), text + size);
        text[size++] = ' ';
        decimal(refusals->counted[index].count, text + size);
        put_data(&record, 's', text);
    }
    put_long(&record, exited->started);
    put(&record, exited->is_empty ? "T" : "F", 1);
    write_record(report, &record);
}
