# make test      what is missing is installed, then units, model and everything over HTTP
# make units     the units alone
# make http      the store, HTTP and fault tests alone; TESTS="t/http/key.t" for some of them

TESTS ?= $(wildcard t/store t/http t/fault)
JOBS  ?= 2

.PHONY: deps units http test

# The installer does nothing, and quickly, where everything is there.
deps:
	@if [ -x build/install-deps ]; then build/install-deps; fi

# Locales that fold case and write numbers in their own way: nothing that is digested may follow them.
LOCALES = $(OUT)/locales/sv_SE.UTF-8 $(OUT)/locales/tr_TR.UTF-8

$(OUT)/locales/%.UTF-8:
	@mkdir -p $(@D)
	@localedef -i $* -f UTF-8 $@

units: $(UNITS) $(LOCALES)
	@set -e; for unit in $(UNITS); do \
	    LOCPATH=$(OUT)/locales LSAN_OPTIONS=suppressions=build/lsan.supp "$$unit" >$(OUT)/unit/log 2>&1 || { cat $(OUT)/unit/log; exit 1; }; \
	    echo "$${unit##*/}: $$(grep -F PASSED $(OUT)/unit/log)"; \
	done
	@echo "units: $(words $(UNITS)) programs passed"

# AGAIN=1, for a machine that others load: a file that failed is tried once more, alone, and named.
AGAIN ?=
RUN_TESTS = IDEM_OUT=$(abspath $(OUT)) $(PROVE) -It/lib --statefile=$(OUT)/prove

# The module as a later release would be: the same but for its number, for t/http/version.t.
NEXT_VERSION = 99.0.0
NEXT_MODULE  = $(OUT)/next/mod_idempotency.so

$(NEXT_MODULE): src/core/version.c $(MODULE)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DIDEM_VERSION='"$(NEXT_VERSION)"' -c -o $(@D)/version.o $<
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -o $@ $(@D)/version.o \
	    $(filter-out $(OUT)/obj/src/core/version.o,$(CORE_OBJS) $(STORE_OBJS) $(HTTPD_OBJS)) $(LDLIBS)

http: all store-driver t/node_modules $(NEXT_MODULE)
	@rm -f $(OUT)/prove
	$(RUN_TESTS) --state=save -j$(JOBS) $(TESTS) || { [ -n "$(AGAIN)" ] && \
	    echo "make http: what failed is tried once more, alone" && $(RUN_TESTS) --state=failed,save -v; }

# Client libraries that the tests drive, as the lock file says. npm takes the registry that it is configured for.
t/node_modules: t/package.json t/package-lock.json
	cd t && npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

test: deps
	@$(MAKE) --no-print-directory all units check-directives check-docs check-bench model fuzz-replay http
	@echo "make test: all passed"
