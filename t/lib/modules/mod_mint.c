/*
 * A module of somebody else, for the tests: it gives a request the key that X-Mint asks for, in the hook of X-Mint-In, and
 * reads the whole body before that where there is an X-Eat.
 */
#include <apr_buckets.h>
#include <httpd.h>
#include <http_config.h>
#include <http_protocol.h>
#include <http_request.h>

#include "mod_idempotency.h"

static int mint(request_rec *r, const char *hook)
{
    APR_OPTIONAL_FN_TYPE(idempotency_server_key) *function = APR_RETRIEVE_OPTIONAL_FN(idempotency_server_key);
    const char *key = apr_table_get(r->headers_in, "X-Mint");
    const char *where = apr_table_get(r->headers_in, "X-Mint-In");

    if (key && where && !strcmp(where, hook)) {
        apr_status_t rv = function ? function(r, key) : APR_ENOTIMPL;

        apr_table_set(r->err_headers_out, "X-Minted", rv == APR_SUCCESS ? "yes" : rv == APR_EBUSY ? "late" : "no");
    }
    return DECLINED;
}

static void eat(request_rec *r)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    int ended = 0;

    while (!ended && ap_get_brigade(r->input_filters, bb, AP_MODE_READBYTES, APR_BLOCK_READ, 8192) == APR_SUCCESS) {
        ended = APR_BRIGADE_EMPTY(bb) || APR_BUCKET_IS_EOS(APR_BRIGADE_LAST(bb));
        apr_brigade_cleanup(bb);
    }
}

static int at_access(request_rec *r)
{
    if (apr_table_get(r->headers_in, "X-Eat")) {
        eat(r);
    }
    return mint(r, "access");
}

static int at_fixups(request_rec *r)
{
    return mint(r, "fixups");
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_check_access(at_access, NULL, NULL, APR_HOOK_MIDDLE, AP_AUTH_INTERNAL_PER_URI);
    ap_hook_fixups(at_fixups, NULL, NULL, APR_HOOK_LAST);
}

AP_DECLARE_MODULE(mint) = {STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL, register_hooks, AP_MODULE_FLAG_NONE};
