/*
 * body.h - the request body: read whole, kept within a limit, fingerprinted on its way in, and handed to whoever
 * reads the request later. CONTRACT sections 3 and 11.
 *
 * The body is read in fixups, first; what another module took of it before is had from httpd/request/taken. It is given back by
 * an input filter that stands where httpd's own protocol filters stood, so it survives internal redirects and looks to every handler like a request
 * with a Content-Length. Above IdempotencyBodyMemory it lies in a temporary file that has no name.
 */
#ifndef IDEM_HTTPD_BODY_H
#define IDEM_HTTPD_BODY_H

#include "core/digest.h"
#include "core/payload.h"
#include "httpd/request/context.h"

/* How reading ended. */
typedef enum {
    IDEM_BODY_OK,
    IDEM_BODY_TOO_LARGE,  /* over IdempotencyMaxBody or LimitRequestBody */
    IDEM_BODY_CONSUMED,   /* another module has read it, and it cannot be had again */
    IDEM_BODY_REJECTED,   /* the payload reader refused it: *detail says why */
    IDEM_BODY_FAILED      /* *status is to be returned from the hook: httpd's own error, or no disk */
} idem_body_result_e;

/*
 * Reads the body, feeds it to the recipe's payload reader and leaves the SHA-256 of the canonical octets in digest.
 * A request without a body is an empty one.
 */
idem_body_result_e idem_body_read(request_rec *r, idem_ctx_t *ctx, const idem_recipe_t *recipe,
                                  unsigned char digest[IDEM_FINGERPRINT_LEN], const char **detail, int *status);

/* A reader of the payload by a recipe, whose canonical octets go into sha; ctx->request is set. */
idem_payload_t *idem_body_reader(idem_ctx_t *ctx, const idem_recipe_t *recipe, idem_sha256_t *sha);

/* The largest body that is taken: IdempotencyMaxBody or LimitRequestBody. */
apr_off_t idem_body_largest(const request_rec *r, const idem_dir_t *conf);

/* The digest by another recipe, of a body that was read and not handed on yet. 1, or 0 where that reader refuses it. */
int idem_body_digest(idem_ctx_t *ctx, const idem_recipe_t *recipe, unsigned char digest[IDEM_FINGERPRINT_LEN]);

/* Registers the input filter. */
void idem_body_register(void);

#endif
