#include "httpd/pages/policy.h"

#include <apr_strings.h>
#include <http_core.h>
#include <http_protocol.h>

#include "core/problem.h"
#include "httpd/pages/page.h"
#include "httpd/setup/sections.h"

#define HANDLER "idempotency-policy"

static const char *const payload_modes[] = {"raw", "json", "jcs", "form", "multipart"};
static const char *const modes[] = {"off", "enforced", "replays only", "watched only"};

static const char *duration(apr_pool_t *p, apr_interval_time_t value)
{
    apr_int64_t seconds = apr_time_sec(value);

    return seconds && seconds % 86400 == 0  ? apr_psprintf(p, "%" APR_INT64_T_FMT "d", seconds / 86400)
           : seconds && seconds % 3600 == 0 ? apr_psprintf(p, "%" APR_INT64_T_FMT "h", seconds / 3600)
           : seconds && seconds % 60 == 0   ? apr_psprintf(p, "%" APR_INT64_T_FMT "m", seconds / 60)
                                            : apr_psprintf(p, "%" APR_INT64_T_FMT "s", seconds);
}

static const char *list(apr_pool_t *p, const apr_array_header_t *words)
{
    return words && words->nelts ? apr_array_pstrcat(p, words, ' ') : "";
}

/* One line of the policy: a name and a value, for both forms of the page. */
typedef struct line_t {
    const char *name;
    const char *value;
} line_t;

#define LINES 13

typedef struct description_t {
    line_t lines[LINES];
} description_t;

static void describe(apr_pool_t *p, const idem_section_t *section, const idem_dir_t *conf, line_t lines[LINES])
{
    const char *query = conf->query == IDEM_QUERY_ALL    ? "all"
                        : conf->query == IDEM_QUERY_NONE ? "none"
                                                         : list(p, conf->query_names);
    line_t all[LINES] = {
        {"path", section->shown},
        {"route", conf->route->name},
        {"revision", conf->route->revision},
        {"methods", list(p, conf->route->methods)},
        {"mode", modes[conf->mode]},
        {"key_header", conf->key_header},
        {"key_required", conf->key_required ? "yes" : "no"},
        {"key_syntax", apr_psprintf(p, "%s, %d to %d octets%s%s", conf->key_syntax == IDEM_KEY_STRICT ? "strict" : "lenient",
                                    (int)conf->key_min, (int)conf->key_max, conf->key_pattern_text ? ", matching " : "",
                                    conf->key_pattern_text ? conf->key_pattern_text : "")},
        {"fingerprint", apr_psprintf(p, "method, %spath, query (%s), media type, payload (%s)%s%s",
                                     conf->bind_host ? "host, " : "", query, payload_modes[conf->payload_mode],
                                     conf->bound_headers->nelts ? ", headers " : "", list(p, conf->bound_headers))},
        {"largest_request", apr_psprintf(p, "%" APR_OFF_T_FMT " octets", conf->max_body)},
        {"largest_replay", apr_psprintf(p, "%" APR_OFF_T_FMT " octets", conf->snapshot_body ? conf->max_snapshot : 0)},
        {"retention", duration(p, conf->retention)},
        {"reuse", conf->reuse == IDEM_REUSE_ALLOW
                      ? apr_psprintf(p, "after another %s", duration(p, conf->tombstone))
                      : "never: an expired key is refused"},
    };

    memcpy(lines, all, sizeof(all));
}

/* The routes of this server, each as it stands with the server's own defaults around it. */
static apr_array_header_t *routes_of(request_rec *r)
{
    const apr_array_header_t *sections = idem_sections_of(r->pool, r->server);
    apr_array_header_t *routes = apr_array_make(r->pool, 8, sizeof(description_t));
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        if (section->conf->route && section->conf->route->kind != IDEM_ROUTE_NONE) {
            describe(r->pool, section, idem_sections_resolve(r->pool, sections, section),
                     ((description_t *)apr_array_push(routes))->lines);
        }
    }
    return routes;
}

static int send_json(request_rec *r, const apr_array_header_t *routes)
{
    yajl_gen gen = yajl_gen_alloc(NULL);
    const char *docs = idem_config_server(r->server)->docs;
    int i;
    int n;

    yajl_gen_map_open(gen);
    idem_page_string(gen, "contract");
    idem_page_string(gen, IDEM_CONTRACT_NAME);
    idem_page_string(gen, "routes");
    yajl_gen_array_open(gen);
    for (i = 0; i < routes->nelts; i++) {
        const line_t *lines = APR_ARRAY_IDX(routes, i, description_t).lines;

        yajl_gen_map_open(gen);
        for (n = 0; n < LINES; n++) {
            idem_page_string(gen, lines[n].name);
            idem_page_string(gen, lines[n].value);
        }
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
    idem_page_string(gen, "problems");
    yajl_gen_array_open(gen);
    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_type_t *type = idem_problem_type((idem_problem_e)i);

        yajl_gen_map_open(gen);
        idem_page_string(gen, "type");
        idem_page_string(gen, idem_problem_type_uri(r->pool, (idem_problem_e)i, docs));
        idem_page_string(gen, "status");
        yajl_gen_integer(gen, type->status);
        idem_page_string(gen, "retry");
        idem_page_string(gen, type->retry);
        idem_page_string(gen, "title");
        idem_page_string(gen, type->title);
        yajl_gen_map_close(gen);
    }
    yajl_gen_array_close(gen);
    yajl_gen_map_close(gen);
    return idem_page_send_json(r, gen, HTTP_OK);
}

static const char style[] =
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%;margin:0 0 1.5rem}th,td{text-align:left;vertical-align:top;padding:.25rem .5rem;"
    "border-bottom:1px solid #ddd;overflow-wrap:anywhere}th{width:10rem;font-weight:600}h2{margin:2rem 0 .5rem}"
    "code{background:#f2f2f2;padding:0 .2rem}";

static const char introduction[] =
    "<p>Send a key of your own with a request that must happen once. Send the same request with the same key again, as "
    "often as you like: it runs once, and every retry gets the first answer, marked by "
    "<code>Idempotency-Replayed: true</code>. A key that comes back with another request is refused. Keys belong to the "
    "caller who sent them; two callers never meet in one.</p>";

static int send_html(request_rec *r, const apr_array_header_t *routes)
{
    apr_array_header_t *out = apr_array_make(r->pool, 64, sizeof(const char *));
    const char *page;
    int i;
    int n;

#define PUT(text) APR_ARRAY_PUSH(out, const char *) = (text)
    PUT(apr_pstrcat(r->pool, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                             "<link rel=\"icon\" href=\"data:,\"><title>Idempotency keys</title><style>", style, "</style></head><body>\n"
                             "<h1>Idempotency keys</h1>\n", introduction, "\n", NULL));
    for (i = 0; i < routes->nelts; i++) {
        const line_t *lines = APR_ARRAY_IDX(routes, i, description_t).lines;

        PUT(apr_pstrcat(r->pool, "<h2>", ap_escape_html(r->pool, lines[1].value), "</h2>\n<table>", NULL));
        for (n = 0; n < LINES; n++) {
            PUT(apr_pstrcat(r->pool, "<tr><th>", lines[n].name, "</th><td>", ap_escape_html(r->pool, lines[n].value),
                            "</td></tr>\n", NULL));
        }
        PUT("</table>\n");
    }
    PUT("<h2>Problems</h2>\n");
    for (i = 0; i < IDEM_PROBLEM_COUNT; i++) {
        const idem_problem_type_t *type = idem_problem_type((idem_problem_e)i);

        PUT(apr_psprintf(r->pool, "<h3 id=\"%s\">%s</h3>\n<p>Status %d, retry: %s. %s</p>\n", type->slug,
                         ap_escape_html(r->pool, type->title), type->status, type->retry,
                         ap_escape_html(r->pool, type->detail)));
    }
    PUT("</body></html>\n");
    page = apr_array_pstrcat(r->pool, out, 0);
    return idem_page_send(r, "text/html; charset=utf-8", page, strlen(page));
}

int idem_policy_handler(request_rec *r)
{
    apr_array_header_t *routes;
    int status = idem_page_begin(r, HANDLER, AP_METHOD_BIT << M_GET);

    if (status != OK) {
        return status;
    }
    routes = routes_of(r);
    apr_table_mergen(r->headers_out, "Vary", "Accept");
    return idem_page_wants_json(r) ? send_json(r, routes) : send_html(r, routes);
}
