/*
 * combine_lead.h - one writer's work: a statement for its own row and those that wait. See combine.h. Internal to combining.
 */
#ifndef IDEM_COMBINE_LEAD_H
#define IDEM_COMBINE_LEAD_H

#include "store/combine_queue.h"

/*
 * Both: the caller has a writer's place, which is given up, to the next one where somebody waits. The result of row, the
 * caller's own, is set; it may be BUSY. Memory for it comes from p.
 */

/* The place is that of idem_queue_take_place. Nobody else's rows are taken along: it goes at once. */
void idem_lead_alone(idem_store_t *store, idem_kind_e kind, idem_row_t row, apr_time_t deadline, apr_pool_t *p);

/* own: the caller's ticket, of the kind of row. Those that are taken along get their results, and are told. */
void idem_lead(idem_store_t *store, const idem_ticket_t *own, idem_row_t row, apr_time_t deadline, apr_pool_t *p);

#endif
