/*
 * version.h - the release. For people and logs only: nothing that is stored or compared knows it. What is stored says
 * by itself how it is laid out: the contract's name, the numbers of recipe, snapshot, parts and journal entry, the
 * schema's version.
 */
#ifndef IDEM_VERSION_H
#define IDEM_VERSION_H

/* "1.2.3"; make VERSION=... sets it. */
const char *idem_version(void);

#endif
