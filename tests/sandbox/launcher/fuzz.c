/* Any input for what the launcher reads: values, messages, plans, rules, a call's memory. The first byte chooses. With
   libFuzzer, or with the sanitizers alone: then the words are a seed, a number of inputs, and files to begin with. */
#include "calls.h"
#undef _exit
#undef recv
#undef open
#undef socket
#undef syscall
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "launcher.h"

#define LISTENER 3

static const uint8_t *rest;
static size_t left;
static jmp_buf end;

static uint8_t any_byte(void)
{
    if (left == 0)
        return 0;
    left--;
    return *rest++;
}

long any_result(void)
{
    static const int errors[] = {ENOENT, EACCES, EINVAL, EPERM, ENOSYS, EBUSY, EEXIST, EXDEV};
    uint8_t byte = any_byte();
    errno = errors[byte & 7];
    return (byte & 0xe0) == 0xe0 ? -1 : 0;
}

int any_descriptor(void)
{
    return any_result() < 0 ? -1 : fcntl(0, F_DUPFD_CLOEXEC, 100);
}

long any_call(long number, ...)
{
    va_list words;
    va_start(words, number);
    int first = va_arg(words, int);
    unsigned operation = va_arg(words, unsigned);
    void *message = va_arg(words, void *);
    va_end(words);
    if (number == SYS_ioctl && first == LISTENER && operation == 0xC0502100U /* SECCOMP_IOCTL_NOTIF_RECV */)
        return any_data(message, 80) == 80 ? 0 : -1;
    return any_descriptor();
}

ssize_t any_data(void *data, size_t size)
{
    if (any_result() < 0)
        return -1;
    size_t given = size < left ? size : left;
    memcpy(data, rest, given);
    rest += given;
    left -= given;
    return (ssize_t)given;
}

_Noreturn void leave(int code)
{
    (void)code;
    longjmp(end, 1);
}

static void try_message(const uint8_t *data, size_t size)
{
    int pair[2], own = dup(0);
    struct pool pool = {0};
    struct value value;
    struct descriptors descriptors;
    if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return;
    int passed[] = {own, own, own};
    if (size > 0 && send_with(pair[0], data, size, passed, data[0] & 3)) {
        close(pair[0]);
        if (receive(&pool, pair[1], &value, &descriptors))
            close_all(&descriptors);
    } else {
        close(pair[0]);
    }
    close(pair[1]);
    close(own);
    free_pool(&pool);
}

static void try_value(const uint8_t *data, size_t size)
{
    struct pool pool = {0};
    struct value value;
    if (parse(&pool, data, size, &value) && value.kind == MAPPING) {
        number_of(&value, "id");
        find_of(&value, "plan", SEQUENCE);
    }
    free_pool(&pool);
}

/* The input is a value, and after it what the calls answer. */
static void try_with_answers(const uint8_t *data, size_t size, bool is_plan)
{
    static struct context context;
    static struct refusals refusals;
    struct pool pool = {0};
    struct value value;
    size_t length = size < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (size < 2 || length > size - 2 || !parse(&pool, data + 2, length, &value)) {
        free_pool(&pool);
        return;
    }
    rest = data + 2 + length;
    left = size - 2 - length;
    if (setjmp(end) == 0) {
        if (is_plan) {
            begin_context(&context, (int64_t)any_byte() << 24);
            perform(&context, &value, 0, 2);
        } else if (is_mediation(&value)) {
            memset(&refusals, 0, sizeof refusals);
            for (int call = 0; call < 20; call++)
                mediate(LISTENER, &value, &refusals);
            struct exited exited = {0};
            report_exit(2, &exited, &refusals);
        }
    }
    close_range(100, ~0U, 0);
    free_pool(&pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (data[0] & 3) {
    case 0: try_value(data + 1, size - 1); break;
    case 1: try_message(data + 1, size - 1); break;
    case 2: try_with_answers(data + 1, size - 1, true); break;
    default: try_with_answers(data + 1, size - 1, false);
    }
    return 0;
}

#ifdef ALONE
#undef main
static uint32_t state;

static uint32_t any_number(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

int main(int count, char **words)
{
    static uint8_t data[1 << 16];
    state = count > 1 ? (uint32_t)strtoul(words[1], NULL, 10) | 1 : 1;
    long rounds = count > 2 ? strtol(words[2], NULL, 10) : 0;
    for (long round = 0; round < rounds && count > 3; round++) {
        FILE *file = fopen(words[3 + (unsigned)any_number() % (unsigned)(count - 3)], "rb");
        if (file == NULL)
            return 1;
        size_t size = fread(data, 1, sizeof data / 2, file);
        fclose(file);
        for (uint32_t change = any_number() % 6; change > 0 && size > 0; change--)
            data[any_number() % size] = (uint8_t)any_number();
        for (uint32_t more = any_number() % 256; more > 0; more--)
            data[size++] = (uint8_t)any_number();
        LLVMFuzzerTestOneInput(data, any_number() % 8 == 0 ? any_number() % (size + 1) : size);
    }
    return 0;
}
#endif
