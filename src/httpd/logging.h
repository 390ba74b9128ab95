/*
 * logging.h - every message has a number of its own, never used twice, so that an operator can look it up.
 */
#ifndef IDEM_HTTPD_LOGGING_H
#define IDEM_HTTPD_LOGGING_H

#define IDEM_LOG(number) "IDEM" number ": "

#endif
