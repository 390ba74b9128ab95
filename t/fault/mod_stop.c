/*
 * mod_stop - for tests only: a thread of httpd waits at a named point of a request until the test lets it go on or
 * kills the child. The request says where: "X-Stop: POINT TAG". At the point the file TAG is made in the folder
 * IDEM_STOP_DIR (it holds the child's pid), and the thread waits for TAG.go.
 *
 *   redirected a request that mod_rewrite has redirected: mod_idempotency has reserved, and not dispatched
 *   handler   mod_idempotency has reserved and dispatched; no backend has seen the request
 *   answered  the response is held by mod_idempotency up to its last octet, its end has not come
 *   settled   the settlement is in the store, no octet has left
 */
#include <httpd.h>
#include <http_config.h>
#include <http_protocol.h>
#include <http_request.h>
#include <util_filter.h>

#include <apr_strings.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE 12000 /* times 10 ms */

module AP_MODULE_DECLARE_DATA stop_module __attribute__((visibility("default")));

static const char *wanted_tag(request_rec *r, const char *point)
{
    const char *field = apr_table_get(r->headers_in, "X-Stop");
    apr_size_t len = strlen(point);

    return !r->main && field && !strncmp(field, point, len) && field[len] == ' ' ? field + len + 1 : NULL;
}

static void park(request_rec *r, const char *point)
{
    const char *dir = getenv("IDEM_STOP_DIR");
    const char *tag = wanted_tag(r, point);
    const char *path;
    const char *go;
    FILE *mark;
    int i;

    if (!tag || !dir) {
        return;
    }
    path = apr_psprintf(r->pool, "%s/%s", dir, tag);
    go = apr_pstrcat(r->pool, path, ".go", NULL);
    mark = fopen(apr_pstrcat(r->pool, path, ".new", NULL), "w");
    if (mark) {
        fprintf(mark, "%ld\n", (long)getpid());
        fclose(mark);
        rename(apr_pstrcat(r->pool, path, ".new", NULL), path);
    }
    for (i = 0; i < PATIENCE && access(go, F_OK); i++) {
        usleep(10000);
    }
}

static int stop_fixups(request_rec *r)
{
    if (r->prev) {
        park(r, "redirected");
    }
    return DECLINED;
}

static int stop_handler(request_rec *r)
{
    park(r, "handler");
    return DECLINED;
}

/* Passes everything before the end on, waits, and passes the end. */
static apr_status_t answered(ap_filter_t *f, apr_bucket_brigade *bb)
{
    apr_bucket_brigade *rest;
    apr_bucket *e;
    const char *data;
    apr_size_t len;
    apr_status_t rv;

    for (e = APR_BRIGADE_FIRST(bb); e != APR_BRIGADE_SENTINEL(bb) && !APR_BUCKET_IS_EOS(e); e = APR_BUCKET_NEXT(e)) {
        if (!APR_BUCKET_IS_METADATA(e)) {
            rv = apr_bucket_read(e, &data, &len, APR_BLOCK_READ);
            if (rv != APR_SUCCESS) {
                break;
            }
        }
    }
    if (e == APR_BRIGADE_SENTINEL(bb) || !APR_BUCKET_IS_EOS(e)) {
        return ap_pass_brigade(f->next, bb);
    }
    rest = apr_brigade_split(bb, e);
    rv = ap_pass_brigade(f->next, bb);
    park(f->r, "answered");
    return rv == APR_SUCCESS ? ap_pass_brigade(f->next, rest) : rv;
}

static apr_status_t settled(ap_filter_t *f, apr_bucket_brigade *bb)
{
    ap_filter_t *next = f->next;

    park(f->r, "settled");
    ap_remove_output_filter(f);
    return ap_pass_brigade(next, bb);
}

static void insert(request_rec *r)
{
    if (wanted_tag(r, "answered")) {
        ap_add_output_filter("STOP_ANSWERED", NULL, r, r->connection);
    }
    if (wanted_tag(r, "settled")) {
        ap_add_output_filter("STOP_SETTLED", NULL, r, r->connection);
    }
}

static void hooks(apr_pool_t *p)
{
    static const char *const behind[] = {"mod_idempotency.c", NULL};

    (void)p;
    ap_register_output_filter("STOP_ANSWERED", answered, NULL, AP_FTYPE_CONTENT_SET - 4);
    ap_register_output_filter("STOP_SETTLED", settled, NULL, AP_FTYPE_CONTENT_SET - 2);
    ap_hook_insert_filter(insert, behind, NULL, APR_HOOK_MIDDLE);
    ap_hook_fixups(stop_fixups, NULL, NULL, APR_HOOK_LAST);
    ap_hook_handler(stop_handler, behind, NULL, APR_HOOK_REALLY_FIRST);
}

AP_DECLARE_MODULE(stop) = {STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL, hooks, AP_MODULE_FLAG_NONE};
