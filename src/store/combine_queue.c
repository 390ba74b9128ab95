#include "store/combine_queue.h"

void idem_queue_append(idem_combine_t *combine, idem_ticket_t *ticket)
{
    ticket->before = combine->last;
    *(combine->last ? &combine->last->after : &combine->first) = ticket;
    combine->last = ticket;
    combine->queued++;
    combine->octets += ticket->octets;
}

void idem_queue_take_out(idem_combine_t *combine, idem_ticket_t *ticket)
{
    *(ticket->before ? &ticket->before->after : &combine->first) = ticket->after;
    *(ticket->after ? &ticket->after->before : &combine->last) = ticket->before;
    ticket->before = ticket->after = NULL;
    combine->queued--;
    combine->octets -= ticket->octets;
}

int idem_queue_take_place(idem_combine_t *combine)
{
    if (combine->leaders) {
        return 0;
    }
    combine->leaders++;
    combine->begun[0] = idem_pg_moment();
    return 1;
}

/* When the last of those that are at work began. */
static idem_pg_moment_t last_begun(const idem_combine_t *combine)
{
    idem_pg_moment_t last = 0;
    int place;

    for (place = 0; place < combine->writers; place++) {
        last = combine->begun[place] > last ? combine->begun[place] : last;
    }
    return last;
}

/* How long a store that answers may take. */
static apr_interval_time_t patience(const idem_combine_t *combine)
{
    return combine->store->timeout / IDEM_COMBINE_PATIENCE;
}

/* Would one writer more help? */
static int is_short(const idem_combine_t *combine, idem_pg_moment_t now)
{
    return !combine->leaders || combine->queued >= IDEM_COMBINE_MOST_ROWS || combine->octets >= IDEM_COMBINE_MOST_OCTETS ||
           now - last_begun(combine) >= patience(combine);
}

idem_ticket_t *idem_queue_call_leader(idem_combine_t *combine)
{
    idem_ticket_t *ticket = combine->first;
    idem_pg_moment_t now;

    if (!ticket || combine->leaders >= combine->writers) {
        return NULL;
    }
    now = idem_pg_moment();
    if (!is_short(combine, now)) {
        return NULL;
    }
    /* The oldest, but a statement ends with its leader's deadline: of those that have half of their time left, if there
     * is one, else the youngest. */
    while (ticket->until < now + combine->store->timeout / 2 && ticket->after) {
        ticket = ticket->after;
    }
    idem_queue_take_out(combine, ticket);
    for (ticket->place = 0; combine->begun[ticket->place]; ticket->place++) {
    }
    combine->leaders++;
    combine->begun[ticket->place] = now;
    ticket->stage = IDEM_TICKET_LEADS;
    return ticket;
}

idem_ticket_t *idem_queue_give_place(idem_combine_t *combine, int place, int answered)
{
    combine->answered = answered ? idem_pg_moment() : combine->answered;
    combine->leaders--;
    combine->begun[place] = 0;
    return idem_queue_call_leader(combine);
}

int idem_queue_take_batch(idem_combine_t *combine, const idem_ticket_t *own, idem_ticket_t **batch)
{
    apr_size_t octets = own->octets;
    idem_ticket_t *ticket;
    idem_ticket_t *after;
    int n = 0;

    /* who has been sent can leave no more: of a store that may have fallen silent nobody else is to wait */
    if (idem_pg_moment() - combine->answered >= patience(combine)) {
        return 0;
    }
    for (ticket = combine->first; ticket && n < IDEM_COMBINE_MOST_ROWS - 1; ticket = after) {
        after = ticket->after;
        if (octets + ticket->octets <= IDEM_COMBINE_MOST_OCTETS) {
            idem_queue_take_out(combine, ticket);
            ticket->stage = IDEM_TICKET_SENT;
            octets += ticket->octets;
            batch[n++] = ticket;
        }
    }
    return n;
}
