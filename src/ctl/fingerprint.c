/* idempotencyctl fingerprint: why are two requests the same, or not? CONTRACT section 10. */
#include <stdio.h>
#include <string.h>

#include <apr_cstr.h>
#include <apr_escape.h>
#include <apr_strings.h>

#include "core/digest.h"
#include "ctl/request.h"

static const struct {
    int tag;
    const char *name;
} fields[] = {
    {IDEM_FIELD_CONTRACT, "contract"},   {IDEM_FIELD_SCHEMA, "schema revision"}, {IDEM_FIELD_METHOD, "method"},
    {IDEM_FIELD_AUTHORITY, "authority"}, {IDEM_FIELD_PATH, "path"},              {IDEM_FIELD_QUERY, "query"},
    {IDEM_FIELD_MEDIA_TYPE, "media type"}, {IDEM_FIELD_MEDIA_OCTETS, "media type, unparsable"},
    {IDEM_FIELD_CODING, "content coding"}, {IDEM_FIELD_HEADER_NAME, "header"},   {IDEM_FIELD_HEADER_VALUE, "header value"},
    {IDEM_FIELD_PAYLOAD_MODE, "payload mode"}, {IDEM_FIELD_PAYLOAD, "payload digest"},
};

static const char *name_of(int tag)
{
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].tag == tag) {
            return fields[i].name;
        }
    }
    return "?";
}

static void print_fields(idem_ctl_t *ctl, const idem_ctl_request_t *request)
{
    const unsigned char *at = request->framed;
    apr_size_t left = request->framed_len;
    const unsigned char *octets;
    apr_size_t len;
    int first = 1;
    int tag;

    while (idem_fingerprint_next(&at, &left, &tag, &octets, &len)) {
        const char *value = tag == IDEM_FIELD_PAYLOAD ? apr_pescape_hex(ctl->p, octets, len, 0)
                                                      : apr_pstrmemdup(ctl->p, (const char *)octets, len);

        if (ctl->json) {
            printf("%s{\"field\": %s, \"value\": %s}", first ? "" : ", ", idem_ctl_json(ctl->p, name_of(tag)),
                   idem_ctl_json(ctl->p, value));
        }
        else {
            printf("%-16s %s\n", name_of(tag), idem_ctl_printable(ctl->p, value));
        }
        first = 0;
    }
}

static void print_request(idem_ctl_t *ctl, const idem_ctl_request_t *request)
{
    const char *digest = apr_pescape_hex(ctl->p, request->fingerprint, IDEM_FINGERPRINT_LEN, 0);
    const char *canonical = apr_pstrmemdup(ctl->p, request->canonical, request->canonical_len);

    if (ctl->json) {
        printf("{\"fields\": [");
        print_fields(ctl, request);
        printf("], \"canonical_octets\": %" APR_SIZE_T_FMT ", \"canonical\": %s, \"fingerprint\": \"%s\"}\n",
               request->canonical_len, idem_ctl_json(ctl->p, canonical), digest);
        return;
    }
    print_fields(ctl, request);
    printf("%-16s %" APR_SIZE_T_FMT " octets\n%s\n%-16s %s\n", "payload", request->canonical_len,
           idem_ctl_printable(ctl->p, canonical), "fingerprint", digest);
}

static const apr_array_header_t *split(apr_pool_t *p, const char *words)
{
    apr_array_header_t *list = apr_array_make(p, 4, sizeof(const char *));
    char *state = NULL;
    char *word;

    for (word = apr_strtok(apr_pstrdup(p, words), ",", &state); word; word = apr_strtok(NULL, ",", &state)) {
        APR_ARRAY_PUSH(list, const char *) = word;
    }
    return list;
}

/* 1, or 0 with the reason on stderr. */
static int make_recipe(idem_ctl_t *ctl, const char *mode, const char *query, const char *headers, idem_recipe_t *recipe)
{
    if (idem_payload_mode_parse(mode ? mode : "raw", &recipe->mode) != APR_SUCCESS) {
        idem_ctl_fail(IDEM_CTL_USAGE, "--payload takes raw, json, jcs, form or multipart");
        return 0;
    }
    recipe->query = !query || !apr_cstr_casecmp(query, "All") ? IDEM_QUERY_ALL
                    : !apr_cstr_casecmp(query, "None")        ? IDEM_QUERY_NONE
                                                        : IDEM_QUERY_NAMES;
    recipe->query_names = recipe->query == IDEM_QUERY_NAMES ? split(ctl->p, query) : NULL;
    headers = headers ? headers : "X-HTTP-Method-Override,X-HTTP-Method,X-Method-Override";
    recipe->headers = split(ctl->p, apr_cstr_casecmp(headers, "None") ? headers : "");
    return 1;
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    idem_ctl_given_t given = {0};
    const char *mode = NULL;
    const char *query = NULL;
    const char *headers = NULL;
    int no_host = 0;
    const idem_ctl_option_t options[] = {{"request", &given.request_file, NULL},
                                         {"method", &given.method, NULL},
                                         {"target", &given.target, NULL},
                                         {"host", &given.host, NULL},
                                         {"type", &given.type, NULL},
                                         {"body", &given.body_file, NULL},
                                         {"contract", &given.contract_file, NULL},
                                         {"payload", &mode, NULL},
                                         {"query", &query, NULL},
                                         {"headers", &headers, NULL},
                                         {"no-host", NULL, &no_host},
                                         {NULL, NULL, NULL}};
    idem_recipe_t recipe = {0};
    idem_ctl_request_t request;
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, NULL, 0) < 0 || !make_recipe(ctl, mode, query, headers, &recipe)) {
        return IDEM_CTL_USAGE;
    }
    status = idem_ctl_read_request(ctl, &given, &request);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    if (request.contract && recipe.mode != IDEM_PAYLOAD_JCS) {
        recipe.mode = IDEM_PAYLOAD_JSON;
    }
    recipe.host = !no_host;
    recipe.schema = request.contract ? idem_contract_revision(request.contract) : "";
    status = idem_ctl_digest_request(ctl, &recipe, &request);
    if (status == IDEM_CTL_DONE) {
        print_request(ctl, &request);
    }
    return status;
}

const idem_ctl_command_t idem_ctl_fingerprint = {
    "fingerprint",
    "--request FILE | --target T [--method M] [--host H] [--type T] [--body FILE]\n"
    "      [--payload raw|json|jcs|form|multipart] [--contract FILE] [--query All|None|NAME,...]\n"
    "      [--headers NAME,...|None] [--no-host]",
    "shows what is bound of a request, its canonical payload, and its fingerprint", run};
