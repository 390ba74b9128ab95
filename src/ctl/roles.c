/*
 * Roles and grants, set anew at every migration. CONTRACT section 7.
 */
#include "ctl/ctl.h"
#include "store/admin_schema.h"

int idem_ctl_grant(idem_ctl_t *ctl)
{
    int i;

    for (i = 0; idem_admin_grants[i]; i++) {
        if (!idem_ctl_execute(ctl, idem_admin_grants[i])) {
            return 0;
        }
    }
    return 1;
}
