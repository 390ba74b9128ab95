# make fuzz          every target for FUZZ_TIME seconds under libFuzzer, ASan and UBSan (clang); FUZZ="json form" for some.
#                    What it finds worth keeping stays in out-fuzz/corpus, a crash in out-fuzz/NAME-crash-...
# make fuzz-replay   every target over its stored inputs (t/fuzz/corpus/NAME), without libFuzzer; part of make test

FUZZ      ?= $(patsubst t/fuzz/fuzz_%.c,%,$(wildcard t/fuzz/fuzz_*.c))
FUZZ_TIME ?= 60
FUZZ_OUT   = $(OUT)-fuzz

FUZZERS = $(patsubst %,$(OUT)/fuzz/fuzz_%,$(FUZZ))
REPLAYS = $(patsubst %,$(OUT)/fuzz/replay_%,$(FUZZ))

.PHONY: fuzz fuzz-run fuzz-replay

# The objects need clang's instrumentation, so they have a folder of their own.
fuzz:
	@$(MAKE) --no-print-directory OUT=$(FUZZ_OUT) CC=clang SANITIZE=fuzzer-no-link,address,undefined \
	    CFLAGS='-O1 -g -fno-sanitize-recover=undefined' fuzz-run

fuzz-run: $(FUZZERS)
	@set -e; for name in $(FUZZ); do \
	    mkdir -p $(OUT)/corpus/$$name; \
	    echo "fuzz_$$name, $(FUZZ_TIME) s"; \
	    $(OUT)/fuzz/fuzz_$$name -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=1024 -print_final_stats=0 \
	        -reduce_inputs=0 -verbosity=1 -artifact_prefix=$(OUT)/$$name- $(OUT)/corpus/$$name t/fuzz/corpus/$$name >$(OUT)/$$name.log 2>&1 || \
	        { tail -n 60 $(OUT)/$$name.log; exit 1; }; \
	    tail -n 1 $(OUT)/$$name.log; \
	done

$(OUT)/fuzz/fuzz_%: $(OUT)/obj/t/fuzz/fuzz_%.o $(CORE_OBJS)
	@mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

fuzz-replay: $(REPLAYS)
	@set -e; for name in $(FUZZ); do $(OUT)/fuzz/replay_$$name t/fuzz/corpus/$$name; done

$(OUT)/fuzz/replay_%: $(OUT)/obj/t/fuzz/fuzz_%.o $(OUT)/obj/t/fuzz/replay.o $(CORE_OBJS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)
