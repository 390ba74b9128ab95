/*
 * sfv.h - the value of the Idempotency-Key field -> the key (CONTRACT section 5, RFC 9651).
 */
#ifndef IDEM_SFV_H
#define IDEM_SFV_H

#include <apr.h>
#include <apr_pools.h>

typedef enum {
    IDEM_KEY_STRICT, /* an RFC 9651 Item that is a String */
    IDEM_KEY_LENIENT /* also a bare value: visible ASCII and inner spaces, no comma, no double quote at its start */
} idem_key_syntax_e;

typedef enum {
    IDEM_KEY_OK,
    IDEM_KEY_EMPTY,         /* the field is there, but has no value or an empty string */
    IDEM_KEY_LIST,          /* several values: two field lines, or a comma outside quotes */
    IDEM_KEY_NOT_STRING,    /* strict: not in double quotes */
    IDEM_KEY_UNTERMINATED,  /* no closing double quote */
    IDEM_KEY_BAD_ESCAPE,    /* a backslash before anything but a double quote or a backslash */
    IDEM_KEY_BAD_OCTET,     /* a control octet, or one outside ASCII */
    IDEM_KEY_TRAILING,      /* something other than parameters after the closing quote */
    IDEM_KEY_BAD_PARAMETER, /* a parameter that is not well-formed */
    IDEM_KEY_TOO_SHORT,     /* idem_key_check_length() */
    IDEM_KEY_TOO_LONG       /* idem_key_check_length() */
} idem_key_result_e;

/* The limits where IdempotencyKeyLength says nothing, in octets of the key (quotes, escapes, parameters not counted). */
#define IDEM_KEY_MIN_STRICT 16
#define IDEM_KEY_MIN_LENIENT 1
#define IDEM_KEY_MAX 255

/*
 * A sentence for the sender, fit to be a problem's detail. It names no header field, as its name can be set, and
 * holds nothing of what was sent.
 */
const char *idem_key_result_text(idem_key_result_e result);

/*
 * Read value, len octets, the combined field value as httpd hands it (two field lines have become "a, b"). White
 * space around it is dropped, inside quotes none is. Parameters after a string are read and ignored, but must be
 * well-formed.
 *
 * Combined lines that happen to make one string ('"a' and 'b"') cannot be told from that string; who has the field
 * lines must count them.
 *
 * IDEM_KEY_OK: *key is in pool p, NUL-terminated, *key_len octets of visible ASCII and spaces, at least one. Its
 * length is not otherwise checked. Any other result: *key is NULL, *key_len 0.
 */
idem_key_result_e idem_key_parse(apr_pool_t *p, const char *value, apr_size_t len, idem_key_syntax_e syntax,
                                 const char **key, apr_size_t *key_len);

/* Is a key of key_len octets within min and max? IDEM_KEY_OK, IDEM_KEY_TOO_SHORT or IDEM_KEY_TOO_LONG. */
idem_key_result_e idem_key_check_length(apr_size_t key_len, apr_size_t min, apr_size_t max);

#endif
