/*
 * conftree.h - directives of other modules, as they stand in the configuration files.
 */
#ifndef IDEM_HTTPD_CONFTREE_H
#define IDEM_HTTPD_CONFTREE_H

#include <httpd.h>
#include <http_config.h>

/* 1 where a directive stands in this server's own part of the configuration: a virtual host's block, or outside of all. */
int idem_conftree_stands_in(const ap_directive_t *directive, const server_rec *s, int is_main);

#endif
