/*
 * dbd.h - mod_dbd's directives as they stand in the configuration: mod_dbd itself tells nobody before it connects.
 */
#ifndef IDEM_HTTPD_DBD_H
#define IDEM_HTTPD_DBD_H

#include <httpd.h>

/* What matters of them. */
typedef struct idem_dbd_t {
    const char *params; /* DBDParams; NULL: libpq's defaults */
    int max;            /* DBDMax: connections of a child, all users of the pool together */
    int min;            /* DBDMin: that mod_dbd opens when a child begins, and waits for */
    int most;           /* that the registry may use: DBDMax, less one for other users where there is more than one */
} idem_dbd_t;

/* What is wrong with the DBD settings of this server for a registry (a sentence), or NULL. Fills dbd, in p. */
const char *idem_dbd_check(apr_pool_t *p, const server_rec *main_server, const server_rec *s, idem_dbd_t *dbd);

#endif
