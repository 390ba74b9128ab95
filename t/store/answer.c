/* What a call answered, as it is printed. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#include <apr_strings.h>

#include "core/uuid.h"

const char *result_name(idem_store_result_e result)
{
    static const char *const names[] = {"OK",   "FOUND",  "NOT_FOUND",   "STALE",
                                        "BUSY", "FENCED", "UNAVAILABLE", "AMBIGUOUS"};

    return names[result];
}

static void print_octets(const char *name, const idem_octets_t *octets)
{
    apr_size_t i;

    printf(" %s=", name);
    if (!octets->octets) {
        printf("-");
    }
    for (i = 0; i < octets->len; i++) {
        printf("%%%02x", octets->octets[i]);
    }
}

void print_text(const char *name, const char *text)
{
    idem_octets_t octets = {(const unsigned char *)text, text ? strlen(text) : 0};

    print_octets(name, &octets);
}

void print_uuid(const char *name, const unsigned char *uuid)
{
    char text[IDEM_UUID_TEXT_LEN + 1];

    idem_uuid_format(uuid, text);
    printf(" %s=%s", name, text);
}

void print_record(const idem_record_t *record)
{
    if (!record) {
        return;
    }
    printf(" state=%s outcome=%s effect=%s generation=%d", idem_state_name(record->state),
           idem_outcome_name(record->outcome), idem_effect_name(record->effect), record->generation);
    print_uuid("operation", record->operation);
    print_uuid("owner", record->owner);
    print_uuid("token", record->owner_token);
    print_text("tenant", record->scope.tenant);
    print_text("principal", record->scope.principal);
    print_text("route", record->scope.route);
    print_text("revision", record->scope.revision);
    print_text("key", record->scope.key);
    printf(" ns=%s version=%s fingerprint=%d", record->scope.ns, record->scope.version, record->fingerprint[0]);
    print_octets("recipe", &record->recipe);
    print_octets("parts", &record->fingerprint_parts);
    printf(" lapsed=%d owner_alive=%d expired=%d tombstone_over=%d reuse=%d attempts=%d attempt_open=%d", record->lapsed,
           record->owner_alive, record->expired, record->tombstone_over, record->reuse_allowed, record->attempts,
           record->attempt_open);
    printf(" age=%" APR_TIME_T_FMT " lease_left=%" APR_TIME_T_FMT " code=%d", record->age / 1000,
           record->lease_left / 1000, record->response_code);
    print_octets("headers", &record->response_headers);
    print_octets("body", &record->response_body);
    print_octets("digest", &record->response_digest);
    printf(" created=%" APR_TIME_T_FMT " settled=%" APR_TIME_T_FMT " expires=%" APR_TIME_T_FMT,
           apr_time_sec(record->created_at), apr_time_sec(record->settled_at), apr_time_sec(record->expires_at));
}

void print_reserved(const idem_reserve_t *wanted)
{
    printf("%s maybe=%d", result_name(wanted->result), wanted->maybe_written);
    if (!wanted->found) {
        print_uuid("operation", wanted->operation);
        print_uuid("token", wanted->owner_token);
    }
    print_record(wanted->found);
}

void print_settled(const idem_settle_t *settle)
{
    printf("%s state=%s", result_name(settle->result), idem_state_name(settle->state));
}
