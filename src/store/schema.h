/*
 * schema.h - the numbered SQL files of src/store/schema, embedded at build time (build/embed-schema).
 *
 * A step is applied by `idempotencyctl migrate` in the order of its number and never changed once released:
 * a change of the schema is a new file. CONTRACT section 7.
 */
#ifndef IDEM_SCHEMA_H
#define IDEM_SCHEMA_H

typedef struct idem_schema_step_t {
    int number;       /* from the file's name, 1 upwards without gaps */
    const char *name; /* the rest of the file's name, for messages */
    const char *sql;  /* the whole file; names are unqualified, the tool sets search_path */
} idem_schema_step_t;

extern const idem_schema_step_t idem_schema_steps[];
extern const int idem_schema_step_count;

/* What the module and the tool of this build read and write: the number of the newest step. */
#define IDEM_SCHEMA_VERSION (idem_schema_steps[idem_schema_step_count - 1].number)

#endif
