/*
 * store.h - the store's own functions over the tool's one connection.
 */
#ifndef IDEM_CTL_STORE_H
#define IDEM_CTL_STORE_H

#include "ctl/ctl.h"
#include "store/store.h"

/*
 * After idem_ctl_connect: a store that works over ctl->native, one call at a time, in the name of no owner. NULL after
 * a line on stderr where the registry cannot be used. Lives as long as ctl->p.
 */
idem_store_t *idem_ctl_store(idem_ctl_t *ctl);

#endif
