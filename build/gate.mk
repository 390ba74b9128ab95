# make gate   the acceptance gate: 100,000 replays and retries over fresh keys; REQUESTS=N for another number, PACE=0
#             on a machine whose speed is not to count
.PHONY: gate
gate: all
	IDEM_OUT=$(abspath $(OUT)) perl -It/lib t/bench/gate
