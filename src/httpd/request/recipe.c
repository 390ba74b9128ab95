#include "httpd/request/recipe.h"

#include <apr_cstr.h>
#include <apr_file_io.h>
#include <apr_strings.h>

#include "core/contract.h"
#include "core/media.h"

static int is_json_mode(int mode)
{
    return mode == IDEM_PAYLOAD_JSON || mode == IDEM_PAYLOAD_JCS;
}

/* Is the request of a kind that the mode reads? */
static int fits_mode(apr_pool_t *p, int mode, const char *type)
{
    switch (mode) {
    case IDEM_PAYLOAD_JSON:
    case IDEM_PAYLOAD_JCS:
        return idem_media_is_json(p, type);
    case IDEM_PAYLOAD_FORM:
        return idem_media_is(p, type, "application/x-www-form-urlencoded");
    case IDEM_PAYLOAD_MULTIPART:
        return idem_media_is(p, type, "multipart/");
    default:
        return 1;
    }
}

static const idem_contract_t *contract_number(const idem_dir_t *conf, int number)
{
    return conf->contracts && number < conf->contracts->nelts ? APR_ARRAY_IDX(conf->contracts, number, idem_contract_t *)
                                                              : NULL;
}

idem_recipe_t *idem_recipe_of(request_rec *r, const idem_ctx_t *ctx, const char **detail)
{
    idem_recipe_t *recipe = apr_pcalloc(ctx->pool, sizeof(*recipe));
    const char *type = apr_table_get(r->headers_in, "Content-Type");
    const char *coding = apr_table_get(r->headers_in, "Content-Encoding");
    const idem_contract_t *contract;

    idem_config_recipe(ctx->conf, recipe);
    contract = is_json_mode(recipe->mode) ? contract_number(ctx->conf, 0) : NULL;
    if (recipe->mode != IDEM_PAYLOAD_RAW && coding && *coding && apr_cstr_casecmp(coding, "identity")) {
        *detail = "This resource takes no Content-Encoding: the payload has to be readable as it is.";
        return NULL;
    }
    if (!fits_mode(r->pool, recipe->mode, type)) {
        if (contract) {
            *detail = "This resource takes application/json, or a media type that ends in +json.";
            return NULL;
        }
        recipe->mode = IDEM_PAYLOAD_RAW;
    }
    recipe->schema = contract ? idem_contract_revision(contract) : "";
    return recipe;
}

idem_recipe_t *idem_recipe_with(apr_pool_t *p, const idem_ctx_t *ctx, const idem_recipe_t *recipe, int number)
{
    idem_recipe_t *other = apr_pmemdup(p, recipe, sizeof(*other));

    other->schema = idem_contract_revision(contract_number(ctx->conf, number));
    return other;
}

const idem_contract_t *idem_recipe_contract(const idem_dir_t *conf, const idem_recipe_t *recipe, int *known)
{
    const idem_contract_t *contract;
    int i;

    *known = 1;
    if (!is_json_mode(recipe->mode)) {
        return NULL;
    }
    for (i = 0; (contract = contract_number(conf, i)) != NULL; i++) {
        if (!strcmp(idem_contract_revision(contract), recipe->schema)) {
            return contract;
        }
    }
    *known = !*recipe->schema;
    return NULL;
}

static const char *read_file(apr_pool_t *p, const char *path, char **text, apr_size_t *len)
{
    char words[120];
    apr_file_t *file;
    apr_finfo_t info;
    apr_status_t rv = apr_file_open(&file, path, APR_FOPEN_READ | APR_FOPEN_BINARY, 0, p);

    if (rv == APR_SUCCESS) {
        rv = apr_file_info_get(&info, APR_FINFO_SIZE, file);
        if (rv == APR_SUCCESS && info.size > IDEM_CONTRACT_MAX_TEXT) {
            apr_file_close(file);
            return apr_psprintf(p, "%s: larger than a payload contract may be", path);
        }
        if (rv == APR_SUCCESS) {
            *len = (apr_size_t)info.size;
            *text = apr_palloc(p, *len + 1);
            rv = *len ? apr_file_read_full(file, *text, *len, len) : APR_SUCCESS;
        }
        apr_file_close(file);
    }
    return rv == APR_SUCCESS ? NULL : apr_psprintf(p, "%s: %s", path, apr_strerror(rv, words, sizeof(words)));
}

static const char *load(apr_pool_t *p, const char *path, idem_contract_t **contract)
{
    const char *error = NULL;
    char *text = NULL;
    apr_size_t len = 0;

    error = read_file(p, path, &text, &len);
    if (error) {
        return error;
    }
    return idem_contract_compile(p, text, len, contract, &error) == APR_SUCCESS ? NULL
                                                                               : apr_psprintf(p, "%s: %s", path, error);
}

/* With several contracts a record must be able to name its own. */
static int has_revision(const apr_array_header_t *contracts, const char *revision)
{
    int i;

    for (i = 0; i < contracts->nelts; i++) {
        if (!strcmp(idem_contract_revision(APR_ARRAY_IDX(contracts, i, idem_contract_t *)), revision)) {
            return 1;
        }
    }
    return !*revision;
}

const char *idem_recipe_set_contracts(cmd_parms *cmd, void *conf, int argc, char *const argv[])
{
    apr_array_header_t *contracts = apr_array_make(cmd->pool, argc > 0 ? argc : 1, sizeof(idem_contract_t *));
    int i;

    if (argc < 1) {
        return "IdempotencyPayloadContract: takes one or more files, newest first, or None";
    }
    for (i = 0; i < argc && (argc > 1 || apr_cstr_casecmp(argv[i], "None")); i++) {
        const char *path = ap_server_root_relative(cmd->pool, argv[i]);
        idem_contract_t *contract = NULL;
        const char *error = path ? load(cmd->pool, path, &contract) : apr_psprintf(cmd->pool, "'%s' is no path", argv[i]);

        if (error) {
            return apr_pstrcat(cmd->pool, "IdempotencyPayloadContract: ", error, NULL);
        }
        if (argc > 1 && has_revision(contracts, idem_contract_revision(contract))) {
            return apr_psprintf(cmd->pool, "IdempotencyPayloadContract: %s: one of several contracts needs an x-revision of "
                                "its own", path);
        }
        APR_ARRAY_PUSH(contracts, idem_contract_t *) = contract;
    }
    ((idem_dir_t *)conf)->contracts = contracts;
    return NULL;
}
