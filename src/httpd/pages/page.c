#include "httpd/pages/page.h"

#include <string.h>

#include <apr_buckets.h>
#include <apr_strings.h>
#include <http_protocol.h>
#include <util_filter.h>

int idem_page_begin(request_rec *r, const char *handler, apr_int64_t methods)
{
    if (!r->handler || strcmp(r->handler, handler)) {
        return DECLINED;
    }
    r->allowed |= methods;
    return methods & (AP_METHOD_BIT << r->method_number) ? OK : HTTP_METHOD_NOT_ALLOWED;
}

int idem_page_send(request_rec *r, const char *type, const char *body, apr_size_t len)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);

    if (type) {
        ap_set_content_type(r, type);
    }
    apr_table_setn(r->headers_out, "Cache-Control", "no-store");
    apr_table_setn(r->headers_out, "X-Content-Type-Options", "nosniff");
    if (len) {
        APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_pool_create(body, len, r->pool, r->connection->bucket_alloc));
    }
    APR_BRIGADE_INSERT_TAIL(bb, apr_bucket_eos_create(r->connection->bucket_alloc));
    ap_pass_brigade(r->output_filters, bb);
    return OK;
}

int idem_page_send_json(request_rec *r, yajl_gen gen, int status)
{
    const unsigned char *text;
    size_t len;
    char *body;

    yajl_gen_get_buf(gen, &text, &len);
    body = apr_pstrcat(r->pool, apr_pstrmemdup(r->pool, (const char *)text, len), "\n", NULL);
    yajl_gen_free(gen);
    r->status = status;
    return idem_page_send(r, "application/json", body, len + 1);
}

int idem_page_wants_json(request_rec *r)
{
    const char *accept = apr_table_get(r->headers_in, "Accept");

    if (r->args && strstr(r->args, "format=json")) {
        return 1;
    }
    return accept && strstr(accept, "json") && !strstr(accept, "html");
}

void idem_page_string(yajl_gen gen, const char *text)
{
    if (!text || yajl_gen_string(gen, (const unsigned char *)text, strlen(text)) != yajl_gen_status_ok) {
        yajl_gen_null(gen);
    }
}

const char *idem_page_time(apr_pool_t *p, apr_time_t when)
{
    apr_time_exp_t exploded;

    apr_time_exp_gmt(&exploded, when);
    return apr_psprintf(p, "%04d-%02d-%02dT%02d:%02d:%02dZ", exploded.tm_year + 1900, exploded.tm_mon + 1, exploded.tm_mday,
                        exploded.tm_hour, exploded.tm_min, exploded.tm_sec);
}
