# make bench     what the module costs, beside the same server without it and beside PostgreSQL alone (2 to 3 minutes;
#                SECONDS_EACH=2 for a shorter look)

BENCH_MODULE     = $(OUT)/mod_bench.so
BENCH_STATEMENTS = $(OUT)/bench-statements
SECONDS_EACH    ?= 5

# make bench-instructions   instructions per request, counted by callgrind (1 minute; valgrind is needed)

.PHONY: bench bench-instructions
bench-instructions: all deps $(BENCH_MODULE)
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/instructions

bench: all deps $(BENCH_MODULE) $(BENCH_STATEMENTS)
	IDEM_OUT=$(abspath $(OUT)) SECONDS_EACH=$(SECONDS_EACH) perl -It/lib t/bench/run

$(BENCH_MODULE): $(OUT)/obj/t/bench/mod_bench.o
	$(CC) -shared $(ALL_LDFLAGS) -o $@ $^

$(BENCH_STATEMENTS): $(OUT)/obj/t/bench/statements.o $(CORE_OBJS) $(STORE_OBJS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

# make bench-identities   what aliases and quotas cost, in instructions and in processor time (3 minutes; valgrind is
#                         needed; PAIRS=60 BLOCK=200)
.PHONY: bench-identities
bench-identities: all deps $(BENCH_MODULE)
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/identities
