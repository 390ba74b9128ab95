#include "httpd/setup/announce.h"

#include <stdlib.h>
#include <string.h>

#include <apr_strings.h>
#include <http_log.h>

#include "httpd/logging.h"

APLOG_USE_MODULE(idempotency);

#define MOST_COUNTED 10000
#define UNPROTECTED  "; not protected"
#define FIELD(name) APR_OFFSETOF(idem_dir_t, name)
#define LIST(conf, field) (*(const apr_array_header_t *const *)((const char *)(conf) + (field)))

static const char *words_of(apr_pool_t *p, const char *name, const apr_array_header_t *sources)
{
    const char *words = name;
    int i;

    for (i = 0; sources && i < sources->nelts; i++) {
        words = apr_pstrcat(p, words, " ", APR_ARRAY_IDX(sources, i, idem_source_t).text, NULL);
    }
    return words;
}

static const char *sentence(apr_pool_t *p, const apr_array_header_t *tenant, const apr_array_header_t *principal)
{
    return apr_pstrcat(p, words_of(p, "tenant", tenant), "; ", words_of(p, "principal", principal), NULL);
}

/* What a section says, or else the last of those around it that says it. */
static const apr_array_header_t *sources_of(const apr_array_header_t *sections, const idem_section_t *own, apr_size_t field)
{
    const apr_array_header_t *found = LIST(own->conf, field);
    int i;

    for (i = 0; !found && i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        if (idem_section_may_merge(section, own)) {
            found = LIST(section->conf, field);
        }
    }
    return found;
}

/* Off or Shadow, by what the section says or the last of those around it. */
static int is_unprotected(const apr_array_header_t *sections, const idem_section_t *own)
{
    int mode = own->conf->mode;
    int i;

    for (i = 0; mode == IDEM_UNSET && i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        if (idem_section_may_merge(section, own)) {
            mode = section->conf->mode;
        }
    }
    return mode == IDEM_MODE_OFF || mode == IDEM_MODE_SHADOW;
}

static int by_name(const void *a, const void *b)
{
    const idem_announced_t *one = a;
    const idem_announced_t *two = b;
    int order = strcmp(one->route, two->route);

    order = order ? order : strcmp(one->revision, two->revision);
    return order ? order : strcmp(one->sources, two->sources);
}

/*
 * A route that several sections bind (one for each shop, say) has all their sources: one line, whatever the order of
 * the sections, or they would seem to change each other's.
 */
static apr_array_header_t *join_equal(apr_pool_t *p, apr_array_header_t *routes)
{
    apr_array_header_t *joined = apr_array_make(p, 8, sizeof(idem_announced_t));
    const char *last_sources = NULL;
    int i;

    if (routes->nelts) {
        qsort(routes->elts, (size_t)routes->nelts, sizeof(idem_announced_t), by_name);
    }
    for (i = 0; i < routes->nelts; i++) {
        const idem_announced_t *next = &APR_ARRAY_IDX(routes, i, idem_announced_t);
        idem_announced_t *last = joined->nelts ? &APR_ARRAY_IDX(joined, joined->nelts - 1, idem_announced_t) : NULL;

        if (!last || strcmp(last->route, next->route) || strcmp(last->revision, next->revision)) {
            APR_ARRAY_PUSH(joined, idem_announced_t) = *next;
        }
        else if (strcmp(last_sources, next->sources)) {
            last->sources = apr_pstrcat(p, last->sources, " | ", next->sources, NULL);
        }
        last_sources = next->sources;
    }
    return joined;
}

apr_array_header_t *idem_announce_collect(apr_pool_t *pconf, const apr_array_header_t *sections)
{
    apr_array_header_t *routes = apr_array_make(pconf, 8, sizeof(idem_announced_t));
    int i;

    for (i = 0; i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);
        const idem_route_t *route = section->conf->route;
        const apr_array_header_t *tenant;
        const apr_array_header_t *principal;
        const apr_array_header_t *former_tenant;
        const apr_array_header_t *former_principal;
        idem_announced_t *announced;

        if (!route || route->kind != IDEM_ROUTE_NAMED || strstr(route->name, "%{")) {
            continue;
        }
        announced = apr_array_push(routes);
        announced->route = route->name;
        announced->revision = route->revision;
        tenant = sources_of(sections, section, FIELD(tenant));
        principal = sources_of(sections, section, FIELD(principal));
        announced->sources = sentence(pconf, tenant, principal);
        announced->unprotected = is_unprotected(sections, section);
        if (announced->unprotected) {
            announced->sources = apr_pstrcat(pconf, announced->sources, UNPROTECTED, NULL);
        }
        former_tenant = sources_of(sections, section, FIELD(former_tenant));
        former_principal = sources_of(sections, section, FIELD(former_principal));
        announced->former = former_tenant || former_principal
                                ? sentence(pconf, former_tenant ? former_tenant : tenant,
                                           former_principal ? former_principal : principal)
                                : NULL;
    }
    return join_equal(pconf, routes);
}

int idem_announce_needed(const apr_array_header_t *routes)
{
    int i;

    for (i = 0; routes && i < routes->nelts; i++) {
        if (APR_ARRAY_IDX(routes, i, idem_announced_t).unprotected) {
            return 1;
        }
    }
    return 0;
}

/* What a route was made of, without the word on its mode. */
static const char *without_mode(apr_pool_t *p, const char *sources)
{
    apr_size_t len = sources ? strlen(sources) : 0;
    apr_size_t tail = sizeof(UNPROTECTED) - 1;

    return len > tail && !strcmp(sources + len - tail, UNPROTECTED) ? apr_pstrmemdup(p, sources, len - tail) : sources;
}

void idem_announce(idem_store_t *store, const apr_array_header_t *routes, server_rec *s, apr_pool_t *p)
{
    int i;

    for (i = 0; routes && i < routes->nelts; i++) {
        const idem_announced_t *announced = &APR_ARRAY_IDX(routes, i, idem_announced_t);
        const char *before = NULL;
        int live = 0;

        idem_store_result_e result = store->provider->announce(store, s->server_hostname, announced->route,
                                                               announced->revision, announced->sources, MOST_COUNTED,
                                                               &before, &live, apr_time_now() + store->timeout, p);

        if (result == IDEM_STORE_OK && before && announced->unprotected && live) {
            ap_log_error(APLOG_MARK, APLOG_WARNING, 0, s,
                         IDEM_LOG("1402") "IdempotencyRoute %s: its mode is Off or Shadow, and %s%d operations are still "
                         "remembered: their retries may run again", announced->route, live == MOST_COUNTED ? "at least " : "",
                         live);
            continue;
        }
        before = without_mode(p, before);
        if (before && !strcmp(before, without_mode(p, announced->sources))) {
            continue;
        }
        /* by the scope version before they are found */
        if (result == IDEM_STORE_OK && before && (!announced->former || strcmp(before, announced->former))) {
            ap_log_error(APLOG_MARK, APLOG_WARNING, 0, s,
                         IDEM_LOG("1401") "IdempotencyRoute %s: its sources were '%s' and are '%s' now: the retries of %s%d "
                         "operations that are still remembered will not find them and may run again",
                         announced->route, before, announced->sources, live == MOST_COUNTED ? "at least " : "", live);
        }
    }
}
