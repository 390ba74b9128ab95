/*
 * octets.h - what is laid out in octets by this project: numbers big endian in 4 octets, times in 8, and a reader that
 * cannot run over its end.
 */
#ifndef IDEM_OCTETS_H
#define IDEM_OCTETS_H

#include <apr.h>

#define IDEM_NUMBER_LEN 4
#define IDEM_TIME_LEN   8

/* Each writes at `at`, where the caller has room, and returns what is behind. octets may be NULL where len is 0. */
unsigned char *idem_put(unsigned char *at, const void *octets, apr_size_t len);
unsigned char *idem_put_number(unsigned char *at, apr_uint32_t number);
unsigned char *idem_put_time(unsigned char *at, apr_int64_t time);

/* What is left to read. A read beyond its end sets short_of, gives nothing (NULL, 0), and so does every one after it. */
typedef struct idem_rest_t {
    const unsigned char *at;
    apr_size_t left;
    int short_of;
} idem_rest_t;

/* The next len octets, where they lie. */
const unsigned char *idem_get(idem_rest_t *rest, apr_size_t len);
apr_uint32_t idem_get_number(idem_rest_t *rest);
apr_int64_t idem_get_time(idem_rest_t *rest);

/* The next len octets, copied to `to`, which is left alone where there are not as many. */
void idem_get_fixed(idem_rest_t *rest, unsigned char *to, apr_size_t len);

#endif
