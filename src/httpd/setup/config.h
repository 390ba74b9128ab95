/*
 * config.h - what an operator wrote: per-server and per-directory configuration, and how sections merge.
 * CONTRACT section 11.
 */
#ifndef IDEM_HTTPD_CONFIG_H
#define IDEM_HTTPD_CONFIG_H

#include <httpd.h>
#include <http_config.h>
#include <ap_expr.h>

#include "core/fingerprint.h"
#include "core/machine.h"
#include "core/pattern.h"
#include "core/sfv.h"
#include "httpd/setup/dbd.h"

/* the one symbol that httpd looks for; everything else stays inside */
extern module AP_MODULE_DECLARE_DATA idempotency_module __attribute__((visibility("default")));

#define IDEM_UNSET (-1)
#define IDEM_KEY_FIELD "Idempotency-Key" /* where IdempotencyKeyHeader says nothing */

typedef enum { IDEM_ROUTE_NAMED, IDEM_ROUTE_AUTO, IDEM_ROUTE_NONE } idem_route_e;

/* IdempotencyRoute. directive says where it stands, for messages of start-up. */
typedef struct idem_route_t {
    idem_route_e kind;
    const char *name;                  /* may hold %{MATCH_x}; "auto" and "None" for the other kinds */
    int captures;                      /* it does */
    const char *revision;
    const apr_array_header_t *methods; /* of const char * */
    const apr_array_header_t *accepts; /* revisions to look at as well, of const char *; NULL: none */
    const ap_directive_t *directive;
} idem_route_t;

typedef enum {
    IDEM_SOURCE_USER,
    IDEM_SOURCE_ENV,
    IDEM_SOURCE_NOTE,
    IDEM_SOURCE_SSL,
    IDEM_SOURCE_SERVER,
    IDEM_SOURCE_CONST
} idem_source_e;

/* One word of IdempotencyTenant or IdempotencyPrincipal. */
typedef struct idem_source_t {
    idem_source_e kind;
    const char *argument; /* NAME, VAR or TEXT */
    const char *text;     /* as written, for messages */
} idem_source_t;

/* One IdempotencyOutcome: the first that fits a response decides. */
typedef struct idem_outcome_rule_t {
    int first_status; /* 5xx is 500 to 599 */
    int last_status;
    idem_outcome_e outcome;
    const ap_expr_info_t *expr; /* NULL: no condition */
} idem_outcome_rule_t;

enum { IDEM_NO_IDENTITY_REJECT, IDEM_NO_IDENTITY_BYPASS };
enum { IDEM_MODE_OFF, IDEM_MODE_ENFORCE, IDEM_MODE_READ_ONLY, IDEM_MODE_SHADOW };
enum { IDEM_REUSE_REFUSE, IDEM_REUSE_ALLOW };
enum { IDEM_FAILURE_CLOSED, IDEM_FAILURE_OPEN };

/* Per directory. IDEM_UNSET and NULL mean: not said here. */
typedef struct idem_dir_t {
    const idem_route_t *route;
    const apr_array_header_t *tenant;    /* of idem_source_t */
    const apr_array_header_t *principal; /* of idem_source_t */
    const ap_directive_t *principal_directive;
    const char *scope_version;           /* IdempotencyScopeVersion: of what tenant and principal are made of now */
    const apr_array_header_t *former_tenant;    /* of idem_source_t: in the version before; NULL: as now */
    const apr_array_header_t *former_principal;
    const apr_array_header_t *trust_env; /* of const char * */
    int asks_environment;                /* one of these sources is an env: that is not trusted; idem_config_weigh() */
    int no_identity;
    int mode;
    int key_required;
    int key_syntax;                      /* idem_key_syntax_e */
    apr_interval_time_t key_min;         /* octets */
    apr_interval_time_t key_max;
    const char *key_header;
    const idem_pattern_t *key_pattern;
    const char *key_pattern_text;
    const ap_expr_info_t *server_key;    /* IdempotencyServerKey: gives a string */

    int payload_mode;                    /* idem_payload_mode_e */
    const apr_array_header_t *contracts; /* of idem_contract_t *, newest first */
    int bind_host;
    int query;                           /* idem_query_e */
    const apr_array_header_t *query_names;
    const apr_array_header_t *bound_headers;

    apr_off_t max_body;
    apr_off_t body_memory;
    apr_off_t max_snapshot;
    int snapshot_body;
    const apr_array_header_t *snapshot_headers;
    const char *replayed_header;         /* "" for None */
    const char *status_path;             /* where operations can be asked for; NULL: nowhere */
    int error_member;
    int forward_key;
    const apr_array_header_t *outcomes;  /* of idem_outcome_rule_t, inner sections first */

    int quota_live;                      /* IdempotencyQuota; 0: none */
    int quota_inflight;
    apr_interval_time_t retention;
    apr_interval_time_t tombstone;
    int reuse;
    int effect;                          /* idem_effect_e */
    int dispatch_mark;
    apr_interval_time_t wait;            /* 0: do not */
    apr_interval_time_t lease;
    apr_interval_time_t max_run;
    apr_interval_time_t quiet;           /* before "not executed" may be said of an operation */
    apr_interval_time_t latency_budget;     /* what gate, status page and alerts measure against */
    apr_interval_time_t recovery_objective; /* likewise */
} idem_dir_t;

typedef struct idem_child_store_t idem_child_store_t;
struct idem_journaling_t;
struct idem_waiters_t;

/* Per server. */
typedef struct idem_server_t {
    const char *store_server;          /* IdempotencyStore; NULL: this server's own */
    const ap_directive_t *store_directive;
    apr_interval_time_t store_timeout;
    int store_prepare;
    int store_failure;                 /* IDEM_FAILURE_* */
    int store_writers;
    const ap_directive_t *writers_directive;
    int writer_epoch;
    const char *docs;
    const apr_array_header_t *announced; /* of idem_announced_t, found by check_config */
    int has_routes;                    /* found by check_config */
    const apr_array_header_t *key_fields; /* likewise: request fields that have keys anywhere here, of const char * */
    int makes_keys;                    /* likewise: IdempotencyServerKey stands somewhere */
    int loose_certificates;            /* likewise: SSLVerifyClient optional_no_ca stands somewhere */
    apr_interval_time_t shortest_lease;/* of all sections of this server, found while reading; 0: none said */
    server_rec *registry;              /* whose DBD settings hold the registry, found by check_config */
    idem_dbd_t dbd;                    /* of that server, found by check_config */
    volatile apr_uint32_t *sizing_warned; /* shared by all children: 1 once one of them has warned; may be NULL */
    struct idem_counters_t *counters;  /* made in post_config; NULL: nothing is counted */
    idem_child_store_t *store;         /* this child's, made in child_init */
    const char *journal;               /* folder; NULL: none */
    const ap_directive_t *journal_directive;
    struct idem_journaling_t *journaling; /* this child's, made in child_init */
    struct idem_waiters_t *waiters;    /* likewise; one for all servers */
    struct idem_cache_t *cache;        /* IdempotencyReplayCache; after post_config one that is open, or NULL */
    unsigned char registry_digest[32]; /* of the registry that its entries are of; with cache */
} idem_server_t;

void *idem_config_create_dir(apr_pool_t *p, char *dir);
void *idem_config_merge_dir(apr_pool_t *p, void *outer, void *inner);
void *idem_config_create_server(apr_pool_t *p, server_rec *s);
void *idem_config_merge_server(apr_pool_t *p, void *outer, void *inner);

/* The configuration of a request or a server; with idem_config_dir, unset values are still IDEM_UNSET or NULL. */
const idem_dir_t *idem_config_dir(const request_rec *r);
idem_server_t *idem_config_server(const server_rec *s);

/* A copy with every default filled in, for a request that is bound to its route. */
const idem_dir_t *idem_config_resolve(apr_pool_t *p, const idem_dir_t *conf);

/* IdempotencyTrustEnv names this variable. */
int idem_config_trusts(const idem_dir_t *conf, const char *name);

/* To be called when sources or trust_env have changed. */
void idem_config_weigh(idem_dir_t *conf);

/* IdempotencyStoreTimeout or its default. */
apr_interval_time_t idem_config_timeout(const idem_server_t *conf);

/* The recipe of a resolved configuration. */
void idem_config_recipe(const idem_dir_t *conf, idem_recipe_t *recipe);

#endif
