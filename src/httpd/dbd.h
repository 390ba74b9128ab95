/*
 * dbd.h - mod_dbd's directives as they stand in the configuration: mod_dbd itself tells nobody before it connects.
 */
#ifndef IDEM_HTTPD_DBD_H
#define IDEM_HTTPD_DBD_H

#include <httpd.h>

/*
 * What is wrong with the DBD settings of this server for a registry (a sentence), or NULL. *most is how many
 * connections a child may have open: DBDMax, less one for other users of the same pool where there is more than one.
 */
const char *idem_dbd_check(apr_pool_t *p, const server_rec *main_server, const server_rec *s, int *most);

#endif
