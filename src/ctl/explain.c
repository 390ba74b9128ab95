/* idempotencyctl explain: in what does a request differ from the one that an operation began with? CONTRACT section 10. */
#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "core/uuid.h"
#include "ctl/request.h"
#include "store/admin.h"

/* The columns of a record that say what its request was. */
typedef struct kept_t {
    const unsigned char *fingerprint;
    const idem_recipe_t *recipe;
    const char *recipe_text;
    const unsigned char *parts;
    apr_size_t parts_len;
    const unsigned char *key;
} kept_t;

static const unsigned char *octets_of(idem_ctl_t *ctl, PGresult *rows, int column, apr_size_t *len)
{
    unsigned char *octets = PQunescapeBytea((const unsigned char *)PQgetvalue(rows, 0, column), len);
    unsigned char *copy = octets ? apr_pmemdup(ctl->p, octets, *len + 1) : NULL;

    PQfreemem(octets);
    return copy;
}

/* DONE, REFUSED (no such operation, or a contract or recipe of a later release), STORE. */
static idem_ctl_exit_e read_kept(idem_ctl_t *ctl, const char *operation, kept_t *kept)
{
    PGresult *rows = idem_ctl_query(ctl, idem_admin_fingerprint, 1, &operation);
    apr_size_t len = 0;
    int found;

    if (!rows) {
        return IDEM_CTL_STORE;
    }
    found = PQntuples(rows) == 1;
    if (found) {
        kept->fingerprint = octets_of(ctl, rows, 0, &len);
        found = kept->fingerprint && len == IDEM_FINGERPRINT_LEN;
        kept->recipe_text = (const char *)octets_of(ctl, rows, 1, &len);
        kept->recipe = kept->recipe_text && *PQgetvalue(rows, 0, 4) == 't' ? idem_recipe_parse(ctl->p, kept->recipe_text, len) : NULL;
        kept->parts = octets_of(ctl, rows, 2, &kept->parts_len);
        kept->key = octets_of(ctl, rows, 3, &len);
    }
    PQclear(rows);
    if (!found) {
        return idem_ctl_fail(IDEM_CTL_REFUSED, "%s: no such operation", operation);
    }
    return kept->recipe && kept->parts && kept->key
               ? IDEM_CTL_DONE
               : idem_ctl_fail(IDEM_CTL_REFUSED, "%s: its recipe is not known to this release", operation);
}

static void print(idem_ctl_t *ctl, const kept_t *kept, int same, const char *differing)
{
    if (ctl->json) {
        printf("{\"same\": %s, \"recipe\": %s, \"differing\": %s}\n", same ? "true" : "false",
               idem_ctl_json(ctl->p, kept->recipe_text), same ? "null" : idem_ctl_json(ctl->p, differing));
        return;
    }
    printf("recipe           %s\n", idem_ctl_printable(ctl->p, kept->recipe_text));
    if (same) {
        printf("the same request\n");
    }
    else {
        printf("another request; what differs: %s\n", *differing ? differing : "not known, the record kept no parts");
    }
}

static idem_ctl_exit_e run(idem_ctl_t *ctl, int argc, const char *const *argv)
{
    idem_ctl_given_t given = {0};
    const idem_ctl_option_t options[] = {{"request", &given.request_file, NULL}, {"method", &given.method, NULL},
                                         {"target", &given.target, NULL},        {"host", &given.host, NULL},
                                         {"type", &given.type, NULL},            {"body", &given.body_file, NULL},
                                         {"contract", &given.contract_file, NULL}, {NULL, NULL, NULL}};
    const char *operation = NULL;
    unsigned char uuid[IDEM_UUID_LEN];
    unsigned char parts[IDEM_PARTS_LEN];
    idem_ctl_request_t request;
    kept_t kept = {0};
    idem_ctl_exit_e status;

    if (idem_ctl_options(argc, argv, options, &operation, 1) < 0) {
        return IDEM_CTL_USAGE;
    }
    if (idem_uuid_parse(operation, uuid) != APR_SUCCESS) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "explain takes an operation id (lower-case UUID)");
    }
    status = idem_ctl_read_request(ctl, &given, &request);
    status = status == IDEM_CTL_DONE ? idem_ctl_connect(ctl) : status;
    status = status == IDEM_CTL_DONE ? read_kept(ctl, operation, &kept) : status;
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    if (*kept.recipe->schema && (!request.contract || strcmp(idem_contract_revision(request.contract), kept.recipe->schema))) {
        return idem_ctl_fail(IDEM_CTL_USAGE, "the record was made with revision %s of a payload contract: give its file by "
                             "--contract", idem_ctl_printable(ctl->p, kept.recipe->schema));
    }
    status = idem_ctl_digest_request(ctl, kept.recipe, &request);
    if (status != IDEM_CTL_DONE) {
        return status;
    }
    idem_fingerprint_parts(ctl->p, request.framed, request.framed_len, kept.key, parts);
    print(ctl, &kept, !memcmp(kept.fingerprint, request.fingerprint, IDEM_FINGERPRINT_LEN),
          idem_fingerprint_differing(ctl->p, parts, sizeof(parts), kept.parts, kept.parts_len));
    return IDEM_CTL_DONE;
}

const idem_ctl_command_t idem_ctl_explain = {
    "explain",
    "OPERATION --request FILE [--contract FILE]",
    "names in what a request differs from the one that an operation began with", run};
