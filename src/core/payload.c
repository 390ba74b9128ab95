#include "core/payload.h"

#include <string.h>

#include "core/canon.h"
#include "core/form.h"
#include "core/json.h"
#include "core/multipart.h"

struct idem_payload_t {
    idem_payload_mode_e mode;
    const idem_contract_t *contract;
    idem_octets_fn sink;
    void *baton;
    apr_status_t rv; /* once it is not APR_SUCCESS it stays so */
    int finished;
    idem_payload_fault_t fault;
    idem_json_t *json;
    idem_form_t *form;
    idem_multipart_t *multipart;
};

static const char *const mode_names[] = {
    [IDEM_PAYLOAD_RAW] = "raw",   [IDEM_PAYLOAD_JSON] = "json",           [IDEM_PAYLOAD_JCS] = "jcs",
    [IDEM_PAYLOAD_FORM] = "form", [IDEM_PAYLOAD_MULTIPART] = "multipart",
};

idem_payload_t *idem_payload_create(apr_pool_t *p, idem_payload_mode_e mode, const idem_contract_t *contract,
                                    const char *boundary, idem_octets_fn sink, void *baton)
{
    idem_payload_t *payload = apr_pcalloc(p, sizeof(*payload));

    payload->mode = mode;
    payload->contract = contract;
    payload->sink = sink;
    payload->baton = baton;
    switch (mode) {
    case IDEM_PAYLOAD_JSON:
    case IDEM_PAYLOAD_JCS:
        payload->json = idem_json_create(p, IDEM_JSON_MAX_DEPTH);
        return payload;
    case IDEM_PAYLOAD_FORM:
        payload->form = idem_form_create(p, sink, baton, &payload->fault);
        break;
    case IDEM_PAYLOAD_MULTIPART:
        payload->multipart = idem_multipart_create(p, boundary, sink, baton, &payload->fault);
        break;
    case IDEM_PAYLOAD_RAW:
        break;
    }
    if (contract != NULL) {
        payload->rv = idem_fault(&payload->fault, p, "not-json", NULL,
                                 "A payload contract can check a JSON body only.");
    }
    return payload;
}

apr_status_t idem_payload_feed(idem_payload_t *payload, const char *data, apr_size_t len)
{
    if (payload->rv != APR_SUCCESS || payload->finished || len == 0) {
        return payload->rv;
    }
    switch (payload->mode) {
    case IDEM_PAYLOAD_RAW:
        payload->sink(payload->baton, data, len);
        break;
    case IDEM_PAYLOAD_JSON:
    case IDEM_PAYLOAD_JCS:
        payload->rv = idem_json_feed(payload->json, data, len, &payload->fault);
        break;
    case IDEM_PAYLOAD_FORM:
        payload->rv = idem_form_feed(payload->form, data, len);
        break;
    case IDEM_PAYLOAD_MULTIPART:
        payload->rv = idem_multipart_feed(payload->multipart, data, len);
        break;
    }
    return payload->rv;
}

static apr_status_t finish_json(idem_payload_t *payload)
{
    idem_canon_form_e form = payload->mode == IDEM_PAYLOAD_JCS ? IDEM_CANON_JCS : IDEM_CANON_JSON;
    apr_status_t rv = idem_json_finish(payload->json, &payload->fault);

    if (rv == APR_SUCCESS) {
        rv = idem_canon_write(payload->json, form, payload->contract, payload->sink, payload->baton, &payload->fault);
    }
    return rv;
}

apr_status_t idem_payload_finish(idem_payload_t *payload)
{
    if (payload->rv == APR_SUCCESS && !payload->finished) {
        switch (payload->mode) {
        case IDEM_PAYLOAD_RAW:
            break;
        case IDEM_PAYLOAD_JSON:
        case IDEM_PAYLOAD_JCS:
            payload->rv = finish_json(payload);
            break;
        case IDEM_PAYLOAD_FORM:
            payload->rv = idem_form_finish(payload->form);
            break;
        case IDEM_PAYLOAD_MULTIPART:
            payload->rv = idem_multipart_finish(payload->multipart);
            break;
        }
    }
    payload->finished = 1;
    if (payload->json != NULL) {
        idem_json_free(payload->json);
    }
    return payload->rv;
}

const idem_payload_fault_t *idem_payload_fault(const idem_payload_t *payload)
{
    return payload->fault.reason != NULL ? &payload->fault : NULL;
}

const char *idem_payload_mode_name(idem_payload_mode_e mode)
{
    return mode_names[mode];
}

apr_status_t idem_payload_mode_parse(const char *name, idem_payload_mode_e *mode)
{
    unsigned i;

    for (i = 0; i < sizeof(mode_names) / sizeof(mode_names[0]); i++) {
        if (strcmp(name, mode_names[i]) == 0) {
            *mode = (idem_payload_mode_e)i;
            return APR_SUCCESS;
        }
    }
    return APR_NOTFOUND;
}
