#include "httpd/child/cache.h"

#include <sched.h>

#include <apr_cstr.h>
#include <apr_global_mutex.h>
#include <apr_strings.h>
#include <ap_provider.h>
#include <ap_socache.h>
#include <http_core.h>
#include <http_log.h>
#include <util_mutex.h>

#include "httpd/setup/config.h"
#include "httpd/setup/directives.h"
#include "httpd/logging.h"
#include "httpd/setup/values.h"

APLOG_USE_MODULE(idempotency);

#define PROVIDER     "shmcb"
#define MUTEX        "idempotency-replay"
#define DEFAULT_SIZE (8 * 1024 * 1024)
#define SMALLEST     (64 * 1024)
#define LARGEST      (63 * 1024 * 1024) /* shmcb takes less than 64 MiB */
#define MOST_OCTETS  (64 * 1024)        /* of an entry: what is copied while everybody else is kept out */
#define MOST_SHARE   32                 /* an entry may have this part of the whole: shmcb keeps several rings of it */
#define USUAL_ENTRY  2048
#define MOST_TRIES   200                /* the lock is held while an entry is copied: microseconds */

struct idem_cache_t {
    const ap_socache_provider_t *provider; /* NULL: None */
    ap_socache_instance_t *instance;
    apr_off_t size;
    const ap_directive_t *directive; /* NULL: nobody asked for it */
    apr_global_mutex_t *mutex;       /* NULL: the provider needs none */
    int ready;
    server_rec *server;
};

/* Takes PATH(SIZE) apart. Both may be left out. NULL, or what is wrong. */
static const char *read_place(apr_pool_t *p, const char *text, const char **path, apr_off_t *size)
{
    const char *open = strchr(text, '(');
    apr_size_t len = strlen(text);
    const char *number;

    *path = open ? apr_pstrmemdup(p, text, (apr_size_t)(open - text)) : text;
    *size = DEFAULT_SIZE;
    if (!open) {
        return NULL;
    }
    if (text[len - 1] != ')') {
        return "takes shmcb:PATH(SIZE), with the bracket closed";
    }
    number = apr_pstrmemdup(p, open + 1, (apr_size_t)(text + len - 1 - (open + 1)));
    if (!idem_values_size(number, size) || *size < SMALLEST || *size > LARGEST) {
        return apr_psprintf(p, "'%s' is not a size between 64K and 63M", number);
    }
    return NULL;
}

/* Makes the provider's instance. NULL, or what is wrong. */
static const char *create(idem_cache_t *cache, const char *path, apr_off_t size, apr_pool_t *tmp, apr_pool_t *p)
{
    const char *place = *path ? path : ap_runtime_dir_relative(tmp, MUTEX);

    cache->size = size;
    return cache->provider->create(&cache->instance, apr_psprintf(tmp, "%s(%" APR_OFF_T_FMT ")", place, size), tmp, p);
}

static const ap_socache_provider_t *look_up(void)
{
    return ap_lookup_provider(AP_SOCACHE_PROVIDER_GROUP, PROVIDER, AP_SOCACHE_PROVIDER_VERSION);
}

const char *idem_cache_set(cmd_parms *cmd, void *conf, const char *text)
{
    idem_cache_t *cache = apr_pcalloc(cmd->pool, sizeof(*cache));
    apr_size_t named = strcspn(text, ":");
    const char *path;
    const char *fault;
    apr_off_t size;

    (void)conf;
    cache->directive = cmd->directive;
    idem_config_server(cmd->server)->cache = cache;
    if (!apr_cstr_casecmp(text, "None")) {
        return NULL;
    }
    if (named != strlen(PROVIDER) || apr_cstr_casecmpn(text, PROVIDER, named)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is none of shmcb:PATH(SIZE) and None: only memory of this "
                                                "machine is asked without a wait", text));
    }
    cache->provider = look_up();
    if (!cache->provider) {
        return idem_set_fault(cmd, "mod_socache_shmcb is not loaded");
    }
    fault = read_place(cmd->pool, text[named] ? text + named + 1 : "", &path, &size);
    fault = fault ? fault : create(cache, path, size, cmd->temp_pool, cmd->pool);
    return fault ? idem_set_fault(cmd, fault) : NULL;
}

int idem_cache_pre_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp)
{
    (void)plog;
    (void)ptemp;
    return ap_mutex_register(pconf, MUTEX, NULL, APR_LOCK_DEFAULT, 0) == APR_SUCCESS ? OK : HTTP_INTERNAL_SERVER_ERROR;
}

static apr_status_t destroy(void *data)
{
    idem_cache_t *cache = data;

    cache->provider->destroy(cache->instance, cache->server);
    return APR_SUCCESS;
}

/* Once for each cache: servers that inherit one share it. */
static apr_status_t open_cache(idem_cache_t *cache, server_rec *s, apr_pool_t *pconf)
{
    static const struct ap_socache_hints hints = {IDEM_SHA256_LEN, USUAL_ENTRY, apr_time_from_sec(30)};
    apr_status_t rv = APR_SUCCESS;

    if (cache->ready) {
        return APR_SUCCESS;
    }
    cache->server = s;
    if (cache->provider->flags & AP_SOCACHE_FLAG_NOTMPSAFE) {
        rv = ap_global_mutex_create(&cache->mutex, NULL, MUTEX, NULL, s, pconf, 0);
    }
    if (rv == APR_SUCCESS) {
        rv = cache->provider->init(cache->instance, MUTEX, &hints, s, pconf);
    }
    if (rv == APR_SUCCESS) {
        cache->ready = 1;
        apr_pool_cleanup_register(pconf, cache, destroy, apr_pool_cleanup_null);
    }
    return rv;
}

/* What a server has that says nothing, where it is to be had. */
static idem_cache_t *by_default(server_rec *main_server, apr_pool_t *pconf, apr_pool_t *ptemp)
{
    idem_cache_t *cache = apr_pcalloc(pconf, sizeof(*cache));

    cache->provider = look_up();
    if (!cache->provider) {
        ap_log_error(APLOG_MARK, APLOG_INFO, 0, main_server,
                     IDEM_LOG("2201") "no replay cache, as mod_socache_shmcb is not loaded: the registry is asked for every "
                     "replay");
    }
    else if (create(cache, "", DEFAULT_SIZE, ptemp, pconf)) {
        cache->provider = NULL;
    }
    return cache;
}

int idem_cache_start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server)
{
    idem_cache_t *common = NULL;
    server_rec *s;

    (void)plog;
    if (ap_state_query(AP_SQ_MAIN_STATE) == AP_SQ_MS_CREATE_PRE_CONFIG) {
        return OK; /* the configuration is read once more */
    }
    for (s = main_server; s; s = s->next) {
        idem_server_t *conf = idem_config_server(s);
        idem_cache_t *cache = conf->cache;
        apr_status_t rv;

        conf->cache = NULL;
        if (!conf->has_routes) {
            continue;
        }
        if (!cache) {
            cache = common = common ? common : by_default(main_server, pconf, ptemp);
        }
        if (!cache->provider) {
            continue;
        }
        rv = open_cache(cache, s, pconf);
        if (rv != APR_SUCCESS && cache->directive) {
            ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, rv, s, IDEM_LOG("2202") "%s:%d: IdempotencyReplayCache: no "
                         "shared memory, or no lock, for it", cache->directive->filename, cache->directive->line_num);
            return HTTP_INTERNAL_SERVER_ERROR;
        }
        if (rv != APR_SUCCESS) {
            ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_WARNING, rv, s, IDEM_LOG("2203") "no replay cache, as there is no "
                         "shared memory, or no lock, for it: the registry is asked for every replay");
            cache->provider = NULL;
            continue;
        }
        conf->cache = cache;
        idem_sha256_strings((const char *const[]){IDEM_CONTRACT_NAME, conf->dbd.params}, 2, conf->registry_digest);
    }
    idem_digest_forget();
    return OK;
}

void idem_cache_child_init(apr_pool_t *pchild, server_rec *main_server)
{
    server_rec *s;

    for (s = main_server; s; s = s->next) {
        idem_cache_t *cache = idem_config_server(s)->cache;
        apr_status_t rv;

        if (!cache || !cache->mutex || cache->ready > 1) {
            continue;
        }
        cache->ready = 2; /* in this child */
        rv = apr_global_mutex_child_init(&cache->mutex, apr_global_mutex_lockfile(cache->mutex), pchild);
        if (rv != APR_SUCCESS) {
            cache->ready = 0;
            ap_log_error(APLOG_MARK, APLOG_WARNING, rv, s, IDEM_LOG("2204") "no lock for the replay cache in this child: it "
                         "asks the registry for every replay");
        }
    }
}

apr_size_t idem_cache_most(const idem_cache_t *cache)
{
    apr_size_t share = (apr_size_t)cache->size / MOST_SHARE;

    return share < MOST_OCTETS ? share : MOST_OCTETS;
}

/* 1 where the lock is ours, or none is needed. Whoever has it is copying; one that was stopped in the middle keeps it. */
static int enter(idem_cache_t *cache)
{
    int tries;

    for (tries = 0; cache->ready && tries < MOST_TRIES; tries++) {
        apr_status_t rv = cache->mutex ? apr_global_mutex_trylock(cache->mutex) : APR_SUCCESS;

        if (rv == APR_SUCCESS) {
            return 1;
        }
        if (!APR_STATUS_IS_EBUSY(rv)) {
            return 0;
        }
        sched_yield();
    }
    return 0;
}

static void leave(idem_cache_t *cache)
{
    if (cache->mutex) {
        apr_global_mutex_unlock(cache->mutex);
    }
}

apr_size_t idem_cache_get(idem_cache_t *cache, request_rec *r, const unsigned char id[IDEM_SHA256_LEN], unsigned char *room)
{
    unsigned int len = (unsigned int)idem_cache_most(cache);
    apr_status_t rv;

    if (!enter(cache)) {
        return 0;
    }
    rv = cache->provider->retrieve(cache->instance, r->server, id, IDEM_SHA256_LEN, room, &len, r->pool);
    leave(cache);
    return rv == APR_SUCCESS ? len : 0;
}

void idem_cache_put(idem_cache_t *cache, request_rec *r, const unsigned char id[IDEM_SHA256_LEN], unsigned char *octets,
                    apr_size_t len, apr_interval_time_t lives)
{
    apr_status_t rv;

    if (!enter(cache)) {
        return;
    }
    rv = cache->provider->store(cache->instance, r->server, id, IDEM_SHA256_LEN, apr_time_now() + lives, octets,
                                (unsigned int)len, r->pool);
    leave(cache);
    if (rv != APR_SUCCESS) {
        ap_log_rerror(APLOG_MARK, APLOG_DEBUG, rv, r, IDEM_LOG("2205") "the replay cache did not take an answer");
    }
}
