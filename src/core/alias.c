#include "core/alias.h"

#include <string.h>

#include <apr_hash.h>
#include <apr_strings.h>

typedef struct node_t {
    idem_identity_t identity;
    struct node_t *successor;
    struct node_t *first; /* of those that became this one */
    struct node_t *next;  /* sibling */
} node_t;

struct idem_alias_book_t {
    apr_pool_t *p;
    apr_hash_t *nodes;
    int count;
};

idem_alias_book_t *idem_alias_book_create(apr_pool_t *p)
{
    idem_alias_book_t *book = apr_pcalloc(p, sizeof(*book));

    book->p = p;
    book->nodes = apr_hash_make(p);
    return book;
}

/* Identities hold no octet 01, so this names one of them only. */
static const char *key_of(apr_pool_t *p, const idem_identity_t *identity)
{
    return apr_pstrcat(p, identity->tenant, "\x01", identity->principal, NULL);
}

static node_t *find(const idem_alias_book_t *book, const idem_identity_t *identity)
{
    char room[2048];
    apr_size_t tenant = strlen(identity->tenant);
    apr_size_t principal = strlen(identity->principal);

    if (!book->count || tenant + principal + 1 > sizeof(room)) {
        return NULL;
    }
    memcpy(room, identity->tenant, tenant);
    room[tenant] = '\x01';
    memcpy(room + tenant + 1, identity->principal, principal);
    return apr_hash_get(book->nodes, room, (apr_ssize_t)(tenant + principal + 1));
}

static node_t *find_or_make(idem_alias_book_t *book, const idem_identity_t *identity)
{
    node_t *node = find(book, identity);

    if (!node) {
        node = apr_pcalloc(book->p, sizeof(*node));
        node->identity.tenant = apr_pstrdup(book->p, identity->tenant);
        node->identity.principal = apr_pstrdup(book->p, identity->principal);
        apr_hash_set(book->nodes, key_of(book->p, identity), APR_HASH_KEY_STRING, node);
    }
    return node;
}

static const node_t *root_of(const node_t *node, int *depth)
{
    *depth = 0;
    while (node->successor) {
        node = node->successor;
        (*depth)++;
    }
    return node;
}

/* How long the longest chain is that ends in a node. No tree is deeper than the limit, so neither is this. */
static int height_of(const node_t *node)
{
    const node_t *child;
    int height = 0;

    for (child = node->first; child; child = child->next) {
        int below = height_of(child) + 1;

        height = below > height ? below : height;
    }
    return height;
}

static int size_of(const node_t *node)
{
    const node_t *child;
    int size = 1;

    for (child = node->first; child; child = child->next) {
        size += size_of(child);
    }
    return size;
}

/* A node that is not there counts as one by itself. */
static idem_alias_result_e check(const idem_alias_book_t *book, const node_t *from, const node_t *to)
{
    int depth = 0;
    const node_t *root = to ? root_of(to, &depth) : NULL;

    if (from && from->successor) {
        return IDEM_ALIAS_TAKEN;
    }
    if (from && root == from) {
        return IDEM_ALIAS_CYCLE;
    }
    if ((from ? height_of(from) : 0) + 1 + depth > IDEM_ALIAS_MAX_CHAIN) {
        return IDEM_ALIAS_TOO_LONG;
    }
    if ((from ? size_of(from) : 1) + (root ? size_of(root) : 1) > IDEM_ALIAS_MAX_MEMBERS ||
        book->count >= IDEM_ALIAS_MAX_COUNT) {
        return IDEM_ALIAS_TOO_MANY;
    }
    return IDEM_ALIAS_OK;
}

idem_alias_result_e idem_alias_book_add(idem_alias_book_t *book, const idem_alias_t *alias)
{
    idem_alias_result_e result;
    node_t *from;
    node_t *to;
    node_t **last;

    if (!strcmp(alias->from.tenant, alias->to.tenant) && !strcmp(alias->from.principal, alias->to.principal)) {
        return IDEM_ALIAS_SELF;
    }
    result = check(book, find(book, &alias->from), find(book, &alias->to));
    if (result != IDEM_ALIAS_OK) {
        return result;
    }
    from = find_or_make(book, &alias->from);
    to = find_or_make(book, &alias->to);
    from->successor = to;
    for (last = &to->first; *last; last = &(*last)->next) {
    }
    *last = from;
    book->count++;
    return IDEM_ALIAS_OK;
}

const char *idem_alias_result_text(idem_alias_result_e result)
{
    switch (result) {
    case IDEM_ALIAS_OK:
        return "in order";
    case IDEM_ALIAS_SELF:
        return "an identity cannot become itself";
    case IDEM_ALIAS_TAKEN:
        return "the old identity has a successor already";
    case IDEM_ALIAS_CYCLE:
        return "the new identity has become the old one already: that would be a cycle";
    case IDEM_ALIAS_TOO_LONG:
        return "a chain has at most 4 aliases";
    default:
        return "at most 16 identities can become one, and a registry has at most 100000 aliases";
    }
}

static int members_below(const node_t *top, idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS])
{
    const node_t *queue[IDEM_ALIAS_MAX_MEMBERS];
    const node_t *child;
    int count = 0;
    int i;

    queue[count++] = top;
    for (i = 0; i < count; i++) {
        members[i] = queue[i]->identity;
        for (child = queue[i]->first; child && count < IDEM_ALIAS_MAX_MEMBERS; child = child->next) {
            queue[count++] = child;
        }
    }
    return count;
}

int idem_alias_book_members(const idem_alias_book_t *book, const idem_identity_t *identity,
                            idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS])
{
    const node_t *node = find(book, identity);
    int depth;

    return node ? members_below(root_of(node, &depth), members) : 0;
}

int idem_alias_book_before(const idem_alias_book_t *book, const idem_identity_t *identity,
                           idem_identity_t members[IDEM_ALIAS_MAX_MEMBERS])
{
    const node_t *node = find(book, identity);

    return node ? members_below(node, members) : 0;
}
