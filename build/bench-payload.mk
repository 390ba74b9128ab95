# make bench-payload   how fast the payload readers are, beside yajl alone
BENCH_PAYLOAD = $(OUT)/bench/bench_payload

.PHONY: bench-payload
bench-payload: $(BENCH_PAYLOAD)
	@$(BENCH_PAYLOAD)

$(BENCH_PAYLOAD): $(call objects,t/bench/bench_payload.c) $(CORE_OBJS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)
