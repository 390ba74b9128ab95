#include "core/form.h"

#include <stddef.h>
#include <string.h>

#define OUT_ROOM 2048

struct idem_form_t {
    apr_pool_t *pool;
    idem_octets_fn sink;
    void *baton;
    idem_payload_fault_t *fault;
    apr_uint32_t pairs;
    int in_pair;  /* something of the pair was seen */
    int in_value; /* its `=` was */
    int escape;   /* octets of a %XX that were seen: 0, 1 or 2 */
    int high;     /* the first digit's value */
    apr_size_t used;
    char out[OUT_ROOM];
};

idem_form_t *idem_form_create(apr_pool_t *p, idem_octets_fn sink, void *baton, idem_payload_fault_t *fault)
{
    idem_form_t *form = apr_palloc(p, sizeof(*form));

    memset(form, 0, offsetof(idem_form_t, out));
    form->pool = p;
    form->sink = sink;
    form->baton = baton;
    form->fault = fault;
    return form;
}

static void flush(idem_form_t *form)
{
    if (form->used != 0) {
        form->sink(form->baton, form->out, form->used);
        form->used = 0;
    }
}

/* One octet of a name or value. */
static void put_data(idem_form_t *form, unsigned char c)
{
    static const char hex[] = "0123456789ABCDEF";

    if (OUT_ROOM - form->used < 3) {
        flush(form);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
        c == '_' || c == '~') {
        form->out[form->used++] = (char)c;
        return;
    }
    form->out[form->used++] = '%';
    form->out[form->used++] = hex[c >> 4];
    form->out[form->used++] = hex[c & 15];
}

static void put_mark(idem_form_t *form, char c)
{
    if (form->used == OUT_ROOM) {
        flush(form);
    }
    form->out[form->used++] = c;
}

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static apr_status_t bad_escape(idem_form_t *form)
{
    return idem_fault(form->fault, form->pool, "bad-escape", NULL,
                      "The %s of pair %u of the form has a \"%%\" without two hexadecimal digits.",
                      form->in_value ? "value" : "name", form->pairs);
}

static apr_status_t begin_pair(idem_form_t *form)
{
    form->in_pair = 1;
    if (++form->pairs > IDEM_FORM_MAX_PAIRS) {
        return idem_fault(form->fault, form->pool, "too-many-pairs", NULL, "The form has more than %d pairs.",
                          IDEM_FORM_MAX_PAIRS);
    }
    return APR_SUCCESS;
}

static void end_pair(idem_form_t *form)
{
    if (form->in_pair) {
        put_mark(form, '&');
    }
    form->in_pair = form->in_value = 0;
}

static apr_status_t feed_escape(idem_form_t *form, unsigned char c)
{
    int digit = hex_value(c);

    if (digit < 0) {
        return bad_escape(form);
    }
    if (form->escape == 1) {
        form->high = digit;
        form->escape = 2;
        return APR_SUCCESS;
    }
    form->escape = 0;
    put_data(form, (unsigned char)(form->high << 4 | digit));
    return APR_SUCCESS;
}

apr_status_t idem_form_feed(idem_form_t *form, const char *data, apr_size_t len)
{
    apr_status_t rv = APR_SUCCESS;
    apr_size_t i;

    for (i = 0; rv == APR_SUCCESS && i < len; i++) {
        unsigned char c = (unsigned char)data[i];

        if (form->escape != 0) {
            rv = feed_escape(form, c);
            continue;
        }
        if (c == '&') {
            end_pair(form);
            continue;
        }
        if (!form->in_pair) {
            rv = begin_pair(form);
        }
        if (c == '=' && !form->in_value) {
            form->in_value = 1;
            put_mark(form, '=');
        }
        else if (c == '%') {
            form->escape = 1;
        }
        else {
            put_data(form, c == '+' ? ' ' : c);
        }
    }
    return rv;
}

apr_status_t idem_form_finish(idem_form_t *form)
{
    if (form->escape != 0) {
        return bad_escape(form);
    }
    end_pair(form);
    flush(form);
    return APR_SUCCESS;
}
