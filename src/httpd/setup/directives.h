/*
 * directives.h - the functions behind the directive table of mod_idempotency.c.
 *
 * Each returns NULL, or a sentence that names the directive and what it takes; httpd puts file and line before it and
 * stops. Generic setters find their field by the offset in cmd->info.
 */
#ifndef IDEM_HTTPD_DIRECTIVES_H
#define IDEM_HTTPD_DIRECTIVES_H

#include <httpd.h>
#include <http_config.h>

/* A word out of a fixed list; the value is the word's index. */
typedef struct idem_choice_t {
    int offset;
    const char *const *words; /* NULL-terminated; a NULL-terminated list in which "" is a value that is not built */
} idem_choice_t;

extern const idem_choice_t idem_choice_no_identity;
extern const idem_choice_t idem_choice_mode;
extern const idem_choice_t idem_choice_key;
extern const idem_choice_t idem_choice_key_syntax;
extern const idem_choice_t idem_choice_reuse;
extern const idem_choice_t idem_choice_fingerprint;
extern const idem_choice_t idem_choice_effect;

/* "NAME: what is wrong", in the pool of the configuration. */
const char *idem_set_fault(const cmd_parms *cmd, const char *words);

const char *idem_set_route(cmd_parms *cmd, void *conf, int argc, char *const argv[]);
const char *idem_set_sources(cmd_parms *cmd, void *conf, int argc, char *const argv[]); /* tenant and principal */
const char *idem_set_names(cmd_parms *cmd, void *conf, int argc, char *const argv[]);   /* a list of names */
const char *idem_set_fingerprint_query(cmd_parms *cmd, void *conf, int argc, char *const argv[]);
const char *idem_set_outcome(cmd_parms *cmd, void *conf, int argc, char *const argv[]);
const char *idem_set_choice(cmd_parms *cmd, void *conf, const char *word);
const char *idem_set_flag(cmd_parms *cmd, void *conf, int on);
const char *idem_set_duration(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_size(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_key_header(cmd_parms *cmd, void *conf, const char *name);
const char *idem_set_key_length(cmd_parms *cmd, void *conf, const char *min, const char *max);
const char *idem_set_scope_version(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_server_key(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_key_pattern(cmd_parms *cmd, void *conf, const char *pattern);
const char *idem_set_replayed_header(cmd_parms *cmd, void *conf, const char *name);
const char *idem_set_status_path(cmd_parms *cmd, void *conf, const char *path);
const char *idem_set_store(cmd_parms *cmd, void *conf, const char *name);
const char *idem_set_store_timeout(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_store_prepare(cmd_parms *cmd, void *conf, int on);
const char *idem_set_store_failure(cmd_parms *cmd, void *conf, const char *word);
const char *idem_set_store_writers(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_writer_epoch(cmd_parms *cmd, void *conf, const char *text);
const char *idem_set_journal(cmd_parms *cmd, void *conf, const char *dir);
const char *idem_set_docs(cmd_parms *cmd, void *conf, const char *url);

#endif
