/* Directives of server and virtual host only: what they say is kept per server, not per directory. */
#include "httpd/setup/directives.h"

#include <httpd.h>
#include <apr_cstr.h>
#include <apr_strings.h>

#include "core/problem.h"
#include "httpd/setup/config.h"
#include "httpd/setup/values.h"

const char *idem_set_store(cmd_parms *cmd, void *conf, const char *name)
{
    idem_server_t *server = idem_config_server(cmd->server);

    (void)conf;
    server->store_server = apr_pstrdup(cmd->pool, name);
    server->store_directive = cmd->directive;
    return *name ? NULL : idem_set_fault(cmd, "takes the ServerName of the virtual host whose DBD settings hold the registry");
}

const char *idem_set_store_timeout(cmd_parms *cmd, void *conf, const char *text)
{
    apr_interval_time_t value;

    (void)conf;
    if (!idem_values_duration(text, &value) || value < apr_time_from_msec(100) || value > apr_time_from_sec(60)) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is not a duration between 100ms and 60s", text));
    }
    idem_config_server(cmd->server)->store_timeout = value;
    return NULL;
}

const char *idem_set_store_prepare(cmd_parms *cmd, void *conf, int on)
{
    (void)conf;
    idem_config_server(cmd->server)->store_prepare = on != 0;
    return NULL;
}

const char *idem_set_store_failure(cmd_parms *cmd, void *conf, const char *word)
{
    (void)conf;
    if (apr_cstr_casecmp(word, "Closed") && apr_cstr_casecmp(word, "Open")) {
        return idem_set_fault(cmd, apr_psprintf(cmd->pool, "'%s' is neither Closed nor Open", word));
    }
    idem_config_server(cmd->server)->store_failure = apr_cstr_casecmp(word, "Open") ? IDEM_FAILURE_CLOSED : IDEM_FAILURE_OPEN;
    return NULL;
}

const char *idem_set_writer_epoch(cmd_parms *cmd, void *conf, const char *text)
{
    (void)conf;
    if (!idem_values_number(text, 1, 2147483647, &idem_config_server(cmd->server)->writer_epoch)) {
        return idem_set_fault(cmd, "takes a whole number from 1 upwards");
    }
    return NULL;
}

const char *idem_set_journal(cmd_parms *cmd, void *conf, const char *dir)
{
    idem_server_t *server = idem_config_server(cmd->server);

    (void)conf;
    server->journal = *dir ? ap_server_root_relative(cmd->pool, dir) : NULL;
    server->journal_directive = cmd->directive;
    return server->journal ? NULL : idem_set_fault(cmd, "takes the name of a folder");
}

const char *idem_set_docs(cmd_parms *cmd, void *conf, const char *url)
{
    const char *words = idem_problem_docs_fault(cmd->pool, url);

    (void)conf;
    if (words) {
        return idem_set_fault(cmd, words);
    }
    idem_config_server(cmd->server)->docs = apr_pstrdup(cmd->pool, url);
    return NULL;
}

const char *idem_set_store_writers(cmd_parms *cmd, void *conf, const char *text)
{
    idem_server_t *server = idem_config_server(cmd->server);

    (void)conf;
    server->writers_directive = cmd->directive;
    /* whether mod_dbd may open so many connections is seen when everything has been read: check.c */
    return idem_values_number(text, 1, 1000, &server->store_writers)
               ? NULL
               : apr_pstrcat(cmd->pool, cmd->cmd->name, ": takes a whole number from 1 to DBDMax", NULL);
}
