/*
 * driver.h - a program that runs the provider's calls by script, one line a call, and prints one line an answer.
 *
 *   driver CONNINFO        then lines on standard input: COMMAND NAME=VALUE ...
 *
 * Values are percent-encoded; octets too, "-" stands for NULL. Every answer begins with the result's name and ends with
 * ms=, how long the call took. Commands are in driver.c, their names in its table.
 */
#ifndef IDEM_TEST_DRIVER_H
#define IDEM_TEST_DRIVER_H

#include <apr_hash.h>

#include "source.h"

typedef struct driver_t {
    apr_pool_t *p;
    idem_store_t store;
    source_t source;
    apr_hash_t *seen; /* records kept by name (as=NAME) */
    int quiet;
} driver_t;

/* One line's values. */
typedef struct line_t {
    apr_pool_t *p;    /* of this line */
    apr_hash_t *values;
} line_t;

/* line.c: the values of one line, in its pool; *command is its first word, NULL where there is none. */
line_t *line_parse(apr_pool_t *p, char *text, const char **command);

const char *line_text(const line_t *line, const char *name, const char *otherwise);
apr_int64_t line_number(const line_t *line, const char *name, apr_int64_t otherwise);
void line_octets(const line_t *line, const char *name, idem_octets_t *octets);
void line_uuid(const line_t *line, const char *name, unsigned char uuid[IDEM_UUID_LEN]); /* absent: a fresh one */
apr_time_t line_deadline(const line_t *line, const driver_t *driver);

void line_scope(const line_t *line, idem_scope_t *scope);

/* A reserve as the line says, the rest by default. older=T,T are tenants whose scopes it looks at as well. */
void line_reserve(const line_t *line, idem_reserve_t *wanted);

void line_settle(const line_t *line, idem_settle_t *settle);

/* answer.c: values and records, and how a call ended, as an answer begins. */
void print_text(const char *name, const char *text);
void print_uuid(const char *name, const unsigned char *uuid);
void print_record(const idem_record_t *record);
void print_reserved(const idem_reserve_t *wanted);
void print_settled(const idem_settle_t *settle);

const char *result_name(idem_store_result_e result);

/* Calls at the same time: company.c. */
void run_begin(driver_t *driver, const line_t *line);
void run_join(driver_t *driver, const line_t *line);

/* Several threads at once: bench.c. */
void run_race(driver_t *driver, const line_t *line);
void run_bench(driver_t *driver, const line_t *line);

#endif
