/*
 * The canonical form of a JSON text.
 *
 * Clause: CONTRACT.md 3.1 (json) and RFC 8785 (jcs). No blanks. Both forms:
 *   strings   in one escaping: \b \t \n \f \r \" \\, other control characters as \u00xx in lower case, all else as
 *             UTF-8 itself; nothing is normalised (two spellings of one accented letter stay two strings)
 *   arrays    in their order; null is kept, and differs from a member that is not there
 * json:
 *   members   sorted by the code points of the unescaped name
 *   numbers   by their lexeme: 10, 10.0 and 1e1 are three values, and so are 1e5 and 1E5
 * jcs:
 *   members   sorted by the UTF-16 code units of the unescaped name
 *   numbers   as the double they stand for (jcs.h)
 * With a contract the numbers and strings that it normalises are written as contract.h says; in jcs the strings only,
 * since a number has one form there anyway.
 *
 * The form is itself JSON and a fixed point: written again, it comes out the same. So it is injective: it says
 * what the payload's values are.
 */
#ifndef IDEM_CORE_CANON_H
#define IDEM_CORE_CANON_H

#include "core/json.h"
#include "core/payload.h"

typedef enum { IDEM_CANON_JSON, IDEM_CANON_JCS } idem_canon_form_e;

/*
 * Writes the value that `json` holds (after idem_json_finish()) to the sink; checks it against `contract` on the way
 * unless that is NULL. APR_SUCCESS; APR_EINVAL with *fault [duplicate-member, number-range (jcs: no double holds it), too-many-values (jcs.h),
 * and those of contract.h]; APR_ENOMEM. After a failure the octets that the sink got are worth nothing.
 * Beside the memory of json.h it takes 24 octets for each member of the objects that are open at the same time, in a
 * list that doubles: at most 24 MiB, since a text has no more than IDEM_JSON_MAX_VALUES values and names.
 */
apr_status_t idem_canon_write(const idem_json_t *json, idem_canon_form_e form, const idem_contract_t *contract,
                              idem_octets_fn sink, void *baton, idem_payload_fault_t *fault);

#endif
