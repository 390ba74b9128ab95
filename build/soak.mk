# make soak   10,000 random schedules of requests, kills and retries against a prediction (20 to 40 minutes); SCHEDULES=N for
#             another number, SEED=N for the same again
SCHEDULES ?= 10000
.PHONY: soak
soak: all $(STOP_MODULE)
	IDEM_OUT=$(abspath $(OUT)) SCHEDULES=$(SCHEDULES) $(if $(SEED),SEED=$(SEED)) perl -It/lib t/fault/soak.t
