/* Values in the format of Python's marshal, version 2 (Python/marshal.c): without references between them. */
#include "launcher.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 16

struct reader {
    struct pool *pool;
    const unsigned char *at, *end;
};

struct chunk {
    struct chunk *older;
    _Alignas(16) unsigned char data[];
};

/* Return zeroed memory that lives as long as the pool, or NULL. */
void *take_memory(struct pool *pool, size_t size)
{
    struct chunk *chunk = size > SIZE_MAX / 2 ? NULL : calloc(1, sizeof *chunk + size);
    if (chunk == NULL)
        return NULL;
    chunk->older = pool->newest;
    pool->newest = chunk;
    return chunk->data;
}

void free_pool(struct pool *pool)
{
    while (pool->newest != NULL) {
        struct chunk *chunk = pool->newest;
        pool->newest = chunk->older;
        free(chunk);
    }
}

static bool take(struct reader *reader, size_t count, const unsigned char **data)
{
    if ((size_t)(reader->end - reader->at) < count)
        return false;
    *data = reader->at;
    reader->at += count;
    return true;
}

static bool take_number(struct reader *reader, size_t width, uint32_t *number)
{
    const unsigned char *data;
    if (!take(reader, width, &data))
        return false;
    *number = 0;
    for (size_t place = 0; place < width; place++)
        *number |= (uint32_t)data[place] << (8 * place);
    return true;
}

/* Digits of 15 bits; the sign is that of their count. Five are 75 bits: what does not fit into 64 is refused. */
static bool take_long(struct reader *reader, int64_t *number)
{
    uint32_t head, digit;
    if (!take_number(reader, 4, &head))
        return false;
    int32_t count = (int32_t)head;
    uint64_t sum = 0;
    if (count < -5 || count > 5)
        return false;
    for (int place = 0; place < abs(count); place++) {
        if (!take_number(reader, 2, &digit) || digit > 0x7fff || (place == 4 && digit > 0xf))
            return false;
        sum |= (uint64_t)digit << (15 * place);
    }
    *number = (int64_t)(count < 0 ? 0 - sum : sum);
    return true;
}

static bool take_data(struct reader *reader, struct value *value)
{
    uint32_t size;
    const unsigned char *data;
    if (!take_number(reader, 4, &size) || !take(reader, size, &data))
        return false;
    char *copy = take_memory(reader->pool, (size_t)size + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, data, size);
    value->data = copy;
    value->size = size;
    return true;
}

static bool take_value(struct reader *reader, struct value *value, int depth);

static bool take_items(struct reader *reader, struct value *value, int depth)
{
    uint32_t count;
    if (!take_number(reader, 4, &count) || count > (size_t)(reader->end - reader->at))
        return false; /* each takes a byte at least */
    struct value *items = take_memory(reader->pool, ((size_t)count + 1) * sizeof *items);
    if (items == NULL)
        return false;
    value->items = items;
    value->size = count;
    for (size_t index = 0; index < count; index++)
        if (!take_value(reader, &items[index], depth + 1))
            return false;
    return true;
}

static bool take_mapping(struct reader *reader, struct value *value, int depth)
{
    size_t room = 64, count = 0;
    struct value *items = take_memory(reader->pool, room * sizeof *items);
    while (items != NULL) {
        if (reader->at == reader->end)
            return false;
        if (*reader->at == '0') {
            reader->at++;
            value->items = items;
            value->size = count / 2;
            return true;
        }
        if (count + 2 > room) {
            struct value *more = take_memory(reader->pool, 2 * room * sizeof *items);
            if (more == NULL)
                return false;
            memcpy(more, items, room * sizeof *items);
            room *= 2;
            items = more;
        }
        if (!take_value(reader, &items[count], depth + 1) || !take_value(reader, &items[count + 1], depth + 1))
            return false;
        count += 2;
    }
    return false;
}

static bool take_value(struct reader *reader, struct value *value, int depth)
{
    uint32_t kind, number;
    *value = (struct value){.kind = NONE};
    if (depth > DEEPEST || !take_number(reader, 1, &kind))
        return false;
    switch (kind) {
    case 'N':
        return true;
    case 'T':
    case 'F':
        value->kind = NUMBER;
        value->number = kind == 'T';
        return true;
    case 'i':
        value->kind = NUMBER;
        if (!take_number(reader, 4, &number))
            return false;
        value->number = (int32_t)number;
        return true;
    case 'l':
        value->kind = NUMBER;
        return take_long(reader, &value->number);
    case 's':
        value->kind = BYTES;
        return take_data(reader, value);
    case 'u':
    case 't':
        value->kind = TEXT;
        return take_data(reader, value);
    case '(':
    case '[':
        value->kind = SEQUENCE;
        return take_items(reader, value, depth);
    case '{':
        value->kind = MAPPING;
        return take_mapping(reader, value, depth);
    default:
        return false;
    }
}

/* Parse all of ``data``. The values are in the pool: they live until ``free_pool``. */
bool parse(struct pool *pool, const unsigned char *data, size_t size, struct value *value)
{
    struct reader reader = {pool, data, data + size};
    return take_value(&reader, value, 0) && reader.at == reader.end;
}

/* Return the value of a text key, or NULL. */
const struct value *find(const struct value *mapping, const char *key)
{
    if (mapping->kind != MAPPING)
        return NULL;
    for (size_t index = 0; index < mapping->size; index++)
        if (is_text(&mapping->items[2 * index], key))
            return &mapping->items[2 * index + 1];
    return NULL;
}

/* Return the value of a text key if it has that kind, or NULL. */
const struct value *find_of(const struct value *mapping, const char *key, enum kind kind)
{
    const struct value *value = find(mapping, key);
    return value != NULL && value->kind == kind ? value : NULL;
}

/* Return the number of a text key; 0 if there is none. */
int64_t number_of(const struct value *mapping, const char *key)
{
    const struct value *value = find_of(mapping, key, NUMBER);
    return value != NULL ? value->number : 0;
}

/* Whether a value is bytes or text without a NUL. */
bool is_string(const struct value *value)
{
    return (value->kind == BYTES || value->kind == TEXT) && strlen(value->data) == value->size;
}

bool is_text(const struct value *value, const char *text)
{
    return value->kind == TEXT && is_string(value) && strcmp(value->data, text) == 0;
}

/* Whether values have a shape: p: bytes or text without a NUL; b: bytes; i: a number; s: a sequence. Those after a
   "?" may be missing. */
bool has_shape(const struct value *values, size_t count, const char *shape)
{
    size_t index = 0;
    bool may_end = false;
    for (; *shape != '\0'; shape++) {
        if (*shape == '?') {
            may_end = true;
            continue;
        }
        if (index == count)
            return may_end;
        const struct value *value = &values[index++];
        bool fits = *shape == 'p'   ? is_string(value)
                    : *shape == 'b' ? value->kind == BYTES
                    : *shape == 'i' ? value->kind == NUMBER
                                    : value->kind == SEQUENCE;
        if (!fits)
            return false;
    }
    return index == count;
}
