/* Bytes that grow, and texts. */
#include "native.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void append(struct bytes *bytes, const void *data, size_t size)
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

void append_text(struct bytes *bytes, const char *text) { append(bytes, text, strlen(text)); }

bool starts_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

bool starts_with_any(const char *text, const char *const *beginnings, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (starts_with(text, beginnings[at]))
            return true;
    return false;
}

bool is_among(const char *text, const char *const *texts, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (strcmp(text, texts[at]) == 0)
            return true;
    return false;
}

void write_error(const char *first, const char *second, const char *third)
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
