/*
 * recipe.h - which recipe a request's fingerprint is made by: the configuration's, narrowed by what the request is.
 * CONTRACT sections 3 and 3.1.
 */
#ifndef IDEM_HTTPD_RECIPE_H
#define IDEM_HTTPD_RECIPE_H

#include "httpd/request/context.h"

/*
 * The recipe of a request: the payload mode where the media type is one that the mode is for, else raw. NULL with
 * *detail (a sentence for the sender) where the request cannot be read as the route promises: a content coding, or a
 * media type that a payload contract does not cover.
 */
idem_recipe_t *idem_recipe_of(request_rec *r, const idem_ctx_t *ctx, const char **detail);

/* The same with another contract of the configuration: the one of that number, from 0, newest first. */
idem_recipe_t *idem_recipe_with(apr_pool_t *p, const idem_ctx_t *ctx, const idem_recipe_t *recipe, int number);

/* The contract that a recipe names, NULL where it names none; *known is 0 where it is not configured (any more). */
const idem_contract_t *idem_recipe_contract(const idem_dir_t *conf, const idem_recipe_t *recipe, int *known);

/* Setter of IdempotencyPayloadContract FILE [FILE ...]: reads and compiles them, newest first. */
const char *idem_recipe_set_contracts(cmd_parms *cmd, void *conf, int argc, char *const argv[]);

#endif
