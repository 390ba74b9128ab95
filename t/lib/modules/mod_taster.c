/*
 * A module of somebody else, for the tests: it reads from the request body before anybody else does.
 * X-Taste: HOOK HOW N, as in "access brigade 10": HOOK is post_read or access; HOW is brigade, block (httpd's old
 * way), line, look (which takes nothing) or below (past the filters of requests); N octets at most.
 */
#include <stdio.h>
#include <string.h>

#include <httpd.h>
#include <http_config.h>
#include <http_protocol.h>
#include <http_request.h>
#include <util_filter.h>

static void read_block(request_rec *r, long most)
{
    char buffer[4096];
    long len;

    if (ap_setup_client_block(r, REQUEST_CHUNKED_DECHUNK) != OK || !ap_should_client_block(r)) {
        return;
    }
    while (most > 0 && (len = ap_get_client_block(r, buffer, most < 4096 ? (apr_size_t)most : sizeof(buffer))) > 0) {
        most -= len;
    }
}

static void read_brigade(request_rec *r, ap_filter_t *from, ap_input_mode_t mode, long most)
{
    apr_bucket_brigade *bb = apr_brigade_create(r->pool, r->connection->bucket_alloc);
    int ended = 0;

    while (most > 0 && !ended && ap_get_brigade(from, bb, mode, APR_BLOCK_READ, most < 8192 ? most : 8192) == APR_SUCCESS) {
        apr_off_t len = 0;

        ended = APR_BRIGADE_EMPTY(bb) || APR_BUCKET_IS_EOS(APR_BRIGADE_LAST(bb)) || mode == AP_MODE_SPECULATIVE;
        apr_brigade_length(bb, 1, &len);
        most = mode == AP_MODE_GETLINE ? most - 1 : most - (long)len;
        apr_brigade_cleanup(bb);
    }
}

static int taste(request_rec *r, const char *hook)
{
    const char *asked = apr_table_get(r->headers_in, "X-Taste");
    char where[16];
    char how[16];
    long most;

    if (r->main || r->prev || !asked || sscanf(asked, "%15s %15s %ld", where, how, &most) != 3 || strcmp(where, hook)) {
        return DECLINED;
    }
    if (!strcmp(how, "block")) {
        read_block(r, most);
        return DECLINED;
    }
    read_brigade(r, strcmp(how, "below") ? r->input_filters : r->proto_input_filters,
                 !strcmp(how, "line") ? AP_MODE_GETLINE : !strcmp(how, "look") ? AP_MODE_SPECULATIVE : AP_MODE_READBYTES, most);
    return DECLINED;
}

static int at_post_read(request_rec *r)
{
    return taste(r, "post_read");
}

static int at_access(request_rec *r)
{
    return taste(r, "access");
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_post_read_request(at_post_read, NULL, NULL, APR_HOOK_LAST);
    ap_hook_check_access(at_access, NULL, NULL, APR_HOOK_MIDDLE, AP_AUTH_INTERNAL_PER_URI);
}

AP_DECLARE_MODULE(taster) = {STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL, register_hooks, AP_MODULE_FLAG_NONE};
