# make            build the module and idempotencyctl into out/
# make demo       see a protected application answer; make demo-up leaves it running
# make test       everything that is tested, units first
# make install    into httpd's module directory (DESTDIR honoured)
#
# Each room's objects are found by wildcard; the rest of the rules is in build/*.mk.

APXS      ?= $(firstword $(wildcard /usr/bin/apxs /usr/bin/apxs2 /usr/sbin/apxs) apxs)
PKGCONFIG ?= pkg-config
PROVE     ?= prove
CC        ?= cc
OUT       ?= out
SANITIZE  ?=
VERSION   ?= 0.9.0
# make V=1 shows every command whole
Q          = $(if $(V),,@)

PACKAGES   = apr-1 apr-util-1 libpq openssl libpcre2-8 yajl
WARNINGS   = -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror
# httpd's own headers are included as system headers: their warnings are not ours.
INCLUDES   = -Isrc -I$(OUT)/generated $(patsubst -I%,-isystem %,$(shell $(PKGCONFIG) --cflags-only-I $(PACKAGES))) \
             -isystem $(shell $(APXS) -q INCLUDEDIR)
CFLAGS    ?= -O2 -g
ALL_CFLAGS = -std=gnu11 $(CFLAGS) $(WARNINGS) -fvisibility=hidden -fPIC -pthread -D_GNU_SOURCE \
             $(shell $(APXS) -q EXTRA_CPPFLAGS) $(INCLUDES) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
LDLIBS     = $(shell $(PKGCONFIG) --libs $(PACKAGES)) -lm
ALL_LDFLAGS = $(LDFLAGS) -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE))

objects    = $(patsubst %.c,$(OUT)/obj/%.o,$(1))
CORE_OBJS  = $(call objects,$(wildcard src/core/*.c))
STORE_OBJS = $(call objects,$(wildcard src/store/*.c)) $(OUT)/obj/generated/schema.o
HTTPD_OBJS = $(call objects,mod_idempotency.c $(wildcard src/httpd/*/*.c))
CTL_OBJS   = $(call objects,$(wildcard src/ctl/*.c))

MODULE     = $(OUT)/mod_idempotency.so
CTL        = $(OUT)/idempotencyctl
UNITS      = $(patsubst t/unit/%.c,$(OUT)/unit/%,$(wildcard t/unit/test_*.c))
# What the units share: every other file of their folder.
UNIT_OBJS  = $(call objects,$(filter-out t/unit/test_%.c,$(wildcard t/unit/*.c)))

.PHONY: all clean
all: $(MODULE) $(CTL)

$(MODULE): $(CORE_OBJS) $(STORE_OBJS) $(HTTPD_OBJS)
	@echo "  LD $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(CTL): $(CORE_OBJS) $(STORE_OBJS) $(CTL_OBJS)
	@echo "  LD $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(OUT)/unit/%: $(OUT)/obj/t/unit/%.o $(UNIT_OBJS) $(CORE_OBJS) $(STORE_OBJS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

# The release is in one object, so that another number costs one compilation.
$(OUT)/obj/src/core/version.o: ALL_CFLAGS += -DIDEM_VERSION='"$(VERSION)"'

$(OUT)/obj/generated/%.o: $(OUT)/generated/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(OUT)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The numbered SQL files travel inside the tool, so that an installed idempotencyctl needs none beside it.
$(OUT)/generated/schema.c: build/embed-schema $(wildcard src/store/schema/*.sql)
	@mkdir -p $(@D)
	build/embed-schema src/store/schema > $@.tmp && mv $@.tmp $@

clean:
	rm -rf $(OUT)

include $(wildcard build/*.mk)
-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
.SECONDARY:
