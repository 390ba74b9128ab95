#include "core/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <apr_strings.h>

#define MATCH_LIMIT 100000
#define DEPTH_LIMIT 1000

struct idem_pattern_t {
    pcre2_code *code;
    pcre2_match_context *limits;
};

static apr_status_t free_pattern(void *data)
{
    idem_pattern_t *pattern = data;

    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->limits);
    return APR_SUCCESS;
}

const idem_pattern_t *idem_pattern_compile(apr_pool_t *p, const char *text, const char **error)
{
    idem_pattern_t *pattern = apr_pcalloc(p, sizeof(*pattern));
    int number;
    PCRE2_SIZE offset;

    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_DOLLAR_ENDONLY, &number, &offset, NULL);
    if (!pattern->code) {
        PCRE2_UCHAR words[128];

        pcre2_get_error_message(number, words, sizeof(words));
        *error = apr_psprintf(p, "%s at offset %" APR_SIZE_T_FMT, (const char *)words, (apr_size_t)offset);
        return NULL;
    }
    pattern->limits = pcre2_match_context_create(NULL);
    if (!pattern->limits) {
        pcre2_code_free(pattern->code);
        *error = "out of memory";
        return NULL;
    }
    pcre2_set_match_limit(pattern->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(pattern->limits, DEPTH_LIMIT);
    apr_pool_cleanup_register(p, pattern, free_pattern, apr_pool_cleanup_null);
    return pattern;
}

int idem_pattern_matches(const idem_pattern_t *pattern, const char *subject, apr_size_t len)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    int found;

    if (!match) {
        return 0;
    }
    found = pcre2_match(pattern->code, (PCRE2_SPTR)subject, len, 0, 0, match, pattern->limits) >= 0;
    pcre2_match_data_free(match);
    return found;
}
