/*
 * mod_idempotency - an Idempotency-Key layer for Apache httpd: a keyed request reaches its backend once, and every
 * retry gets the same answer.
 *
 * This file is the module's face: its directives, its hooks, its record. What they do is in src/ (see src/README.md).
 */
#include <httpd.h>
#include <http_config.h>
#include <http_core.h>
#include <http_log.h>
#include <http_request.h>
#include <http_protocol.h>

#include "core/digest.h"
#include "core/version.h"
#include "httpd/setup/balancer.h"
#include "httpd/request/body.h"
#include "httpd/child/cache.h"
#include "httpd/request/capture.h"
#include "httpd/setup/check.h"
#include "httpd/child/child.h"
#include "httpd/setup/config.h"
#include "httpd/request/context.h"
#include "httpd/setup/directives.h"
#include "httpd/request/edge.h"
#include "httpd/request/identity.h"
#include "httpd/request/key.h"
#include "httpd/logging.h"
#include "httpd/pages/operation.h"
#include "httpd/pages/policy.h"
#include "httpd/request/prepare.h"
#include "httpd/child/quota.h"
#include "httpd/request/recipe.h"
#include "httpd/request/route.h"
#include "httpd/request/run.h"
#include "httpd/request/shadow.h"
#include "httpd/request/wait.h"
#include "httpd/pages/status.h"
#include "httpd/request/taken.h"
#include "httpd/setup/sizing.h"

#define IN_SECTIONS (RSRC_CONF | ACCESS_CONF) /* never .htaccess: it must not weaken what the operator protects */
#define FIELD(name) ((void *)APR_OFFSETOF(idem_dir_t, name))
#define CHOICE(name) ((void *)&idem_choice_##name)

static const command_rec directives[] = {
    AP_INIT_TAKE_ARGV("IdempotencyRoute", idem_set_route, NULL, IN_SECTIONS,
                      "the operation's name, auto or None; then revision=R, accepts=R, methods=POST,PATCH"),
    AP_INIT_TAKE_ARGV("IdempotencyTenant", idem_set_sources, FIELD(tenant), IN_SECTIONS,
                      "whose key it is: user, env:NAME, note:NAME, ssl:VAR, server, const:TEXT, one or more"),
    AP_INIT_TAKE_ARGV("IdempotencyPrincipal", idem_set_sources, FIELD(principal), IN_SECTIONS,
                      "who called: user, env:NAME, note:NAME, ssl:VAR, server, const:TEXT, one or more"),
    AP_INIT_TAKE1("IdempotencyScopeVersion", idem_set_scope_version, NULL, IN_SECTIONS,
                  "v2 and so on, when tenant or principal are made of something else from now on"),
    AP_INIT_TAKE_ARGV("IdempotencyFormerTenant", idem_set_sources, FIELD(former_tenant), IN_SECTIONS,
                      "what the tenant was made of in the scope version before"),
    AP_INIT_TAKE_ARGV("IdempotencyFormerPrincipal", idem_set_sources, FIELD(former_principal), IN_SECTIONS,
                      "what the principal was made of in the scope version before"),
    AP_INIT_TAKE_ARGV("IdempotencyTrustEnv", idem_set_names, FIELD(trust_env), IN_SECTIONS,
                      "variables that a gateway in front wrote, not the client"),
    AP_INIT_TAKE1("IdempotencyNoIdentity", idem_set_choice, CHOICE(no_identity), IN_SECTIONS, "Reject or Bypass"),
    AP_INIT_TAKE1("IdempotencyMode", idem_set_choice, CHOICE(mode), IN_SECTIONS, "Off, Shadow, Enforce or ReadOnly"),
    AP_INIT_TAKE1("IdempotencyKey", idem_set_choice, CHOICE(key), IN_SECTIONS, "Required or Optional"),
    AP_INIT_TAKE1("IdempotencyKeyHeader", idem_set_key_header, NULL, IN_SECTIONS, "the request field that has the key"),
    AP_INIT_TAKE1("IdempotencyKeySyntax", idem_set_choice, CHOICE(key_syntax), IN_SECTIONS, "strict or lenient"),
    AP_INIT_TAKE2("IdempotencyKeyLength", idem_set_key_length, NULL, IN_SECTIONS, "MIN MAX in octets, 1 to 255"),
    AP_INIT_TAKE1("IdempotencyKeyPattern", idem_set_key_pattern, NULL, IN_SECTIONS,
                  "a regular expression that every key must match"),
    AP_INIT_TAKE1("IdempotencyServerKey", idem_set_server_key, NULL, IN_SECTIONS,
                  "an expression that gives the key of a request of the server's own workers"),
    AP_INIT_TAKE1("IdempotencyFingerprint", idem_set_choice, CHOICE(fingerprint), IN_SECTIONS,
                  "raw, json, jcs, form or multipart"),
    AP_INIT_TAKE_ARGV("IdempotencyPayloadContract", idem_recipe_set_contracts, NULL, IN_SECTIONS,
                      "files with the JSON Schema subset that bodies must follow, newest first, or None"),
    AP_INIT_FLAG("IdempotencyFingerprintHost", idem_set_flag, FIELD(bind_host), IN_SECTIONS,
                 "Off for one service under several names"),
    AP_INIT_TAKE_ARGV("IdempotencyFingerprintQuery", idem_set_fingerprint_query, NULL, IN_SECTIONS,
                      "All, None, or the names of the parameters that change the effect"),
    AP_INIT_TAKE_ARGV("IdempotencyFingerprintHeaders", idem_set_names, FIELD(bound_headers), IN_SECTIONS,
                      "request fields that change the effect, or None"),
    AP_INIT_TAKE1("IdempotencyMaxBody", idem_set_size, FIELD(max_body), IN_SECTIONS, "the largest request body"),
    AP_INIT_TAKE1("IdempotencyBodyMemory", idem_set_size, FIELD(body_memory), IN_SECTIONS,
                  "the largest request body that is kept in memory"),
    AP_INIT_TAKE1("IdempotencyMaxSnapshot", idem_set_size, FIELD(max_snapshot), IN_SECTIONS,
                  "the largest response body that is kept for replay"),
    AP_INIT_FLAG("IdempotencySnapshotBody", idem_set_flag, FIELD(snapshot_body), IN_SECTIONS,
                 "Off where response bodies must not be stored"),
    AP_INIT_TAKE_ARGV("IdempotencySnapshotHeaders", idem_set_names, FIELD(snapshot_headers), IN_SECTIONS,
                      "further response fields to keep for replay"),
    AP_INIT_TAKE1("IdempotencyReplayedHeader", idem_set_replayed_header, NULL, IN_SECTIONS,
                  "the response field that marks a replay, or None"),
    AP_INIT_TAKE1("IdempotencyStatusPath", idem_set_status_path, NULL, IN_SECTIONS,
                  "the path under which idempotency-operation answers, for the Link of 409 answers"),
    AP_INIT_FLAG("IdempotencyErrorMember", idem_set_flag, FIELD(error_member), IN_SECTIONS,
                 "Off to leave the member error out of problem bodies"),
    AP_INIT_FLAG("IdempotencyForwardKey", idem_set_flag, FIELD(forward_key), IN_SECTIONS,
                 "Off to keep the client's key from the backend"),
    AP_INIT_TAKE_ARGV("IdempotencyOutcome", idem_set_outcome, NULL, IN_SECTIONS,
                      "STATUS... succeeded|failed|rejected|unknown [\"expr=EXPR\"]"),
    AP_INIT_TAKE1("IdempotencyEffect", idem_set_choice, CHOICE(effect), IN_SECTIONS,
                  "what the backend is: external, transactional or repeatable"),
    AP_INIT_FLAG("IdempotencyDispatchMark", idem_set_flag, FIELD(dispatch_mark), IN_SECTIONS,
                 "On to write to the registry once more when the backend is about to run"),
    AP_INIT_TAKE1("IdempotencyWait", idem_set_duration, FIELD(wait), IN_SECTIONS,
                  "how long a repeated request waits for the first one's answer, 5m at most"),
    AP_INIT_TAKE_ARGV("IdempotencyQuota", idem_quota_set, NULL, IN_SECTIONS,
                      "live=N inflight=N: how many operations a principal may have, or None"),
    AP_INIT_TAKE1("IdempotencyRetention", idem_set_duration, FIELD(retention), IN_SECTIONS,
                  "how long an answer is replayed"),
    AP_INIT_TAKE1("IdempotencyTombstone", idem_set_duration, FIELD(tombstone), IN_SECTIONS,
                  "how long an expired key is remembered after that"),
    AP_INIT_TAKE1("IdempotencyReuse", idem_set_choice, CHOICE(reuse), IN_SECTIONS, "Refuse or Allow"),
    AP_INIT_TAKE1("IdempotencyLease", idem_set_duration, FIELD(lease), IN_SECTIONS,
                  "how long a child may be silent before its operations count as lapsed"),
    AP_INIT_TAKE1("IdempotencyMaxRun", idem_set_duration, FIELD(max_run), IN_SECTIONS,
                  "the longest run of a backend before its operation counts as lapsed"),
    AP_INIT_TAKE1("IdempotencyQuiet", idem_set_duration, FIELD(quiet), IN_SECTIONS,
                  "how long an owner must be unseen before its operation may be called not executed"),
    AP_INIT_TAKE1("IdempotencyLatencyBudget", idem_set_duration, FIELD(latency_budget), IN_SECTIONS,
                  "how long a request of this route may take: what the registry's share is measured against"),
    AP_INIT_TAKE1("IdempotencyRecoveryObjective", idem_set_duration, FIELD(recovery_objective), IN_SECTIONS,
                  "how long an operation may be of unknown outcome before that is an alarm"),
    AP_INIT_TAKE1("IdempotencyStore", idem_set_store, NULL, RSRC_CONF,
                  "ServerName of the virtual host whose DBD settings hold the registry"),
    AP_INIT_TAKE1("IdempotencyStoreTimeout", idem_set_store_timeout, NULL, RSRC_CONF,
                  "the longest that a request waits for the registry"),
    AP_INIT_FLAG("IdempotencyStorePrepare", idem_set_store_prepare, NULL, RSRC_CONF,
                 "Off behind a pooler that does not follow prepared statements"),
    AP_INIT_TAKE1("IdempotencyStoreWriters", idem_set_store_writers, NULL, RSRC_CONF,
                  "how many threads of a child write to the registry at a time, each for all that wait"),
    AP_INIT_TAKE1("IdempotencyStoreFailure", idem_set_store_failure, NULL, RSRC_CONF,
                  "Closed: without the registry nothing with a key runs. Open: it runs unprotected"),
    AP_INIT_TAKE1("IdempotencyReplayCache", idem_cache_set, NULL, RSRC_CONF,
                  "shmcb:PATH(SIZE), memory in which final answers are kept for half a minute, or None"),
    AP_INIT_TAKE1("IdempotencyJournal", idem_set_journal, NULL, RSRC_CONF,
                  "the folder for settlements that the registry would not take"),
    AP_INIT_TAKE1("IdempotencyWriterEpoch", idem_set_writer_epoch, NULL, RSRC_CONF,
                  "the epoch in which this server may write"),
    AP_INIT_TAKE1("IdempotencyDocs", idem_set_docs, NULL, RSRC_CONF, "URL of the page that explains the problems"),
    {NULL, {NULL}, NULL, 0, RAW_ARGS, NULL},
};

static int bind_route(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);

    if (ctx && !ctx->handler_ran) {
        idem_route_bind(r, ctx, 0);
    }
    return DECLINED;
}

static int remember_environment(request_rec *r)
{
    idem_ctx_t *ctx = idem_context_get(r);

    if (ctx) {
        idem_identity_before_authentication(r, ctx);
    }
    return DECLINED;
}

static int show_page(request_rec *r)
{
    int status = DECLINED;

    if (!r->handler || strncmp(r->handler, "idempotency-", 12)) {
        return DECLINED;
    }
    status = idem_operation_handler(r);
    status = status == DECLINED ? idem_status_handler(r) : status;
    return status == DECLINED ? idem_policy_handler(r) : status;
}

static int start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    (void)pconf;
    (void)plog;
    (void)ptemp;
    if (idem_digest_check() != APR_SUCCESS) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_CRIT, 0, s, IDEM_LOG("0001") "OpenSSL has no working SHA-256");
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    if (ap_state_query(AP_SQ_MAIN_STATE) != AP_SQ_MS_CREATE_PRE_CONFIG) {
        ap_log_error(APLOG_MARK, APLOG_INFO, 0, s, IDEM_LOG("0002") "mod_idempotency %s", idem_version());
    }
    idem_status_open(s);
    return OK;
}

static void register_hooks(apr_pool_t *p)
{
    /* mod_security2 reads the whole body in fixups: ours must have it first and give it back */
    static const char *const before_security[] = {"mod_security2.c", NULL};

    (void)p;
    idem_body_register();
    idem_taken_register();
    idem_key_register();
    idem_capture_register();
    idem_shadow_register();
    idem_edge_register();
    ap_hook_pre_config(idem_cache_pre_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_check_config(idem_check_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_check_config(idem_balancer_check_config, NULL, NULL, APR_HOOK_LAST);
    ap_hook_post_config(start, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_post_config(idem_sizing_start, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_post_config(idem_cache_start, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(idem_cache_child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(idem_wait_child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(idem_child_init, NULL, NULL, APR_HOOK_LAST);

    ap_hook_create_request(idem_context_create, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_post_read_request(idem_prepare_scrub, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_translate_name(bind_route, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_header_parser(idem_taken_begin, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_check_access(remember_environment, NULL, NULL, APR_HOOK_REALLY_LAST, AP_AUTH_INTERNAL_PER_URI);
    ap_hook_fixups(idem_prepare, NULL, before_security, APR_HOOK_REALLY_FIRST);
    ap_hook_insert_filter(idem_capture_insert, NULL, before_security, APR_HOOK_REALLY_FIRST);
    ap_hook_insert_filter(idem_taken_insert, NULL, NULL, APR_HOOK_REALLY_LAST);
    ap_hook_insert_error_filter(idem_capture_insert_error, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_handler(idem_run, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_handler(show_page, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_error_log(idem_run_watch_log, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_log_transaction(idem_run_finish, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_log_transaction(idem_shadow_finish, NULL, NULL, APR_HOOK_MIDDLE);
}

AP_DECLARE_MODULE(idempotency) = {
    STANDARD20_MODULE_STUFF,
    idem_config_create_dir,
    idem_config_merge_dir,
    idem_config_create_server,
    idem_config_merge_server,
    directives,
    register_hooks,
    AP_MODULE_FLAG_NONE,
};
