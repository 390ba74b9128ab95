#include "core/multipart.h"

#include <stddef.h>
#include <string.h>

typedef enum {
    AT_START,     /* before the first delimiter */
    AT_DELIMITER, /* behind a delimiter, on its line */
    AT_DASH,      /* behind a delimiter and one dash */
    AT_LINE_END,  /* behind the CR that ends a delimiter's line */
    IN_HEADERS,
    IN_CONTENT,
    AT_END        /* behind the last delimiter */
} place_e;

struct idem_multipart_t {
    apr_pool_t *pool;
    idem_octets_fn sink;
    void *baton;
    idem_payload_fault_t *fault;
    place_e place;
    apr_uint32_t parts;
    int line_end_seen;    /* one CRLF before the first delimiter was seen */
    int padded;           /* a blank stands between a delimiter and its line's end */
    apr_size_t matched;   /* octets of the delimiter that were seen */
    apr_size_t held;      /* the first of them that are content if the rest does not come */
    apr_size_t delimiter_len;
    apr_size_t headers_len;
    apr_size_t block_len;
    char delimiter[4 + IDEM_MULTIPART_MAX_BOUNDARY + 1]; /* CR LF - - boundary */
    char headers[IDEM_MULTIPART_MAX_HEADERS];            /* lines of the part, each with its CRLF */
    char block[IDEM_MULTIPART_BLOCK];
};

/* RFC 2046: bchars, the last of which is no space. */
static int boundary_is_valid(const char *boundary)
{
    static const char others[] = "'()+_,-./:=? ";
    apr_size_t len = boundary != NULL ? strlen(boundary) : 0;
    apr_size_t i;

    if (len == 0 || len > IDEM_MULTIPART_MAX_BOUNDARY || boundary[len - 1] == ' ') {
        return 0;
    }
    for (i = 0; i < len; i++) {
        char c = boundary[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) &&
            strchr(others, c) == NULL) {
            return 0;
        }
    }
    return 1;
}

idem_multipart_t *idem_multipart_create(apr_pool_t *p, const char *boundary, idem_octets_fn sink, void *baton,
                                        idem_payload_fault_t *fault)
{
    idem_multipart_t *m = apr_palloc(p, sizeof(*m));

    memset(m, 0, offsetof(idem_multipart_t, headers));
    m->pool = p;
    m->sink = sink;
    m->baton = baton;
    m->fault = fault;
    m->matched = m->held = 2; /* the body's start counts as a line's */
    if (!boundary_is_valid(boundary)) {
        idem_fault(fault, p, "boundary", NULL, "The boundary of the multipart body is missing or not a valid one.");
        return m;
    }
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, strlen(boundary) + 1);
    m->delimiter_len = 4 + strlen(boundary);
    return m;
}

static void put_length(idem_multipart_t *m, apr_size_t len)
{
    unsigned char octets[8];
    int i;

    for (i = 7; i >= 0; i--) {
        octets[i] = (unsigned char)(len & 0xFF);
        len >>= 8;
    }
    m->sink(m->baton, octets, sizeof(octets));
}

static void put_block(idem_multipart_t *m)
{
    m->sink(m->baton, "C", 1);
    put_length(m, m->block_len);
    m->sink(m->baton, m->block, m->block_len);
    m->block_len = 0;
}

static void put_content(idem_multipart_t *m, const char *octets, apr_size_t len)
{
    while (len != 0) {
        apr_size_t room = IDEM_MULTIPART_BLOCK - m->block_len;
        apr_size_t take = len < room ? len : room;

        memcpy(m->block + m->block_len, octets, take);
        m->block_len += take;
        octets += take;
        len -= take;
        if (m->block_len == IDEM_MULTIPART_BLOCK) {
            put_block(m);
        }
    }
}

static int is_token(const char *s, apr_size_t len)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    apr_size_t i;

    for (i = 0; i < len; i++) {
        char c = s[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) &&
            (c == '\0' || strchr(others, c) == NULL)) {
            return 0;
        }
    }
    return len != 0;
}

static apr_status_t bad_header(idem_multipart_t *m, const char *what)
{
    return idem_fault(m->fault, m->pool, "part-header", NULL, "A header line of part %u of the multipart body %s.",
                      m->parts, what);
}

/*
 * Joins the lines of the field that starts at `line` in place (the result is never longer) and returns what is behind
 * them. Every line of `headers` ends in CRLF.
 */
static char *unfold(char *line, const char *end, apr_size_t *len)
{
    char *to = line;
    char *s = line;

    for (;;) {
        char *eol = memchr(s, '\r', (apr_size_t)(end - s));

        memmove(to, s, (apr_size_t)(eol - s));
        to += eol - s;
        s = eol + 2;
        if (s == end || (*s != ' ' && *s != '\t')) {
            break;
        }
        while (to > line && (to[-1] == ' ' || to[-1] == '\t')) {
            to--;
        }
        while (*s == ' ' || *s == '\t') {
            s++;
        }
        *to++ = ' ';
    }
    *len = (apr_size_t)(to - line);
    return s;
}

static apr_status_t put_field(idem_multipart_t *m, char *field, apr_size_t len)
{
    char *colon = memchr(field, ':', len);
    const char *value;
    const char *end = field + len;
    char *c;

    if (colon == NULL || !is_token(field, (apr_size_t)(colon - field))) {
        return bad_header(m, "has no name");
    }
    for (c = field; c < colon; c++) {
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 0x20) : *c;
    }
    value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    m->sink(m->baton, "H", 1);
    put_length(m, (apr_size_t)(colon - field));
    m->sink(m->baton, field, (apr_size_t)(colon - field));
    put_length(m, (apr_size_t)(end - value));
    m->sink(m->baton, value, (apr_size_t)(end - value));
    return APR_SUCCESS;
}

static apr_status_t put_headers(idem_multipart_t *m)
{
    char *field = m->headers;
    char *end = m->headers + m->headers_len;

    m->sink(m->baton, "P", 1);
    while (field < end) {
        apr_size_t len;
        char *next = unfold(field, end, &len);
        apr_status_t rv = put_field(m, field, len);

        if (rv != APR_SUCCESS) {
            return rv;
        }
        field = next;
    }
    m->headers_len = 0;
    return APR_SUCCESS;
}

static apr_status_t feed_header(idem_multipart_t *m, char c)
{
    char before = m->headers_len != 0 ? m->headers[m->headers_len - 1] : '\n';
    apr_status_t rv;

    if ((c == '\n') != (before == '\r') || (((unsigned char)c < 0x20 && strchr("\r\n\t", c) == NULL) || c == '\0') ||
        c == 0x7F) {
        return bad_header(m, "has a control character or does not end in CRLF");
    }
    if (m->headers_len == sizeof(m->headers)) {
        return idem_fault(m->fault, m->pool, "part-header-too-long", NULL,
                          "The header lines of part %u of the multipart body have more than %d octets.", m->parts,
                          IDEM_MULTIPART_MAX_HEADERS);
    }
    m->headers[m->headers_len++] = c;
    if (c != '\n' || (m->headers_len != 2 && m->headers[m->headers_len - 3] != '\n')) {
        return APR_SUCCESS;
    }
    m->headers_len -= 2; /* the empty line */
    rv = put_headers(m);
    /* The line end of the empty line may be the one that the next delimiter begins with: a part without content. */
    m->place = IN_CONTENT;
    m->matched = m->held = 2;
    return rv;
}

/* Consumes at least one octet of `data`; returns how many. */
static apr_size_t feed_content(idem_multipart_t *m, const char *data, apr_size_t len)
{
    const char *cr;
    apr_size_t before;

    if (m->matched != 0) {
        if (*data == m->delimiter[m->matched]) {
            if (++m->matched == m->delimiter_len) {
                m->place = AT_DELIMITER;
            }
            return 1;
        }
        /* A CR stands only at the delimiter's start, so nothing of what was seen can begin another one. */
        put_content(m, m->delimiter + m->held, m->matched - m->held);
        m->matched = m->held = 0;
    }
    cr = memchr(data, '\r', len);
    before = cr != NULL ? (apr_size_t)(cr - data) : len;
    put_content(m, data, before);
    if (cr == NULL) {
        return len;
    }
    m->matched = 1;
    return before + 1;
}

static apr_status_t feed_start(idem_multipart_t *m, char c)
{
    if (c == m->delimiter[m->matched]) {
        if (++m->matched == m->delimiter_len) {
            m->place = AT_DELIMITER;
        }
        return APR_SUCCESS;
    }
    if (c == '\r' && m->matched == 2 && !m->line_end_seen) {
        m->line_end_seen = 1;
        m->matched = 1;
        return APR_SUCCESS;
    }
    return idem_fault(m->fault, m->pool, "preamble", NULL,
                      "The multipart body does not begin with its boundary's delimiter.");
}

/* The line of a delimiter: what follows the boundary. */
static apr_status_t feed_delimiter(idem_multipart_t *m, char c)
{
    if (m->place == AT_DELIMITER && c == '-' && !m->padded) {
        m->place = AT_DASH;
        return APR_SUCCESS;
    }
    if (m->place == AT_DASH && c == '-') {
        m->place = AT_END;
        return APR_SUCCESS;
    }
    if (m->place == AT_DELIMITER && (c == ' ' || c == '\t')) {
        m->padded = 1;
        return APR_SUCCESS;
    }
    if (m->place == AT_DELIMITER && c == '\r') {
        m->place = AT_LINE_END;
        return APR_SUCCESS;
    }
    if (m->place == AT_LINE_END && c == '\n') {
        m->place = IN_HEADERS;
        m->padded = 0;
        if (++m->parts > IDEM_MULTIPART_MAX_PARTS) {
            return idem_fault(m->fault, m->pool, "too-many-parts", NULL, "The multipart body has more than %d parts.",
                              IDEM_MULTIPART_MAX_PARTS);
        }
        return APR_SUCCESS;
    }
    return idem_fault(m->fault, m->pool, "boundary-in-content", NULL,
                      "A line of the multipart body begins with the boundary's delimiter and is none.");
}

apr_status_t idem_multipart_feed(idem_multipart_t *m, const char *data, apr_size_t len)
{
    apr_status_t rv = m->fault->reason == NULL ? APR_SUCCESS : APR_EINVAL;

    while (rv == APR_SUCCESS && len != 0) {
        apr_size_t used = 1;
        place_e place = m->place;

        switch (place) {
        case AT_START:
            rv = feed_start(m, *data);
            break;
        case IN_HEADERS:
            rv = feed_header(m, *data);
            break;
        case IN_CONTENT:
            used = feed_content(m, data, len);
            if (m->place == AT_DELIMITER) {
                put_block(m);
            }
            break;
        case AT_END:
            if (strchr(" \t\r\n", *data) == NULL || *data == '\0') {
                rv = idem_fault(m->fault, m->pool, "epilogue", NULL,
                                "Something follows the last delimiter of the multipart body.");
            }
            break;
        case AT_DELIMITER:
        case AT_DASH:
        case AT_LINE_END:
            rv = feed_delimiter(m, *data);
            break;
        }
        data += used;
        len -= used;
    }
    return rv;
}

apr_status_t idem_multipart_finish(idem_multipart_t *m)
{
    if (m->fault->reason != NULL) {
        return APR_EINVAL;
    }
    if (m->place != AT_END) {
        return idem_fault(m->fault, m->pool, "truncated", NULL,
                          "The multipart body ends without its last delimiter.");
    }
    return APR_SUCCESS;
}
