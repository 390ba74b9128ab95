# make bench-sweep    1,000,000 records expire beside keyed requests; RECORDS=N for another number. Minutes, not in make test.
.PHONY: bench-sweep
bench-sweep: all $(OUT)/mod_bench.so
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/sweep-million

# make bench-status   the status page beside 1,000,000 records; RECORDS=N for another number
.PHONY: bench-status
bench-status: all
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/status-million

# make scale-plans   what a dead process has left among 1,000,000 records, found by one range of an index; RECORDS=N
.PHONY: scale-plans
scale-plans: all store-driver
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/recovery-million
