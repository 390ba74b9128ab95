/* Tenants and principals on the command line. */
#include <string.h>

#include <apr_strings.h>

#include "core/scope.h"
#include "ctl/ctl.h"

#define MOST_PARTS 16

/* All values of an option, in their order; the number, -1 for too many. */
static int values_of(int argc, const char *const *argv, const char *name, const char *values[MOST_PARTS])
{
    apr_size_t len = strlen(name);
    int count = 0;
    int i;

    for (i = 0; i < argc; i++) {
        const char *value = NULL;

        if (strncmp(argv[i], "--", 2) || strncmp(argv[i] + 2, name, len)) {
            continue;
        }
        if (argv[i][len + 2] == '=') {
            value = argv[i] + len + 3;
        }
        else if (!argv[i][len + 2] && i + 1 < argc) {
            value = argv[++i];
        }
        if (value && count == MOST_PARTS) {
            return -1;
        }
        if (value) {
            values[count++] = value;
        }
    }
    return count;
}

const char *idem_ctl_joined(idem_ctl_t *ctl, int argc, const char *const *argv, const char *name, idem_ctl_exit_e *status)
{
    const char *values[MOST_PARTS];
    int count = values_of(argc, argv, name, values);
    idem_scope_result_e result = IDEM_SCOPE_OK;
    const char *joined = NULL;

    *status = IDEM_CTL_DONE;
    if (!count) {
        return NULL;
    }
    if (count == 1) {
        joined = values[0];
        result = IDEM_SCOPE_FAULT(idem_scope_check_part(IDEM_SCOPE_IN_PRINCIPAL, joined));
    }
    else if (count > 1) {
        joined = idem_scope_join(ctl->p, values, count, &result);
    }
    if (!joined || result != IDEM_SCOPE_OK) {
        *status = idem_ctl_fail(IDEM_CTL_USAGE, "--%s: %s", name,
                                count < 0 ? "too many parts" : idem_scope_result_text(ctl->p, result));
        return NULL;
    }
    return joined;
}
