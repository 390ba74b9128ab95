#include "core/fault.h"

#include <stdarg.h>

#include <apr_strings.h>

apr_status_t idem_fault(idem_payload_fault_t *fault, apr_pool_t *p, const char *reason, const char *pointer,
                        const char *fmt, ...)
{
    va_list args;

    if (fault->reason != NULL) {
        return APR_EINVAL;
    }
    va_start(args, fmt);
    fault->detail = apr_pvsprintf(p, fmt, args);
    va_end(args);
    fault->reason = reason;
    fault->pointer = pointer;
    return APR_EINVAL;
}
