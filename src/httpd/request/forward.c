#include "httpd/request/forward.h"

#include <apr_strings.h>

#include "core/uuid.h"

void idem_forward(request_rec *r, const idem_ctx_t *ctx)
{
    const char *operation = idem_uuid_text(r->pool, ctx->operation);
    const char *generation = apr_itoa(r->pool, ctx->generation);
    unsigned char key[IDEM_UUID_LEN];
    const char *downstream;

    idem_uuid_downstream(ctx->operation, key);
    downstream = idem_uuid_text(r->pool, key);
    apr_table_setn(r->subprocess_env, "IDEMPOTENCY_OPERATION_ID", operation);
    apr_table_setn(r->subprocess_env, "IDEMPOTENCY_GENERATION", generation);
    apr_table_setn(r->subprocess_env, "IDEMPOTENCY_CONTRACT", IDEM_CONTRACT_NAME);
    apr_table_setn(r->subprocess_env, "IDEMPOTENCY_ROUTE", ctx->route_name);
    apr_table_setn(r->subprocess_env, "IDEMPOTENCY_DOWNSTREAM_KEY", downstream);
    apr_table_setn(r->headers_in, "Idempotency-Operation-Id", operation);
    apr_table_setn(r->headers_in, "Idempotency-Generation", generation);
    apr_table_setn(r->headers_in, "Idempotency-Downstream-Key", downstream);
    if (!ctx->conf->forward_key) {
        apr_table_unset(r->headers_in, ctx->conf->key_header);
    }
}
