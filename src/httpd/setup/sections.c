#include "httpd/setup/sections.h"

#include <string.h>

#define CORE_PRIVATE
#include <http_config.h>
#include <http_core.h>

static void add_section(apr_array_header_t *sections, const char *path, const char *shown, ap_conf_vector_t *vector)
{
    const idem_dir_t *conf = ap_get_module_config(vector, &idempotency_module);

    if (conf) {
        idem_section_t *section = &APR_ARRAY_PUSH(sections, idem_section_t);

        section->path = path;
        section->shown = shown ? shown : "";
        section->conf = conf;
    }
}

static void add_inner(apr_array_header_t *sections, const core_dir_config *core)
{
    int i;

    for (i = 0; core->sec_if && i < core->sec_if->nelts; i++) {
        add_section(sections, NULL, core->d, APR_ARRAY_IDX(core->sec_if, i, ap_conf_vector_t *));
    }
    for (i = 0; core->sec_file && i < core->sec_file->nelts; i++) {
        add_section(sections, NULL, core->d, APR_ARRAY_IDX(core->sec_file, i, ap_conf_vector_t *));
    }
}

static void add_list(apr_array_header_t *sections, const apr_array_header_t *list, int paths_decide)
{
    int i;

    for (i = 0; list && i < list->nelts; i++) {
        ap_conf_vector_t *vector = APR_ARRAY_IDX(list, i, ap_conf_vector_t *);
        const core_dir_config *core = ap_get_core_module_config(vector);
        int decides = paths_decide && !core->r && !core->d_is_fnmatch;

        add_section(sections, decides ? core->d : NULL, core->d, vector);
        add_inner(sections, core);
    }
}

apr_array_header_t *idem_sections_of(apr_pool_t *p, server_rec *s)
{
    apr_array_header_t *sections = apr_array_make(p, 16, sizeof(idem_section_t));
    core_server_config *core = ap_get_core_module_config(s->module_config);

    add_section(sections, "", "", s->lookup_defaults);
    add_inner(sections, ap_get_core_module_config(s->lookup_defaults));
    add_list(sections, core->sec_url, 1);
    add_list(sections, core->sec_dir, 0);
    return sections;
}

int idem_section_may_merge(const idem_section_t *section, const idem_section_t *own)
{
    apr_size_t len;

    if (!section->path || !own->path || section == own) {
        return 1;
    }
    len = strlen(section->path);
    return !strncmp(section->path, own->path, len) &&
           (len == 0 || section->path[len - 1] == '/' || !own->path[len] || own->path[len] == '/');
}

const idem_dir_t *idem_sections_resolve(apr_pool_t *p, const apr_array_header_t *sections, const idem_section_t *own)
{
    void *merged = (void *)APR_ARRAY_IDX(sections, 0, idem_section_t).conf;
    int i;

    for (i = 1; i < sections->nelts; i++) {
        const idem_section_t *section = &APR_ARRAY_IDX(sections, i, idem_section_t);

        if (section == own || (section->path && own->path && idem_section_may_merge(section, own))) {
            merged = idem_config_merge_dir(p, merged, (void *)section->conf);
        }
    }
    return idem_config_resolve(p, merged);
}
