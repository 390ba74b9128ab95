# make bench     what the module costs, beside the same server without it, beside PostgreSQL alone and beside other
#                libraries (6 minutes; ROUNDS=1 for a shorter look)

BENCH_MODULE     = $(OUT)/mod_bench.so
BENCH_STATEMENTS = $(OUT)/bench-statements
SECONDS_EACH    ?= 2
ROUNDS          ?= 3
PEERS            = t/bench/peers/node_modules

# make bench-instructions   instructions per request, counted by callgrind (1 minute; valgrind is needed)

.PHONY: bench bench-deps bench-instructions
bench-instructions: all deps $(BENCH_MODULE)
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/instructions

bench: all deps bench-deps $(BENCH_MODULE) $(BENCH_STATEMENTS) $(PEERS)
	IDEM_OUT=$(abspath $(OUT)) SECONDS_EACH=$(SECONDS_EACH) ROUNDS=$(ROUNDS) perl -It/lib t/bench/run

bench-deps:
	@build/install-deps test bench

# The other libraries, as the lock file says; licences in t/bench/peers/README.md.
$(PEERS): t/bench/peers/package.json t/bench/peers/package-lock.json
	cd $(@D) && npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

$(BENCH_MODULE): $(OUT)/obj/t/bench/mod_bench.o
	$(CC) -shared $(ALL_LDFLAGS) -o $@ $^

$(BENCH_STATEMENTS): $(OUT)/obj/t/bench/statements.o $(CORE_OBJS) $(STORE_OBJS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

# The scripts for pgbench have the parameters that the statements have: in make test, so that a new one is not forgotten.
.PHONY: check-bench
check-bench: $(BENCH_MODULE) $(BENCH_STATEMENTS)
	@$(BENCH_STATEMENTS) fresh >/dev/null && $(BENCH_STATEMENTS) replay >/dev/null

# make bench-identities   what aliases and quotas cost, in instructions and in processor time (3 minutes; valgrind is
#                         needed; PAIRS=60 BLOCK=200)
.PHONY: bench-identities
bench-identities: all deps $(BENCH_MODULE)
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/identities

# make bench-scale   10,000 to 10,000,000 records (10 minutes, 16 GB of disk); SCALE=6 for a million at most
SCALE ?= 7
.PHONY: bench-scale
bench-scale: all deps $(BENCH_MODULE)
	IDEM_OUT=$(abspath $(OUT)) SCALE=$(SCALE) SECONDS_EACH=$(SECONDS_EACH) ROUNDS=$(ROUNDS) perl -It/lib t/bench/scale

# make bench-report   the figures of the last make bench and make bench-scale into docs/benchmarks.md, README.md and plots
.PHONY: bench-report
bench-report: bench-deps
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/report
