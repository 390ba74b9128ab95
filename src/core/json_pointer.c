#include <string.h>

#include <apr_strings.h>

#include "core/json.h"

typedef struct {
    char octets[IDEM_FAULT_MAX_POINTER + 1];
    apr_size_t len;
    int full;
} pointer_t;

static void append(pointer_t *out, const char *octets, apr_size_t len)
{
    if (out->full || len > IDEM_FAULT_MAX_POINTER - 3 - out->len) {
        out->full = 1;
        return;
    }
    memcpy(out->octets + out->len, octets, len);
    out->len += len;
}

/* Name by name, and a name character by character, so that a cut never goes through one. */
static void append_name(pointer_t *out, const char *name, apr_size_t len)
{
    apr_size_t i = 0;

    append(out, "/", 1);
    while (i < len) {
        unsigned char c = (unsigned char)name[i];
        apr_size_t size = 1;

        if (c == '~') {
            append(out, "~0", 2);
        }
        else if (c == '/') {
            append(out, "~1", 2);
        }
        else if (c < 0x20 || c == 0x7F) {
            char escaped[8];

            append(out, escaped, (apr_size_t)apr_snprintf(escaped, sizeof(escaped), "\\u%04x", c));
        }
        else {
            while (i + size < len && ((unsigned char)name[i + size] & 0xC0) == 0x80) {
                size++;
            }
            append(out, name + i, size);
        }
        i += size;
    }
}

/*
 * Works on an unfinished list too: a container that is still open (whose `at` is 0) reaches to the end, and a name may
 * stand last.
 */
const char *idem_json_pointer(const idem_json_t *json, apr_uint32_t node)
{
    pointer_t out = { .len = 0 };
    apr_uint32_t at = 0;

    while (at < node) {
        int object = json->nodes[at].kind == IDEM_JSON_OBJECT;
        apr_uint32_t child = at + 1;
        apr_uint32_t index = 0;

        for (;;) {
            apr_uint32_t value = object ? child + 1 : child;

            apr_uint32_t next = value < json->count ? idem_json_next(json, value) : 0;

            if ((object && child == node) || next == 0 || node < next) {
                break;
            }
            child = next;
            index++;
        }
        if (object) {
            append_name(&out, json->text + json->nodes[child].at, json->nodes[child].len);
            at = child + 1;
        }
        else {
            char digits[16];

            append(&out, digits, (apr_size_t)apr_snprintf(digits, sizeof(digits), "/%" APR_UINT64_T_FMT,
                                                          (apr_uint64_t)index));
            at = child;
        }
    }
    if (out.full) {
        memcpy(out.octets + out.len, "...", 3);
        out.len += 3;
    }
    return apr_pstrmemdup(json->pool, out.octets, out.len);
}
