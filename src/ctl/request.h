/*
 * request.h - a request given by file or options, fingerprinted as the module would. CONTRACT section 3.
 */
#ifndef IDEM_CTL_REQUEST_H
#define IDEM_CTL_REQUEST_H

#include "core/contract.h"
#include "core/fingerprint.h"
#include "ctl/ctl.h"

/* What a user gave: --request FILE (a whole HTTP/1.1 message, "-" is standard input) or the single options. */
typedef struct idem_ctl_given_t {
    const char *request_file;
    const char *method;
    const char *target;
    const char *host;
    const char *type;
    const char *body_file;
    const char *contract_file;
} idem_ctl_given_t;

typedef struct idem_ctl_request_t {
    idem_request_t request;
    const char *body;
    apr_size_t body_len;
    const apr_table_t *headers;
    idem_contract_t *contract;       /* NULL: none given */
    const char *canonical;           /* after digesting: what the payload's digest is over */
    apr_size_t canonical_len;
    unsigned char fingerprint[IDEM_FINGERPRINT_LEN];
    const unsigned char *framed;
    apr_size_t framed_len;
} idem_ctl_request_t;

/* Reads it. DONE, or USAGE with the reason on stderr. */
idem_ctl_exit_e idem_ctl_read_request(idem_ctl_t *ctl, const idem_ctl_given_t *given, idem_ctl_request_t *out);

/* Fingerprints it by a recipe. DONE, or REFUSED with the payload's fault on stderr. */
idem_ctl_exit_e idem_ctl_digest_request(idem_ctl_t *ctl, const idem_recipe_t *recipe, idem_ctl_request_t *request);

/* A whole file, at most 64 MiB, NUL-terminated; NULL with the reason on stderr. */
char *idem_ctl_read_file(idem_ctl_t *ctl, const char *path, apr_size_t *len);

#endif
