# Into httpd's module directory, with a configuration that `a2enmod idempotency` switches on. A configuration that
# is there already is kept: it is the operator's. DESTDIR for packages, PREFIX for the tool.
PREFIX    ?= /usr/local
SBINDIR    = $(DESTDIR)$(PREFIX)/sbin
MANDIR     = $(DESTDIR)$(PREFIX)/share/man
LIBEXECDIR = $(DESTDIR)$(shell $(APXS) -q LIBEXECDIR)
HTTPD_CONF = $(DESTDIR)$(shell $(APXS) -q SYSCONFDIR)
MODS       = $(HTTPD_CONF)/mods-available
INCLUDEDIR = $(DESTDIR)$(shell $(APXS) -q INCLUDEDIR)

.PHONY: install uninstall
install: all
	install -d $(LIBEXECDIR) $(SBINDIR) $(MODS)
	install -m 644 $(MODULE) $(LIBEXECDIR)/mod_idempotency.so
	install -m 755 $(CTL) $(SBINDIR)/idempotencyctl
	install -d $(MANDIR)/man8
	install -m 644 docs/idempotencyctl.8 $(MANDIR)/man8/idempotencyctl.8
	install -d $(INCLUDEDIR)
	install -m 644 src/httpd/mod_idempotency.h $(INCLUDEDIR)/mod_idempotency.h
	sed 's|/usr/lib/apache2/modules|$(patsubst $(DESTDIR)%,%,$(LIBEXECDIR))|' conf/idempotency.load >$(MODS)/idempotency.load
	[ -e $(MODS)/idempotency.conf ] || install -m 644 conf/idempotency.conf $(MODS)/idempotency.conf
	@echo 'Next: a2enmod idempotency (docs/operations.md)'

# The configuration goes only if it is still as installed.
uninstall:
	@[ ! -e $(HTTPD_CONF)/mods-enabled/idempotency.load ] || { echo 'first: a2dismod idempotency, and restart httpd'; exit 1; }
	rm -f $(LIBEXECDIR)/mod_idempotency.so $(SBINDIR)/idempotencyctl $(MANDIR)/man8/idempotencyctl.8 $(MODS)/idempotency.load
	rm -f $(INCLUDEDIR)/mod_idempotency.h
	if cmp -s conf/idempotency.conf $(MODS)/idempotency.conf; then rm -f $(MODS)/idempotency.conf; fi
