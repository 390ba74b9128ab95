#include "httpd/setup/config.h"

#include <string.h>

#include <apr_strings.h>

#include "core/scope.h"

#define DEFAULT_LEASE         apr_time_from_sec(60)
#define DEFAULT_MAX_RUN       apr_time_from_sec(3600)
#define DEFAULT_QUIET         apr_time_from_sec(900)
#define DEFAULT_BUDGET        apr_time_from_msec(200)
#define DEFAULT_OBJECTIVE     apr_time_from_sec(15 * 60)
#define DEFAULT_RETENTION     apr_time_from_sec(24 * 3600)
#define DEFAULT_TOMBSTONE     apr_time_from_sec(APR_INT64_C(30) * 24 * 3600)
#define DEFAULT_STORE_TIMEOUT apr_time_from_sec(2)
#define DEFAULT_MAX_BODY      (8 * 1024 * 1024)
#define DEFAULT_BODY_MEMORY   (256 * 1024)
#define DEFAULT_MAX_SNAPSHOT  (1024 * 1024)
#define KEY_MAX               255
#define KEY_MIN_STRICT        16

/* A section that says nothing. */
static const idem_dir_t unset_dir = {
    .no_identity = IDEM_UNSET, .mode = IDEM_UNSET, .key_required = IDEM_UNSET, .key_syntax = IDEM_UNSET,
    .key_min = IDEM_UNSET, .key_max = IDEM_UNSET, .payload_mode = IDEM_UNSET, .bind_host = IDEM_UNSET,
    .query = IDEM_UNSET, .max_body = IDEM_UNSET, .body_memory = IDEM_UNSET, .max_snapshot = IDEM_UNSET,
    .snapshot_body = IDEM_UNSET, .error_member = IDEM_UNSET, .forward_key = IDEM_UNSET, .quota_live = IDEM_UNSET,
    .quota_inflight = IDEM_UNSET, .retention = IDEM_UNSET, .tombstone = IDEM_UNSET, .reuse = IDEM_UNSET,
    .effect = IDEM_UNSET, .dispatch_mark = IDEM_UNSET, .wait = IDEM_UNSET, .lease = IDEM_UNSET, .max_run = IDEM_UNSET,
    .quiet = IDEM_UNSET, .latency_budget = IDEM_UNSET, .recovery_objective = IDEM_UNSET,
};

void *idem_config_create_dir(apr_pool_t *p, char *dir)
{
    (void)dir;
    return apr_pmemdup(p, &unset_dir, sizeof(unset_dir));
}

int idem_config_trusts(const idem_dir_t *conf, const char *name)
{
    const apr_array_header_t *names = conf->trust_env;
    int i;

    for (i = 0; names && i < names->nelts; i++) {
        if (!strcmp(name, APR_ARRAY_IDX(names, i, const char *))) {
            return 1;
        }
    }
    return 0;
}

void idem_config_weigh(idem_dir_t *conf)
{
    const apr_array_header_t *const lists[] = {conf->tenant, conf->principal, conf->former_tenant, conf->former_principal};
    size_t l;
    int i;

    conf->asks_environment = 0;
    for (l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
        for (i = 0; lists[l] && i < lists[l]->nelts; i++) {
            const idem_source_t *source = &APR_ARRAY_IDX(lists[l], i, idem_source_t);

            conf->asks_environment |= source->kind == IDEM_SOURCE_ENV && !idem_config_trusts(conf, source->argument);
        }
    }
}

#define MERGE_NUMBER(field)  merged->field = in->field != IDEM_UNSET ? in->field : out->field
#define MERGE_POINTER(field) merged->field = in->field ? in->field : out->field

void *idem_config_merge_dir(apr_pool_t *p, void *outer, void *inner)
{
    const idem_dir_t *out = outer;
    const idem_dir_t *in = inner;
    idem_dir_t *merged;

    /* sections are merged for every request, and usually only one of them says anything */
    if (!memcmp(out, &unset_dir, sizeof(*out))) {
        return inner;
    }
    if (!memcmp(in, &unset_dir, sizeof(*in))) {
        return outer;
    }
    merged = apr_pcalloc(p, sizeof(*merged));
    MERGE_POINTER(route);
    MERGE_POINTER(tenant);
    MERGE_POINTER(principal);
    MERGE_POINTER(principal_directive);
    MERGE_POINTER(scope_version);
    MERGE_POINTER(former_tenant);
    MERGE_POINTER(former_principal);
    MERGE_POINTER(trust_env);
    MERGE_NUMBER(no_identity);
    MERGE_NUMBER(mode);
    MERGE_NUMBER(key_required);
    MERGE_NUMBER(key_syntax);
    MERGE_NUMBER(key_min);
    MERGE_NUMBER(key_max);
    MERGE_POINTER(key_header);
    MERGE_POINTER(key_pattern);
    MERGE_POINTER(key_pattern_text);
    MERGE_POINTER(server_key);
    MERGE_NUMBER(payload_mode);
    MERGE_POINTER(contracts);
    MERGE_NUMBER(bind_host);
    MERGE_NUMBER(query);
    MERGE_POINTER(query_names);
    MERGE_POINTER(bound_headers);
    MERGE_NUMBER(max_body);
    MERGE_NUMBER(body_memory);
    MERGE_NUMBER(max_snapshot);
    MERGE_NUMBER(snapshot_body);
    MERGE_POINTER(snapshot_headers);
    MERGE_POINTER(replayed_header);
    MERGE_POINTER(status_path);
    MERGE_NUMBER(error_member);
    MERGE_NUMBER(forward_key);
    MERGE_NUMBER(quota_live);
    MERGE_NUMBER(quota_inflight);
    MERGE_NUMBER(retention);
    MERGE_NUMBER(tombstone);
    MERGE_NUMBER(reuse);
    MERGE_NUMBER(effect);
    MERGE_NUMBER(dispatch_mark);
    MERGE_NUMBER(wait);
    MERGE_NUMBER(lease);
    MERGE_NUMBER(max_run);
    MERGE_NUMBER(quiet);
    MERGE_NUMBER(latency_budget);
    MERGE_NUMBER(recovery_objective);
    idem_config_weigh(merged);
    /* the one list that adds up: an inner section's rules come first, the outer's stay behind them */
    merged->outcomes = !in->outcomes    ? out->outcomes
                       : !out->outcomes ? in->outcomes
                                        : apr_array_append(p, in->outcomes, out->outcomes);
    return merged;
}

void *idem_config_create_server(apr_pool_t *p, server_rec *s)
{
    idem_server_t *conf = apr_pcalloc(p, sizeof(*conf));

    (void)s;
    conf->store_timeout = IDEM_UNSET;
    conf->store_prepare = IDEM_UNSET;
    conf->store_failure = IDEM_UNSET;
    conf->store_writers = IDEM_UNSET;
    conf->writer_epoch = IDEM_UNSET;
    return conf;
}

void *idem_config_merge_server(apr_pool_t *p, void *outer, void *inner)
{
    const idem_server_t *out = outer;
    const idem_server_t *in = inner;
    idem_server_t *merged = apr_pcalloc(p, sizeof(*merged));

    MERGE_POINTER(store_server);
    MERGE_POINTER(store_directive);
    MERGE_NUMBER(store_timeout);
    MERGE_NUMBER(store_prepare);
    MERGE_NUMBER(store_failure);
    MERGE_NUMBER(store_writers);
    MERGE_POINTER(writers_directive);
    MERGE_NUMBER(writer_epoch);
    MERGE_POINTER(docs);
    MERGE_POINTER(journal);
    MERGE_POINTER(journal_directive);
    MERGE_POINTER(cache);
    merged->shortest_lease = in->shortest_lease;
    if (!merged->shortest_lease || (out->shortest_lease && out->shortest_lease < merged->shortest_lease)) {
        merged->shortest_lease = out->shortest_lease;
    }
    return merged;
}

const idem_dir_t *idem_config_dir(const request_rec *r)
{
    return ap_get_module_config(r->per_dir_config, &idempotency_module);
}

idem_server_t *idem_config_server(const server_rec *s)
{
    return ap_get_module_config(s->module_config, &idempotency_module);
}

/* Lists that stand in for what was not said: of this file's, so that no request makes them anew. Nobody adds to them. */
static const char *const override_names[] = {"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"};
static const apr_array_header_t overrides = {NULL, sizeof(const char *), 3, 3, (char *)override_names};
static const apr_array_header_t nothing = {NULL, sizeof(const char *), 0, 0, NULL};

#define DEFAULT_NUMBER(field, value)  conf->field = conf->field != IDEM_UNSET ? conf->field : (value)
#define DEFAULT_POINTER(field, value) conf->field = conf->field ? conf->field : (value)

const idem_dir_t *idem_config_resolve(apr_pool_t *p, const idem_dir_t *unset)
{
    idem_dir_t *conf = apr_pmemdup(p, unset, sizeof(*conf));

    DEFAULT_NUMBER(mode, IDEM_MODE_ENFORCE);
    DEFAULT_NUMBER(no_identity, IDEM_NO_IDENTITY_REJECT);
    DEFAULT_NUMBER(key_required, conf->route && conf->route->kind == IDEM_ROUTE_NAMED);
    DEFAULT_NUMBER(key_syntax, IDEM_KEY_LENIENT);
    DEFAULT_NUMBER(key_min, conf->key_syntax == IDEM_KEY_STRICT ? KEY_MIN_STRICT : 1);
    DEFAULT_NUMBER(key_max, KEY_MAX);
    DEFAULT_POINTER(key_header, IDEM_KEY_FIELD);
    /* a contract is about JSON: it needs no mode beside it, and none that cannot read JSON */
    if (conf->contracts && conf->contracts->nelts && conf->payload_mode != IDEM_PAYLOAD_JCS) {
        conf->payload_mode = IDEM_PAYLOAD_JSON;
    }
    DEFAULT_NUMBER(payload_mode, IDEM_PAYLOAD_RAW);
    DEFAULT_NUMBER(bind_host, 1);
    DEFAULT_NUMBER(query, IDEM_QUERY_ALL);
    DEFAULT_POINTER(bound_headers, &overrides);
    DEFAULT_NUMBER(max_body, DEFAULT_MAX_BODY);
    DEFAULT_NUMBER(body_memory, DEFAULT_BODY_MEMORY);
    DEFAULT_NUMBER(max_snapshot, DEFAULT_MAX_SNAPSHOT);
    DEFAULT_NUMBER(snapshot_body, 1);
    DEFAULT_POINTER(replayed_header, "Idempotency-Replayed");
    DEFAULT_NUMBER(error_member, 1);
    DEFAULT_NUMBER(forward_key, 1);
    DEFAULT_POINTER(outcomes, &nothing);
    DEFAULT_POINTER(scope_version, IDEM_SCOPE_VERSION);
    DEFAULT_NUMBER(quota_live, 0);
    DEFAULT_NUMBER(quota_inflight, 0);
    DEFAULT_NUMBER(retention, DEFAULT_RETENTION);
    DEFAULT_NUMBER(tombstone, DEFAULT_TOMBSTONE);
    DEFAULT_NUMBER(reuse, IDEM_REUSE_REFUSE);
    DEFAULT_NUMBER(effect, IDEM_EFFECT_EXTERNAL);
    DEFAULT_NUMBER(dispatch_mark, 0);
    DEFAULT_NUMBER(wait, 0);
    DEFAULT_NUMBER(lease, DEFAULT_LEASE);
    DEFAULT_NUMBER(max_run, DEFAULT_MAX_RUN);
    DEFAULT_NUMBER(quiet, DEFAULT_QUIET);
    DEFAULT_NUMBER(latency_budget, DEFAULT_BUDGET);
    DEFAULT_NUMBER(recovery_objective, DEFAULT_OBJECTIVE);
    return conf;
}

apr_interval_time_t idem_config_timeout(const idem_server_t *conf)
{
    return conf->store_timeout != IDEM_UNSET ? conf->store_timeout : DEFAULT_STORE_TIMEOUT;
}

void idem_config_recipe(const idem_dir_t *conf, idem_recipe_t *recipe)
{
    recipe->mode = (idem_payload_mode_e)conf->payload_mode;
    recipe->host = conf->bind_host;
    recipe->query = (idem_query_e)conf->query;
    recipe->query_names = conf->query_names;
    recipe->headers = conf->bound_headers;
    recipe->schema = "";
}
