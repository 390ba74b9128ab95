/*
 * Speed of the payload readers over 1 MiB, beside yajl alone on the same text. Each figure is the least processor time
 * of many runs, which is what a shared machine leaves unharmed.
 *
 *     make bench-payload
 *
 * Wanted: json at least 150 MB/s and at least 0.5 of yajl; a payload contract adds at most 30 % to the time.
 * Ends with 1 where one of these does not hold and the argument is "check".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <apr_general.h>
#include <apr_strings.h>
#include <yajl/yajl_parse.h>

#include "core/contract.h"
#include "core/digest.h"
#include "core/payload.h"

#define TEXT_SIZE   (1 << 20)
#define PIECE       8000 /* what httpd hands over at a time */
#define RUNS        60
#define MIN_MBPS    150.0
#define MIN_RATIO   0.5
#define MAX_ADDED   0.30
#define MIN_RAW     0.90

static const char contract_text[] =
    "{\"type\":\"object\",\"required\":[\"orders\"],\"properties\":{\"orders\":{\"type\":\"array\",\"items\":{"
    "\"type\":\"object\",\"required\":[\"id\",\"amount\",\"items\"],\"properties\":{"
    "\"id\":{\"type\":\"string\",\"pattern\":\"^ord_[0-9a-f]{8}$\"},\"object\":{\"const\":\"order\"},"
    "\"created\":{\"type\":\"integer\",\"minimum\":0},\"livemode\":{\"type\":\"boolean\"},"
    "\"amount\":{\"type\":\"object\",\"properties\":{\"currency\":{\"enum\":[\"EUR\",\"SEK\",\"USD\"]},"
    "\"value\":{\"type\":\"string\",\"format\":\"decimal\",\"minimum\":0}}},"
    "\"customer\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":100},"
    "\"email\":{\"type\":\"string\",\"maxLength\":200},\"phone\":{\"type\":[\"string\",\"null\"]},"
    "\"address\":{\"type\":\"object\",\"properties\":{\"line1\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"},"
    "\"postal_code\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"},\"country\":{\"type\":\"string\",\"maxLength\":2}"
    "}}}},\"items\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"sku\"],\"properties\":{"
    "\"sku\":{\"type\":\"string\",\"maxLength\":40},\"quantity\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000},"
    "\"unit_price\":{\"type\":\"number\",\"format\":\"decimal\"},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}},"
    "\"metadata\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}},"
    "\"description\":{\"type\":\"string\",\"maxLength\":500}}}}}}";

/* What an API takes: nested members out of order, names, notes with escapes, some letters beyond ASCII. */
static char *make_json(apr_pool_t *p, apr_size_t *len)
{
    char *text = apr_palloc(p, TEXT_SIZE + 4096);
    apr_size_t used = (apr_size_t)sprintf(text, "{\"orders\":[");
    unsigned i;
    unsigned item;

    for (i = 0; used < TEXT_SIZE; i++) {
        unsigned mixed = i * 2654435761u;

        used += (apr_size_t)sprintf(
            text + used,
            "%s{\"id\":\"ord_%08x\",\"object\":\"order\",\"created\":%u,\"livemode\":%s,\"amount\":{\"currency\":"
            "\"EUR\",\"value\":\"%u.%02u\"},\"customer\":{\"name\":\"J\xC3\xB6rg M\xC3\xBCller %u\",\"email\":"
            "\"user%u@example.com\",\"phone\":null,\"address\":{\"line1\":\"Main Street %u\",\"city\":\"Malm\xC3\xB6\","
            "\"postal_code\":\"%05u\",\"country\":\"SE\"}},\"items\":[",
            i ? "," : "", mixed, 1700000000 + i, i % 2 ? "true" : "false", mixed % 9999, i % 100, i, i, i, i % 100000);
        for (item = 0; item < 3; item++) {
            used += (apr_size_t)sprintf(text + used,
                                        "%s{\"sku\":\"SKU-%u\",\"quantity\":%u,\"unit_price\":%u.%02u,\"tags\":[\"a\","
                                        "\"promo\",\"x-large\"]}",
                                        item ? "," : "", mixed % 100000 + item, item + 1, mixed % 300, i % 100);
        }
        used += (apr_size_t)sprintf(text + used,
                                    "],\"metadata\":{\"note\":\"line one\\nline \\\"two\\\"\",\"trace\":"
                                    "\"%08x%08x%08x%08x\"},\"description\":\"Order placed through the web shop, to be "
                                    "delivered by courier\"}",
                                    mixed, ~mixed, mixed * 7, mixed * 13);
    }
    used += (apr_size_t)sprintf(text + used, "]}");
    *len = used;
    return text;
}

static char *make_form(apr_pool_t *p, apr_size_t *len)
{
    char *text = apr_palloc(p, TEXT_SIZE + 256);
    apr_size_t used = 0;
    unsigned i;

    for (i = 0; used < TEXT_SIZE; i++) {
        used += (apr_size_t)sprintf(text + used, "item%%5B%u%%5D=The+quick+brown+fox%%2C+%u+times&", i, i * 7);
    }
    *len = used;
    return text;
}

static char *make_multipart(apr_pool_t *p, apr_size_t *len)
{
    char *text = apr_palloc(p, TEXT_SIZE + 256);
    apr_size_t used = (apr_size_t)sprintf(text, "--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n");
    unsigned i;

    for (i = 0; used < TEXT_SIZE; i++) {
        text[used++] = (char)((i * 2654435761u) >> 24);
    }
    used += (apr_size_t)sprintf(text + used, "\r\n--b--\r\n");
    *len = used;
    return text;
}

static void count(void *baton, const void *octets, apr_size_t len)
{
    (void)octets;
    *(apr_size_t *)baton += len;
}

static void digest(void *baton, const void *octets, apr_size_t len)
{
    idem_sha256_update(baton, octets, len);
}

typedef struct {
    idem_payload_mode_e mode;
    const idem_contract_t *contract;
    int digests;
    double speed; /* MB/s */
} way_t;

static apr_status_t read_once(apr_pool_t *p, const way_t *way, const char *text, apr_size_t len)
{
    apr_size_t total = 0;
    void *baton = way->digests ? (void *)idem_sha256_init(p) : &total;
    idem_payload_t *payload = idem_payload_create(p, way->mode, way->contract, "b", way->digests ? digest : count, baton);
    apr_size_t at;

    for (at = 0; at < len; at += PIECE) {
        apr_status_t rv = idem_payload_feed(payload, text + at, len - at < PIECE ? len - at : PIECE);

        if (rv != APR_SUCCESS) {
            return rv;
        }
    }
    return idem_payload_finish(payload);
}

static int take_value(void *ctx)
{
    (void)ctx;
    return 1;
}

static int take_boolean(void *ctx, int value)
{
    (void)ctx;
    (void)value;
    return 1;
}

static int take_octets(void *ctx, const unsigned char *octets, size_t len)
{
    (void)ctx;
    (void)octets;
    (void)len;
    return 1;
}

static int take_number(void *ctx, const char *octets, size_t len)
{
    (void)ctx;
    (void)octets;
    (void)len;
    return 1;
}

static apr_status_t yajl_once(const char *text, apr_size_t len)
{
    static const yajl_callbacks callbacks = { take_value,  take_boolean, NULL,       NULL,       take_number, take_octets,
                                              take_value,  take_octets,  take_value, take_value, take_value };
    yajl_handle yajl = yajl_alloc(&callbacks, NULL, NULL);
    int wrong = yajl_parse(yajl, (const unsigned char *)text, len) != yajl_status_ok ||
                yajl_complete_parse(yajl) != yajl_status_ok;

    yajl_free(yajl);
    return wrong ? APR_EGENERAL : APR_SUCCESS;
}

/* Of this process, so that what others do on the machine counts little. */
static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * MB/s of each way's fastest run; `yajl`, if not NULL, is yajl's. They take turns, so that a busy moment of the
 * machine does not fall on one of them alone.
 */
static void measure(apr_pool_t *parent, way_t *ways, int count_of_ways, double *yajl, const char *text, apr_size_t len)
{
    double best[8];
    int i;
    int run;

    for (i = 0; i < 8; i++) {
        best[i] = 1e9;
    }
    for (run = 0; run < RUNS; run++) {
        for (i = yajl != NULL ? -1 : 0; i < count_of_ways; i++) {
            double took;
            apr_pool_t *p;
            apr_status_t rv;

            apr_pool_create(&p, parent);
            took = cpu_seconds();
            rv = i < 0 ? yajl_once(text, len) : read_once(p, &ways[i], text, len);
            took = cpu_seconds() - took;
            apr_pool_destroy(p);
            if (rv != APR_SUCCESS) {
                fprintf(stderr, "bench: the text is refused\n");
                exit(2);
            }
            best[i + 1] = took < best[i + 1] ? took : best[i + 1];
        }
    }
    for (i = 0; i < count_of_ways; i++) {
        ways[i].speed = (double)len / best[i + 1] / 1e6;
    }
    if (yajl != NULL) {
        *yajl = (double)len / best[0] / 1e6;
    }
}

/* The least processor time of SHA-256 over the text, by OpenSSL in one go. MB/s. */
static double bare_sha256(const char *text, apr_size_t len)
{
    unsigned char digest[IDEM_SHA256_LEN];
    double least = 1e9;
    int i;

    for (i = 0; i < RUNS; i++) {
        struct timespec begun;
        struct timespec ended;
        double took;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
        idem_sha256(text, len, digest);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
        took = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
        least = took < least ? took : least;
    }
    return (double)len / least / 1e6;
}

int main(int argc, char **argv)
{
    apr_pool_t *p;
    apr_size_t len;
    char *text;
    idem_contract_t *contract;
    const char *error;
    double yajl;
    way_t json[] = { { .mode = IDEM_PAYLOAD_JSON },
                     { .mode = IDEM_PAYLOAD_JSON },
                     { .mode = IDEM_PAYLOAD_JSON, .digests = 1 },
                     { .mode = IDEM_PAYLOAD_JCS },
                     { .mode = IDEM_PAYLOAD_RAW, .digests = 1 } };
    way_t form = { .mode = IDEM_PAYLOAD_FORM };
    way_t multipart = { .mode = IDEM_PAYLOAD_MULTIPART };
    double added;
    double sha256;

    apr_initialize();
    apr_pool_create(&p, NULL);
    if (idem_contract_compile(p, contract_text, strlen(contract_text), &contract, &error) != APR_SUCCESS) {
        fprintf(stderr, "bench: %s\n", error);
        return 2;
    }
    json[1].contract = contract;
    text = make_json(p, &len);
    measure(p, json, 5, &yajl, text, len);
    added = json[0].speed / json[1].speed - 1;
    sha256 = bare_sha256(text, len);
    text = make_form(p, &len);
    measure(p, &form, 1, NULL, text, len);
    text = make_multipart(p, &len);
    measure(p, &multipart, 1, NULL, text, len);
    printf("yajl alone       %7.0f MB/s\n", yajl);
    printf("json             %7.0f MB/s, %.2f of yajl (wanted: %.0f MB/s, %.2f)\n", json[0].speed,
           json[0].speed / yajl, MIN_MBPS, MIN_RATIO);
    printf("json, contract   %7.0f MB/s, %.0f %% more time (wanted: at most %.0f %%)\n", json[1].speed, added * 100,
           MAX_ADDED * 100);
    printf("json, SHA-256    %7.0f MB/s\n", json[2].speed);
    printf("jcs              %7.0f MB/s\n", json[3].speed);
    printf("raw, SHA-256     %7.0f MB/s, %.2f of SHA-256 alone (wanted: %.2f)\n", json[4].speed, json[4].speed / sha256,
           MIN_RAW);
    printf("form             %7.0f MB/s\n", form.speed);
    printf("multipart        %7.0f MB/s\n", multipart.speed);
    apr_terminate();
    return argc > 1 && strcmp(argv[1], "check") == 0 &&
           (json[0].speed < MIN_MBPS || json[0].speed / yajl < MIN_RATIO || added > MAX_ADDED ||
            json[4].speed / sha256 < MIN_RAW);
}
