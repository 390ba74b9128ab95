/*
 * vectors.h - test data of t/vectors as a tree of values. Only for tests: whatever is wrong ends the test at once
 * with a line that says so, so no caller has to look.
 *
 * The folder is t/vectors below the working directory, or what the environment variable IDEM_VECTORS says.
 */
#ifndef IDEM_TEST_VECTORS_H
#define IDEM_TEST_VECTORS_H

#include <apr.h>
#include <apr_pools.h>

typedef enum { VEC_NULL, VEC_BOOL, VEC_NUMBER, VEC_STRING, VEC_ARRAY, VEC_OBJECT } vec_type_e;

typedef struct vec_t vec_t;
struct vec_t {
    vec_type_e type;
    const char *name; /* within an object */
    int truth;        /* VEC_BOOL */
    const char *text; /* VEC_STRING: its octets; VEC_NUMBER: as written. NUL-terminated, and may hold NUL itself */
    apr_size_t len;   /* of text */
    int count;        /* VEC_ARRAY, VEC_OBJECT: the children */
    vec_t *first, *next;
};

/* The octets of one file, path below the folder, in pool p; a NUL that len does not count follows. */
const char *vec_file(apr_pool_t *p, const char *path, apr_size_t *len);

/* One JSON file, path below the folder, or octets of JSON, in pool p. Never NULL. */
vec_t *vec_load(apr_pool_t *p, const char *path);
vec_t *vec_parse(apr_pool_t *p, const char *json, apr_size_t len);

/* A member of an object (NULL where it has none of that name) and an element of an array (counted from 0). */
const vec_t *vec_get(const vec_t *object, const char *name);
const vec_t *vec_at(const vec_t *array, int index);

/* The text of a member that is a string, NULL where there is no such member; is that text equal to one? */
const char *vec_text(const vec_t *object, const char *name);
int vec_is(const vec_t *object, const char *name, const char *text);

/* The characters of s, which must be below U+0100, as one octet each: how tables of header fields write octets. */
const char *vec_latin1(apr_pool_t *p, const vec_t *s, apr_size_t *len);

#endif
