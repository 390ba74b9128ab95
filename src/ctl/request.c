#include "ctl/request.h"

#include <stdlib.h>
#include <string.h>

#include <apr_file_io.h>
#include <apr_strings.h>

#include "core/digest.h"
#include "core/media.h"

#define MOST_OCTETS (64u * 1024 * 1024)

char *idem_ctl_read_file(idem_ctl_t *ctl, const char *path, apr_size_t *len)
{
    apr_size_t size = 65536;
    char *text = malloc(size + 1);
    apr_file_t *file;
    char words[120];
    apr_status_t rv = !strcmp(path, "-") ? apr_file_open_stdin(&file, ctl->p)
                                         : apr_file_open(&file, path, APR_FOPEN_READ | APR_FOPEN_BINARY, 0, ctl->p);

    *len = 0;
    while (rv == APR_SUCCESS && text) {
        apr_size_t got = size - *len;

        rv = apr_file_read(file, text + *len, &got);
        *len += rv == APR_SUCCESS ? got : 0;
        if (*len == size) {
            char *larger = size < MOST_OCTETS ? realloc(text, size * 2 + 1) : NULL;

            if (!larger) {
                rv = APR_ENOSPC;
                break;
            }
            text = larger;
            size *= 2;
        }
    }
    if (rv != APR_EOF || !text) {
        idem_ctl_fail(IDEM_CTL_USAGE, "%s: %s", idem_ctl_printable(ctl->p, path),
                      rv == APR_ENOSPC ? "larger than 64 MiB" : apr_strerror(rv, words, sizeof(words)));
        free(text);
        return NULL;
    }
    text[*len] = '\0';
    apr_pool_cleanup_register(ctl->p, text, (apr_status_t(*)(void *))(void *)free, apr_pool_cleanup_null);
    return text;
}

static const char *find_header(void *baton, const char *name)
{
    return apr_table_get(baton, name);
}

/* One line without its end; *text moves behind it. NULL at the end. */
static char *take_line(char **text)
{
    char *line = *text;
    char *end = strchr(line, '\n');

    if (!end) {
        return NULL;
    }
    *text = end + 1;
    *end = '\0';
    if (end > line && end[-1] == '\r') {
        end[-1] = '\0';
    }
    return line;
}

/* Splits "HOST:PORT"; the default ports of http and https are none. */
static void set_host(apr_pool_t *p, idem_request_t *request, const char *authority)
{
    const char *colon = authority ? strrchr(authority, ':') : NULL;

    request->host = authority;
    if (colon && !strchr(colon, ']')) {
        request->host = apr_pstrmemdup(p, authority, (apr_size_t)(colon - authority));
        request->port = (unsigned)atoi(colon + 1);
        if (request->port == 80 || request->port == 443) {
            request->port = 0;
        }
    }
}

/* METHOD TARGET HTTP/1.1, fields, an empty line, the body. */
static const char *parse_message(apr_pool_t *p, char *text, apr_size_t len, idem_ctl_request_t *out)
{
    apr_table_t *headers = apr_table_make(p, 8);
    const char *end = text + len;
    char *state = NULL;
    char *line = take_line(&text);

    if (!line || !(out->request.method = apr_strtok(line, " ", &state)) ||
        !(out->request.target = apr_strtok(NULL, " ", &state))) {
        return "does not begin with METHOD TARGET HTTP/1.1";
    }
    while ((line = take_line(&text)) != NULL && *line) {
        char *colon = strchr(line, ':');

        if (!colon || colon == line) {
            return "has a header line without a name";
        }
        *colon++ = '\0';
        apr_table_mergen(headers, line, apr_pstrdup(p, colon + strspn(colon, " \t")));
    }
    if (!line) {
        return "has no empty line after its header";
    }
    if (apr_table_get(headers, "Transfer-Encoding")) {
        return "has a Transfer-Encoding: give the body as it is, without chunks";
    }
    out->headers = headers;
    out->body = text;
    out->body_len = (apr_size_t)(end - text);
    set_host(p, &out->request, apr_table_get(headers, "Host"));
    return NULL;
}

static idem_ctl_exit_e read_message(idem_ctl_t *ctl, const char *path, idem_ctl_request_t *out)
{
    apr_size_t len;
    char *text = idem_ctl_read_file(ctl, path, &len);
    const char *fault = text ? parse_message(ctl->p, text, len, out) : NULL;

    if (fault) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--request %s: %s", idem_ctl_printable(ctl->p, path), fault);
    }
    return text ? IDEM_CTL_DONE : IDEM_CTL_USAGE;
}

static idem_ctl_exit_e read_contract(idem_ctl_t *ctl, const char *path, idem_ctl_request_t *out)
{
    const char *error = NULL;
    apr_size_t len;
    char *text = idem_ctl_read_file(ctl, path, &len);

    if (!text) {
        return IDEM_CTL_USAGE;
    }
    if (idem_contract_compile(ctl->p, text, len, &out->contract, &error) != APR_SUCCESS) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "--contract %s: %s", idem_ctl_printable(ctl->p, path), error);
    }
    return IDEM_CTL_DONE;
}

idem_ctl_exit_e idem_ctl_read_request(idem_ctl_t *ctl, const idem_ctl_given_t *given, idem_ctl_request_t *out)
{
    idem_ctl_exit_e status = IDEM_CTL_DONE;

    memset(out, 0, sizeof(*out));
    out->headers = apr_table_make(ctl->p, 2);
    out->body = "";
    if (given->request_file) {
        status = read_message(ctl, given->request_file, out);
    }
    else if (!given->target) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "give --request FILE, or --target with --method, --host, --type, --body");
    }
    if (status == IDEM_CTL_DONE && given->body_file) {
        out->body = idem_ctl_read_file(ctl, given->body_file, &out->body_len);
        status = out->body ? IDEM_CTL_DONE : IDEM_CTL_USAGE;
    }
    if (status == IDEM_CTL_DONE && given->contract_file) {
        status = read_contract(ctl, given->contract_file, out);
    }
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    out->request.method = given->method ? given->method : out->request.method ? out->request.method : "POST";
    out->request.target = given->target ? given->target : out->request.target;
    if (given->host) {
        set_host(ctl->p, &out->request, given->host);
    }
    out->request.content_type = given->type ? given->type : apr_table_get(out->headers, "Content-Type");
    out->request.content_coding = apr_table_get(out->headers, "Content-Encoding");
    out->request.header = find_header;
    out->request.header_baton = (void *)out->headers;
    return IDEM_CTL_DONE;
}

/* Canonical octets while they come. */
typedef struct octets_t {
    char *octets;
    apr_size_t len;
    apr_size_t size;
    apr_pool_t *p;
} octets_t;

static void collect(void *baton, const void *octets, apr_size_t len)
{
    octets_t *all = baton;

    if (all->len + len > all->size) {
        char *larger;

        all->size = 2 * (all->len + len);
        larger = apr_palloc(all->p, all->size);
        memcpy(larger, all->octets ? all->octets : "", all->len);
        all->octets = larger;
    }
    memcpy(all->octets + all->len, octets, len);
    all->len += len;
}

idem_ctl_exit_e idem_ctl_digest_request(idem_ctl_t *ctl, const idem_recipe_t *recipe, idem_ctl_request_t *request)
{
    octets_t all = {NULL, 0, 0, ctl->p};
    int json = recipe->mode == IDEM_PAYLOAD_JSON || recipe->mode == IDEM_PAYLOAD_JCS;
    idem_payload_t *payload = idem_payload_create(ctl->p, recipe->mode, json ? request->contract : NULL,
                                                  recipe->mode == IDEM_PAYLOAD_MULTIPART
                                                      ? idem_media_parameter(ctl->p, request->request.content_type, "boundary")
                                                      : NULL,
                                                  collect, &all);

    if (idem_payload_feed(payload, request->body, request->body_len) != APR_SUCCESS ||
        idem_payload_finish(payload) != APR_SUCCESS) {
        const idem_payload_fault_t *fault = idem_payload_fault(payload);

        return idem_ctl_fail(IDEM_CTL_REFUSED, "the payload is refused: %s%s%s", fault ? fault->detail : "out of memory",
                             fault && fault->pointer ? " at " : "",
                             fault && fault->pointer ? idem_ctl_printable(ctl->p, fault->pointer) : "");
    }
    request->canonical = all.octets ? all.octets : "";
    request->canonical_len = all.len;
    idem_sha256(request->canonical, request->canonical_len, request->request.payload);
    idem_fingerprint_frame(ctl->p, recipe, &request->request, &request->framed, &request->framed_len);
    idem_sha256(request->framed, request->framed_len, request->fingerprint);
    return IDEM_CTL_DONE;
}
