/*
 * cache.h - IdempotencyReplayCache: memory of this machine that all children share, by httpd's own mod_socache_shmcb.
 *
 * It holds octets under a digest, each for a while, and forgets the oldest where it is full. Nothing here waits: where
 * the lock is not to be had at once, or anything else fails, it is as if the entry were not there.
 */
#ifndef IDEM_HTTPD_CACHE_H
#define IDEM_HTTPD_CACHE_H

#include <httpd.h>
#include <http_config.h>

#include "core/digest.h"

typedef struct idem_cache_t idem_cache_t;

/* Directive IdempotencyReplayCache: shmcb, shmcb:PATH, shmcb:PATH(SIZE), None. */
const char *idem_cache_set(cmd_parms *cmd, void *conf, const char *text);

/* Hooks pre_config, post_config and child_init. After the second idem_server_t.cache is a cache to be used, or NULL. */
int idem_cache_pre_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp);
int idem_cache_start(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *main_server);
void idem_cache_child_init(apr_pool_t *pchild, server_rec *main_server);

/* The largest entry in octets, at most 64 KiB. */
apr_size_t idem_cache_most(const idem_cache_t *cache);

/* Copies an entry to room, which has idem_cache_most() octets. Its length, 0 where there is none. */
apr_size_t idem_cache_get(idem_cache_t *cache, request_rec *r, const unsigned char id[IDEM_SHA256_LEN], unsigned char *room);

/* Keeps an entry, at most idem_cache_most() octets, for so long. */
void idem_cache_put(idem_cache_t *cache, request_rec *r, const unsigned char id[IDEM_SHA256_LEN], unsigned char *octets,
                    apr_size_t len, apr_interval_time_t lives);

#endif
