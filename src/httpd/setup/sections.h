/*
 * sections.h - the sections of a server's configuration: Location, Directory, If, Files, and the server itself.
 */
#ifndef IDEM_HTTPD_SECTIONS_H
#define IDEM_HTTPD_SECTIONS_H

#include "httpd/setup/config.h"

typedef struct idem_section_t {
    const char *path;       /* a Location's prefix, "" for the server; NULL: cannot be told before a request comes
                               (LocationMatch, Directory, If, Files) */
    const char *shown;      /* what the section says it is for, for people */
    const idem_dir_t *conf; /* what it says; unset values are unset */
} idem_section_t;

/* All of them, of idem_section_t, in p; those of the main server that a virtual host inherits are among them. */
apr_array_header_t *idem_sections_of(apr_pool_t *p, server_rec *s);

/* What holds for a request to the path of `own`: the server's defaults, what Locations around it say, and it; every
 * default filled in. sections: of that server. Sections that only a request can tell are left out. */
const idem_dir_t *idem_sections_resolve(apr_pool_t *p, const apr_array_header_t *sections, const idem_section_t *own);

/* May what a section says apply to a request that `own` applies to? Where a path cannot tell, it may. */
int idem_section_may_merge(const idem_section_t *section, const idem_section_t *own);

#endif
